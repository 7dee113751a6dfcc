/**
 * Management operations that work on Redis and NATS directly. The management API uses them, and so
 * do commands without `--api`.
 */

import { readUse } from '../ingest/usage/key-use.ts';
import { systemClock as clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import type { RecordedChange } from '../projects/audit-change.ts';
import { readHistory } from '../projects/audit-log.ts';
import { HeartbeatStore } from '../projects/heartbeat-store.ts';
import { addKey, changeKey } from '../projects/keys.ts';
import { NameTakenError, RevisionError, type StoredProject, UnknownNameError } from '../projects/names.ts';
import type { Project, ProjectKey } from '../projects/project.ts';
import { keyId as idOfKey, keysOf } from '../projects/project.ts';
import { compareIds, type KeptList, mintKey, ProjectStore } from '../projects/project-store.ts';
import { CheckpointBucket } from '../projects/usage/checkpoint-bucket.ts';
import { follow } from '../stream/tail.ts';
import { CHUNKS_STREAM } from '../stream/topology.ts';
import type { Connections } from './connections.ts';
import {
  BytesGoneError,
  DeadLetterBox,
  type FiledDeadLetter,
  type LetterPage,
  type SequencePage,
} from './dead-letters/box.ts';
import { Replay, type Replayed } from './dead-letters/replay.ts';
import { deleteProject, LeftoverDeleted } from './delete-project.ts';
import { type Check, type Finding, findingOf } from './doctor/check.ts';
import { InvalidError } from './failure.ts';
import { OperationError, reasonOf } from './operation-error.ts';
import type {
  DeadLetterDetail,
  DeletedProject,
  HeartbeatJson,
  NamePage,
  Operations,
  Presence,
  ProjectPage,
  Revision,
  StoredKeyJson,
  StoredProjectJson,
  Tail,
} from './operations.ts';
import {
  changedKey,
  changedRecord,
  checked,
  checkedWanted,
  differences,
  type KeyChanges,
  type KeyJson,
  keyJson,
  matchesText,
  newRecord,
  type ProjectChanges,
  type ProjectJson,
  projectJson,
  type WantedKey,
  type WantedProject,
  wantedRecord,
} from './project-json.ts';
import type { Sighting, TailWanted } from './tail-item.ts';
import { sendTestEvent, type TestEvent } from './test-event.ts';
import { type Usage, type UsageByHour, type UsageReader, usageByHour, usageOfAll } from './usage.ts';

/** Parts that the operations of all callers share. */
export type ManagementParts = {
  connections: Connections;
  /** Base URL of DSNs and heartbeat URLs. */
  publicUrl: string;
  /** Whether `publicUrl` is a guess, because no setting says where clients reach ingest. */
  isUrlGuessed?: boolean;
  /** Base URL that test events are sent to; if undefined, `publicUrl`. */
  ingestUrl?: string;
  heartbeatPath: string;
  shards: number;
  /**
   * Cache of the list of all projects. The management API has one. A command has none, and reads
   * all projects from the broker for each list.
   */
  kept?: KeptList;
  /** Checks the deployment, for doctor. */
  examine(): Promise<readonly Check[]>;
  log: Log;
};

/** Returns the first `limit` entries for which `isBehind` holds. */
function pageOf<T>(sorted: readonly T[], isBehind: (one: T) => boolean, { limit }: NamePage): T[] {
  return sorted.filter(isBehind).slice(0, limit);
}

/** Fields by which projects are sorted. `used`: a usage to sort by, instead of the present one. */
type Named = { id: string; name?: string | undefined; used?: number | undefined };
const compareProjects = (one: Named, other: Named): number => compareIds(one.id, other.id);
const { compare: compareTexts } = new Intl.Collator('en', { numeric: true });
/** Compares projects by name. Projects without a name come last. */
function compareNames(one: Named, other: Named): number {
  if (one.name === undefined || other.name === undefined)
    return Number(one.name === undefined) - Number(other.name === undefined) || compareProjects(one, other);
  return compareTexts(one.name, other.name) || compareProjects(one, other);
}

/** Makes a comparison that puts the project with the largest usage first. */
const byUsage =
  (usage: ReadonlyMap<string, number> = new Map()) =>
  (one: Named, other: Named): number => {
    const [of, than] = [one, other].map(({ id, used = usage.get(id) ?? 0 }) => used) as [number, number];
    return than - of || compareProjects(one, other);
  };

/**
 * Finds the project after which the wanted page begins; undefined for the first page. If that
 * project was deleted meanwhile, a list by id or by usage can go on, but a list by name cannot. A
 * list by usage goes on from `used`, the project's usage on the page before. The usage has grown
 * since, and with the new usage a project could come twice.
 * @throws InvalidError when the list is sorted by name and the project is gone
 */
function lastOfPage(
  projects: readonly StoredProject[],
  { after, sort, used }: ProjectPage,
): Named | undefined {
  if (after === undefined) return undefined;
  const found = projects.find(({ project }) => project.id === after)?.project;
  if (found || sort !== 'name') return { ...found, id: after, used };
  throw new InvalidError([{ field: 'after', detail: `there is no project ${after}` }]);
}

export class DirectOperations implements Operations {
  readonly #parts: ManagementParts;
  readonly #by: string;
  #store: Promise<ProjectStore> | undefined;

  /** `by` is the name of the caller in the audit. */
  constructor(parts: ManagementParts, by: string) {
    this.#parts = parts;
    this.#by = by;
  }

  get isUrlGuessed(): boolean {
    return this.#parts.isUrlGuessed ?? false;
  }

  // ---- Projects ----

  async createProject(wanted: WantedProject): Promise<StoredProjectJson> {
    const store = await this.#projects();
    return this.#stored(store, await store.create(newRecord(wanted, clock.now())));
  }

  async getProject(idOrAlias: string): Promise<StoredProjectJson> {
    const { project, revision } = await (await this.#projects()).find(idOrAlias);
    return { project: this.#json(project), revision };
  }

  async listProjects(page: ProjectPage = {}): Promise<ProjectJson[]> {
    const all = await (await this.#projects()).listStored(this.#parts.kept);
    const { search, sort } = page;
    const usage = await this.#usageFor(page);
    const order = { id: compareProjects, name: compareNames, usage: byUsage(usage) }[sort ?? 'id'];
    const last = lastOfPage(all, page);
    const isWanted = ({ project }: StoredProject): boolean =>
      (last === undefined || order(project, last) > 0) &&
      (search === undefined || matchesText(project, search));
    const sorted =
      order === compareProjects ? all : all.toSorted((one, other) => order(one.project, other.project));
    return pageOf(sorted, isWanted, page).map(({ project, revision }) => ({
      ...this.#json(project),
      revision,
      ...(usage && { usage: usage.get(project.id) ?? 0 }),
    }));
  }

  /**
   * Reads this month's usage of all projects, when the list shows it or is sorted by it. When the
   * usage cannot be read, a list that only shows it goes without it. The usage comes from the
   * checkpoints, so that the page asks Redis nothing.
   * @throws OperationError when the usage sorts the list and cannot be read
   */
  async #usageFor({ usage, sort }: ProjectPage): Promise<ReadonlyMap<string, number> | undefined> {
    if (!usage && sort !== 'usage') return undefined;
    const { checkpoints } = await this.#usageReader();
    const month = new Date(clock.now()).toISOString().slice(0, 'YYYY-MM'.length);
    return checkpoints.readAll(month).catch((error: unknown) => {
      if (sort !== 'usage') return undefined;
      throw new OperationError('unavailable', `The usage cannot be read: ${reasonOf(error)}.`);
    });
  }

  async setProject(
    idOrAlias: string,
    changes: ProjectChanges,
    { revision }: Revision = {},
  ): Promise<StoredProjectJson> {
    const store = await this.#projects();
    const change = (project: Project): Project => changedRecord(project, changes, clock.now());
    return this.#stored(store, await store.set(idOrAlias, change, revision));
  }

  async putProject(
    wanted: WantedProject & { id: string },
    { revision, presence }: Revision & { presence?: Presence | undefined } = {},
  ): Promise<StoredProjectJson & { isNew: boolean }> {
    const declared = checkedWanted(wanted);
    const { id } = wanted;
    const store = await this.#projects();
    let found = await store.find(id).catch(unlessUnknown);
    if (!found && presence !== 'there' && revision === undefined) {
      const made = await store.create(newRecord(wanted, clock.now())).catch(unlessTaken(id));
      if (made) return { ...(await this.#stored(store, made)), isNew: true };
      found = await store.find(id).catch(unlessUnknown); // another caller created the project first
    }
    if (!found) throw new RevisionError(`There is no project ${id}.`);
    if (found.project.id !== id)
      throw new OperationError('conflict', `${id} is the alias of project ${found.project.id}.`);
    if (presence === 'new') throw new RevisionError(`There is a project ${id} already.`);
    const replace = (before: Project): Project => {
      const now = clock.now();
      const after = wantedRecord(before, declared, now);
      return differences(before, after, now).length > 0 ? checked(after) : before;
    };
    return { ...(await this.#stored(store, await store.set(id, replace, revision))), isNew: false };
  }

  async deleteProject(idOrAlias: string, wanted: Revision & { keepUsage: boolean }): Promise<DeletedProject> {
    const { connections, log } = this.#parts;
    try {
      return this.#json(
        await deleteProject({ connections, log, store: await this.#projects() }, idOrAlias, wanted),
      );
    } catch (error) {
      if (error instanceof LeftoverDeleted) return { id: error.id };
      throw error;
    }
  }

  async rotateKey(
    idOrAlias: string,
    overlapMs?: number,
    { revision }: Revision = {},
  ): Promise<StoredProjectJson> {
    const store = await this.#projects();
    return this.#stored(store, await store.rotateKey(idOrAlias, overlapMs, revision));
  }

  // ---- Keys ----

  async listKeys(idOrAlias: string): Promise<KeyJson[]> {
    const project = await (await this.#projects()).get(idOrAlias);
    return this.#keysJson(project);
  }

  async getKey(idOrAlias: string, keyId: string): Promise<StoredKeyJson> {
    const { project, revision } = await (await this.#projects()).find(idOrAlias);
    const key = (await this.#keysJson(project)).find(({ id }) => id === keyId);
    if (!key) throw new UnknownNameError(`Project ${project.id} has no key ${keyId}.`);
    return { key, revision };
  }

  async addKey(idOrAlias: string, wanted: WantedKey, { revision }: Revision = {}): Promise<StoredKeyJson> {
    const { key = mintKey(), enabled = true, ...fields } = wanted;
    const added = changedKey({ key, enabled }, fields);
    const change = (project: Project): Project => checked(addKey(project, added, clock.now()));
    await (await this.#projects()).set(idOrAlias, change, revision);
    return this.getKey(idOrAlias, idOfKey(added.key));
  }

  async setKey(
    idOrAlias: string,
    keyId: string,
    { changes, revision }: Revision & { changes: KeyChanges },
  ): Promise<StoredKeyJson> {
    const change = (key: ProjectKey): ProjectKey => changedKey(key, changes);
    const alter = (project: Project): Project =>
      checked(changeKey(project, keyId, { now: clock.now(), change }));
    await (await this.#projects()).set(idOrAlias, alter, revision);
    return this.getKey(idOrAlias, keyId);
  }

  async removeKey(idOrAlias: string, keyId: string, { revision }: Revision = {}): Promise<KeyJson> {
    let removed: ProjectKey | undefined;
    const change = (key: ProjectKey): undefined => {
      removed = key;
    };
    const alter = (project: Project): Project => changeKey(project, keyId, { now: clock.now(), change });
    const project = await (await this.#projects()).set(idOrAlias, alter, revision);
    return keyJson(project, removed as unknown as ProjectKey, this.#parts.publicUrl);
  }

  /** Reads the history of a project, found by id or alias; a deleted project only by its id. */
  async history(idOrAlias: string, page?: SequencePage): Promise<RecordedChange[]> {
    const link = await this.#parts.connections.nats();
    const found = await (await this.#projects()).find(idOrAlias).catch(unlessUnknown);
    if (found) return readHistory(link, found.project.id, page);
    const changes = await readHistory(link, idOrAlias, page);
    if (changes.length > 0) return changes;
    // The page is also empty when it begins after the last change of a deleted project.
    const [first] = await readHistory(link, idOrAlias, { limit: 1 });
    if (!first) throw new UnknownNameError(`There is no project ${idOrAlias}.`);
    return changes;
  }

  // ---- Usage ----

  async usageOf(idOrAlias: string, hours: number): Promise<UsageByHour> {
    const project = await (await this.#projects()).get(idOrAlias);
    return usageByHour(await this.#usageReader(), project, hours);
  }

  async usageOfAll(): Promise<Usage[]> {
    const projects = await (await this.#projects()).list();
    return usageOfAll(await this.#usageReader(), projects);
  }

  /** Sends a test event, and waits at most `waitMs` until it is stored. */
  async sendTestEvent(idOrAlias: string, waitMs: number): Promise<TestEvent> {
    const { connections, publicUrl, ingestUrl = publicUrl, shards } = this.#parts;
    const project = await (await this.#projects()).get(idOrAlias);
    return sendTestEvent({ link: await connections.nats(), ingestUrl, shards }, project, waitMs);
  }

  // ---- Heartbeat tokens ----

  async createHeartbeat(): Promise<HeartbeatJson> {
    const made = await (await this.#heartbeats()).create(new Date(clock.now()));
    return this.#heartbeatJson(made);
  }

  async listHeartbeats(page?: NamePage): Promise<HeartbeatJson[]> {
    const tokens = (await (await this.#heartbeats()).list()).map((one) => this.#heartbeatJson(one));
    if (!page) return tokens;
    const sorted = tokens.sort((one, other) => (one.token < other.token ? -1 : 1));
    return pageOf(sorted, ({ token }) => page.after === undefined || token > page.after, page);
  }

  async deleteHeartbeat(token: string): Promise<void> {
    await (await this.#heartbeats()).delete(token);
  }

  // ---- Dead letters ----

  async listDeadLetters(page?: LetterPage): Promise<FiledDeadLetter[]> {
    return (await this.#box()).list(page);
  }

  async findDeadLetter(id: string): Promise<FiledDeadLetter> {
    return (await this.#box()).get(id);
  }

  async getDeadLetter(id: string): Promise<DeadLetterDetail> {
    const box = await this.#box();
    const letter = await box.get(id);
    const bytes = await box.bytesOf(letter).catch((error: unknown) => {
      if (!(error instanceof BytesGoneError)) throw error;
      return error.message;
    });
    return { letter, bytes };
  }

  async replayDeadLetter(letter: FiledDeadLetter, waitMs = 0): Promise<Replayed> {
    const { connections, shards, log } = this.#parts;
    const link = await connections.nats();
    return new Replay({ link, box: await this.#box(), shards, clock, log }).run(letter, waitMs);
  }

  async purgeDeadLetter(letter: FiledDeadLetter): Promise<void> {
    await (await this.#box()).purge(letter);
  }

  // ---- Tail and doctor ----

  async examine(): Promise<Finding[]> {
    return (await this.#parts.examine()).map(findingOf);
  }

  async tail(wanted: TailWanted, show: (sighting: Sighting) => void): Promise<Tail> {
    // The decoders of OTLP take a while to load, and no other operation needs them.
    const { refusalIn, sightingsIn } = await import('./tail-item.ts');
    const link = await this.#parts.connections.nats();
    // Without the streams of sluice no frame would ever come, so a missing stream is an error.
    await (await link.manager()).streams.info(CHUNKS_STREAM);
    const { project: name } = wanted;
    const project = name === undefined ? name : (await (await this.#projects()).get(name)).id;
    const [what, sightings] = wanted.refused
      ? (['refused', refusalIn] as const)
      : (['frames', sightingsIn] as const);
    // Frames of all streams are read. The first item of an envelope decides the envelope's stream,
    // and an item of the wanted type may follow later in the envelope.
    const stop = follow(link, what, (bytes) => {
      for (const sighting of sightings(bytes, { ...wanted, project })) show(sighting);
    });
    return { ended: new Promise<never>(() => undefined), stop };
  }

  // ---- Parts ----

  #projects(): Promise<ProjectStore> {
    this.#store ??= this.#openStore();
    return this.#store;
  }

  async #openStore(): Promise<ProjectStore> {
    return ProjectStore.open(await this.#parts.connections.nats(), { by: this.#by });
  }

  async #heartbeats(): Promise<HeartbeatStore> {
    return HeartbeatStore.open(await this.#parts.connections.nats(), this.#by);
  }

  async #box(): Promise<DeadLetterBox> {
    return DeadLetterBox.open(await this.#parts.connections.nats());
  }

  async #usageReader(): Promise<UsageReader> {
    const { connections, log } = this.#parts;
    return { connections, checkpoints: new CheckpointBucket({ link: await connections.nats(), log }) };
  }

  #json(project: Project): ProjectJson {
    return projectJson(project, { publicUrl: this.#parts.publicUrl, now: clock.now() });
  }

  async #keysJson(project: Project): Promise<KeyJson[]> {
    const used = await readUse(await this.#parts.connections.nats(), project.id);
    return keysOf(project).map((key) => {
      const lastUsed = used[idOfKey(key.key)];
      const json = keyJson(project, key, this.#parts.publicUrl);
      return { ...json, ...(lastUsed !== undefined && { lastUsed }) };
    });
  }

  /**
   * Reads a stored project again to get its revision. If another caller changed the project in
   * between, record and revision both show the change.
   */
  async #stored(store: ProjectStore, { id }: Project): Promise<StoredProjectJson> {
    const { project, revision } = await store.find(id);
    return { project: this.#json(project), revision };
  }

  #heartbeatJson({ token, createdAt }: { token: string; createdAt: string }): HeartbeatJson {
    const { publicUrl, heartbeatPath } = this.#parts;
    return { token, url: `${publicUrl}${heartbeatPath}/${token}`, createdAt };
  }
}

function unlessUnknown(error: unknown): undefined {
  if (!(error instanceof UnknownNameError)) throw error;
}

const unlessTaken =
  (name: string) =>
  (error: unknown): undefined => {
    if (!(error instanceof NameTakenError) || error.taken !== name) throw error;
  };
