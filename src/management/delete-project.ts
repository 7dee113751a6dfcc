/**
 * Deletes a project. The record is deleted first, then everything that was counted under the
 * project's id: a later project with the same id must not inherit those counts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { forgetUsage, readUsage } from '../ingest/limit/month-count.ts';
import type { LimitRedis } from '../ingest/limit/redis.ts';
import { removeUse } from '../ingest/usage/key-use.ts';
import { CATEGORIES } from '../lib/item-types.ts';
import type { Log } from '../lib/log.ts';
import { ANSWER_MS_MAX } from '../limits.ts';
import { UnrecordedError } from '../projects/audit-log.ts';
import { RevisionError, UnknownNameError } from '../projects/names.ts';
import type { Project } from '../projects/project.ts';
import { keysOf, keyWindow } from '../projects/project.ts';
import type { ProjectStore } from '../projects/project-store.ts';
import { CheckpointBucket } from '../projects/usage/checkpoint-bucket.ts';
import { removeMoves } from '../projects/usage/moves.ts';
import { removeOutcomes } from '../projects/usage/outcome-day.ts';
import type { Connections } from './connections.ts';
import { OperationError, reasonOf } from './operation-error.ts';

/** Time after which every connected worker has seen a change of the registry. */
const REGISTRY_MS = 1_000;

type DeletionParts = { connections: Connections; log: Log; store: ProjectStore };

/**
 * Deletes a project and, unless `keepUsage` is set, its usage.
 * @param revision that the record must have
 * @returns the record as it was
 * @throws RevisionError; OperationError that says what is deleted and what is not; LeftoverDeleted
 */
export async function deleteProject(
  parts: DeletionParts,
  idOrAlias: string,
  { keepUsage, revision }: { keepUsage: boolean; revision?: number | undefined },
): Promise<Project> {
  const { connections, store } = parts;
  if (keepUsage) return store.delete(idOrAlias, revision);
  const found = await store.get(idOrAlias).catch((error: unknown) => {
    // Any other error means that the record exists but cannot be read. Its project may be in use,
    // so nothing is deleted.
    if (!(error instanceof UnknownNameError)) throw error;
    if (revision !== undefined) throw new RevisionError(error.message);
    return deleteLeftover(parts, idOrAlias, error);
  });
  const { id } = found;
  const redis = await connections.redis().catch((error) => {
    throw new OperationError(
      'unavailable',
      `Nothing is deleted. ${reasonOf(error)}; usage is kept there. Try again, or say --keep-usage.`,
    );
  });
  let unrecorded: UnrecordedError | undefined;
  const project = await store.delete(id, revision).catch((error: unknown) => {
    if (!(error instanceof UnrecordedError)) throw error;
    unrecorded = error; // the record is deleted, so its usage is deleted, too
    return found;
  });
  let isThereAgain = false;
  try {
    // After this wait, requests that a worker accepted before it saw the deletion are counted, and
    // the counts can be deleted.
    await sleep(REGISTRY_MS + ANSWER_MS_MAX);
    isThereAgain = await isThere(store, id);
    if (!isThereAgain) await deleteUsage(parts, redis, { id, windows: windowsOf(project) });
  } catch (error) {
    throw new OperationError(
      'failed',
      `Project ${id} is deleted, but not all of its usage: ${reasonOf(error)}. Run sluice project delete ${id} again.`,
    );
  }
  if (isThereAgain)
    throw new OperationError(
      'conflict',
      `Project ${id} is deleted, and was created again meanwhile: its usage was left as it is.`,
    );
  if (unrecorded) throw unrecorded;
  return project;
}

/** Tells whether a project has this id. A project with this text as its alias does not count. */
const isThere = (store: ProjectStore, id: string): Promise<boolean> =>
  store.get(id).then(
    (project) => project.id === id,
    (error: unknown) => {
      if (!(error instanceof UnknownNameError)) throw error;
      return false;
    },
  );

/**
 * Deletes the usage that a failed deletion left behind after it had deleted the record.
 * @throws LeftoverDeleted when there was usage, else `notFound`
 */
async function deleteLeftover(parts: DeletionParts, id: string, notFound: UnknownNameError): Promise<never> {
  const redis = await parts.connections.redis().catch(() => {
    throw notFound;
  });
  const isFound = await deleteUsage(parts, redis, { id, windows: [] });
  throw isFound ? new LeftoverDeleted(id) : notFound;
}

/** Error that tells that only usage of this id was left, and that the usage is now deleted. */
export class LeftoverDeleted extends Error {
  override name = 'LeftoverDeleted';
  readonly id: string;

  constructor(id: string) {
    super(`of project ${id} only usage was left`);
    this.id = id;
  }
}

/** Names of the rate windows of a project's categories and keys, but not of its own window. */
const windowsOf = (project: Project): string[] => [
  ...CATEGORIES,
  ...keysOf(project).map(({ key }) => keyWindow(key)),
];

/**
 * Deletes everything that was counted under an id. The checkpoint goes first, because a worker that
 * finds no count in Redis resumes from the checkpoint. The checkpoint is removed again at the end,
 * because a worker may have written it meanwhile.
 * @returns whether there was any usage
 */
async function deleteUsage(
  parts: DeletionParts,
  redis: LimitRedis,
  { id, windows }: { id: string; windows: readonly string[] },
): Promise<boolean> {
  const link = await parts.connections.nats();
  const counters = new CheckpointBucket({ link, log: parts.log });
  const { month } = await readUsage(redis, id);
  const checkpoint = (await counters.remove(id, month)) ?? 0;
  const counts = await forgetUsage(redis, id, windows);
  counts.set(month, Math.max(checkpoint, counts.get(month) ?? 0));
  let sum = 0;
  for (const [of, count] of counts) {
    await counters.addDeleted(id, of, count);
    await counters.remove(id, of);
    sum += count;
  }
  await removeUse(link, id);
  await removeMoves(link, id);
  return (await removeOutcomes(link, id)) + sum > 0;
}
