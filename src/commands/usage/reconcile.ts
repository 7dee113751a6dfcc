/**
 * `sluice usage reconcile`: compares the sink's tally, which counts exactly once, with Redis's
 * counter, and corrects the counter.
 *
 * The tally is only meaningful when it has all envelopes that had been counted when the command
 * began. So the command waits until these envelopes are queued, then until their frames are
 * processed.
 *
 * The counter may be raised to the tally at any time, and its checkpoint with it, because the tally
 * holds only envelopes that were accepted. The counter is lowered only when all of these conditions
 * hold:
 *
 * - The frames that the command waited for were processed in time.
 * - The counter is the same before the wait and after the tally was read. Otherwise a request may
 *   be in only one of the two.
 * - No unreadable frame or entry was filed as a dead letter this month: it may be this project's.
 * - No project of this id was deleted this month.
 * - The project did not move between cells this month: the tally lacks what the other cell stored.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { readUsage, setUsage } from '../../ingest/limit/month-count.ts';
import { ANSWER_MS_MAX } from '../../limits.ts';
import { DeadLetterBox } from '../../management/dead-letters/box.ts';
import { ProjectStore } from '../../projects/project-store.ts';
import { CheckpointBucket } from '../../projects/usage/checkpoint-bucket.ts';
import { readMoves } from '../../projects/usage/moves.ts';
import { type TallyReader, tallyReader } from '../../sink/read-tally.ts';
import { UnavailableError } from '../../sink/unavailable.ts';
import { readBacklog } from '../../stream/backlog.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { CONSUMER, FRAME_STREAMS, streamName, streamSubject } from '../../stream/topology.ts';
import { CommandError, UsageError } from '../command-error.ts';
import { printJson, printLine } from '../print.ts';
import { integerIn, parseProjectId } from '../project/fields.ts';
import { type ApiFlags, type Session, withSession } from '../session.ts';

const POLL_MS = 200;
const WAIT_SEC_DEFAULT = 15;
/** Prefix of the subjects of heartbeats. Heartbeats are no requests of a project. */
const HEARTBEATS = streamSubject('heartbeats', 0).replace(/\d+$/, '');

/**
 * Result of the command. `before` and `after` are the counter's values. `complete`: whether the
 * counter was set to the tally. If not, the counter was raised or left as it was.
 */
type Reconciliation = {
  id: string;
  month: string;
  before: number;
  tally: number;
  after: number;
  complete: boolean;
  /** Set when dead letters without a project may hold requests that the tally lacks. */
  unread?: true;
  /** Set when a project of this id was deleted this month: the tally has its requests, too. */
  deleted?: true;
  /** Set when the project moved this month: the tally lacks what the other cell stored. */
  moved?: true;
};

/** Change of the counter. `seen` is the count in Redis when `wanted` was decided. */
type Correction = { id: string; month: string; seen: number | undefined; wanted: number; complete: boolean };

/**
 * Count of a month. `inRedis` is undefined when Redis has no count. `count` is then the checkpoint,
 * because counting would resume from it; 0 if there is none.
 */
type Counter = { month: string; inRedis: number | undefined; count: number };

/** Makes the reader of the tally in the processor's sink. */
function readerOf({ sinks }: Session): TallyReader {
  const reader = tallyReader(sinks);
  if (reader) return reader;
  throw new CommandError(
    "SLUICE_SINK must name the processor's sink, and one that keeps a tally: ndjson, postgres or clickhouse.",
  );
}

async function orCommandError<T>(reading: Promise<T>): Promise<T> {
  try {
    return await reading;
  } catch (error) {
    if (!(error instanceof UnavailableError)) throw error;
    throw new CommandError(`The tally cannot be read. ${error.message}`);
  }
}

/**
 * Waits until every frame that is in a stream now is processed.
 * @returns false when `waitMs` has passed before
 */
async function untilProcessed(link: NatsLink, shards: number, waitMs: number): Promise<boolean> {
  const manager = await link.manager();
  const streams = FRAME_STREAMS.flatMap((stream) =>
    Array.from({ length: shards }, (_, shard) => streamName(stream, shard, shards)),
  );
  const until = performance.now() + waitMs;
  for (const stream of streams) {
    const { last } = await readBacklog(manager, { stream, consumer: CONSUMER });
    for (;;) {
      const { first } = await readBacklog(manager, { stream, consumer: CONSUMER });
      if (first > last) break;
      if (performance.now() > until) return false;
      await sleep(POLL_MS);
    }
  }
  return true;
}

/** Whether unreadable dead letters have requests of this month, which the tally then lacks. */
async function hasUnread(link: NatsLink, month: string): Promise<boolean> {
  const letters = await (await DeadLetterBox.open(link)).list();
  return letters.some(
    ({ kind, projectId, subject, filedAt }) =>
      filedAt.startsWith(month) &&
      kind !== 'item' &&
      projectId === undefined &&
      !subject.startsWith(HEARTBEATS),
  );
}

async function readCounter(session: Session, checkpoints: CheckpointBucket, id: string): Promise<Counter> {
  const { month, count: inRedis } = await readUsage(await session.connections.redis(), id);
  return { month, inRedis, count: inRedis ?? (await checkpoints.read(id, month)) ?? 0 };
}

/** Sets the counter, then its checkpoint. Without `complete`, the checkpoint is never lowered. */
async function correct(
  session: Session,
  checkpoints: CheckpointBucket,
  { id, month, seen, wanted, complete }: Correction,
): Promise<void> {
  const change = { projectId: id, month, count: wanted, seen };
  const { set } = await setUsage(await session.connections.redis(), change);
  if (!set)
    throw new CommandError('The counter changed while it was being corrected; nothing was set. Try again.');
  if (complete) await checkpoints.replace(id, month, wanted);
  else await checkpoints.write(checkpoints.groupOf(id), month, new Map([[id, wanted]]));
}

async function reconcile(session: Session, idOrAlias: string, waitMs: number): Promise<Reconciliation> {
  const link = await session.connections.nats();
  const reader = readerOf(session);
  const checkpoints = new CheckpointBucket({ link, log: session.log });
  const { id } = await (await ProjectStore.open(link)).get(idOrAlias);
  const { month, ...before } = await readCounter(session, checkpoints, id);
  // A request is counted before it is queued. After this wait, the answers of all requests that are
  // counted now are due, so their frames are in the streams.
  await sleep(ANSWER_MS_MAX);
  const processed = await untilProcessed(link, session.config.streamShards, waitMs);
  const { count: ofId } = await orCommandError(reader.ofProject(id, month));
  // `ofDeleted` may be more than the tally has of the deleted project, because it includes requests
  // that were counted and could not be queued.
  const ofDeleted = await checkpoints.readDeleted(id, month);
  const tally = Math.max(0, ofId - ofDeleted);
  const now = await readCounter(session, checkpoints, id);
  if (now.month !== month) throw new CommandError('The month has just turned; run this again.');
  const still = processed && now.inRedis === before.inRedis && now.count === before.count;
  const unread = still && tally < now.count && (await hasUnread(link, month));
  const deleted = ofDeleted > 0;
  const moved = Object.values(await readMoves(link, id)).includes(month);
  const complete = still && !unread && !deleted && !moved;
  const wanted = complete ? tally : Math.max(tally, now.count);
  if (wanted !== now.inRedis)
    await correct(session, checkpoints, { id, month, seen: now.inRedis, wanted, complete });
  const result = { id, month, before: before.count, tally, after: wanted, complete };
  return { ...result, ...(unread && { unread }), ...(deleted && { deleted }), ...(moved && { moved }) };
}

function caveatOf({ complete, unread, deleted, moved }: Reconciliation): string {
  if (moved)
    return ' The project moved between cells this month, and the tally lacks what the other one stored, so the counter was not lowered.';
  if (deleted)
    return (
      ' A project of this id was deleted this month, and what the tally has of it is not known exactly, ' +
      'so the counter was not lowered.'
    );
  if (unread)
    return (
      ' Dead letters of this month that cannot be read may hold requests of this project, ' +
      "so the counter was not lowered; see 'sluice dead-letters list'."
    );
  if (complete) return '';
  return (
    ' Requests are coming in or still wait to be processed, so the counter was not lowered; ' +
    'run this again in a quiet moment.'
  );
}

function explain(result: Reconciliation): string {
  const { id, month, before, tally, after } = result;
  const figures = `Project ${id}, ${month}: the counter said ${before}, the sink's tally says ${tally}.`;
  const done = after === before ? 'The counter stays as it is.' : `The counter is now ${after}.`;
  return `${figures} ${done}${caveatOf(result)}`;
}

export function reconcileCommand(): Command {
  return new Command('reconcile')
    .description("recount this month from the sink's tally and correct the counter")
    .argument('<id>', 'id or alias', parseProjectId)
    .option('--wait <seconds>', 'for what is queued to be processed', integerIn(0, 3_600), WAIT_SEC_DEFAULT)
    .option('--json', 'print JSON')
    .action((id: string, flags: { wait: number }, command: Command) => {
      // Flags that stand before the word `reconcile` belong to `usage`, so the flags of both are
      // read.
      const { api, json } = command.optsWithGlobals<ApiFlags & { json?: boolean }>();
      if (api !== undefined)
        throw new UsageError(
          'reconcile reads the sink itself, so it takes no --api: the management API has no such operation.',
        );
      return withSession(async (session) => {
        const result = await reconcile(session, id, flags.wait * 1000);
        if (json) printJson(result);
        else printLine(explain(result));
      });
    });
}
