/**
 * Operations on projects, heartbeat tokens, usage and dead letters. The command line calls them,
 * and the management API serves them. direct.ts does them on Redis and NATS; api-client.ts asks the
 * management API of an ingest.
 */
import { ITEM_TYPES } from '../lib/item-types.ts';
import type { RecordedChange } from '../projects/audit-change.ts';
import type { FiledDeadLetter, LetterPage, SequencePage } from './dead-letters/box.ts';
import type { Replayed } from './dead-letters/replay.ts';
import type { Finding } from './doctor/check.ts';
import type {
  KeyChanges,
  KeyJson,
  ProjectChanges,
  ProjectJson,
  WantedKey,
  WantedProject,
} from './project-json.ts';
import type { Sighting, TailWanted } from './tail-item.ts';
import type { Usage, UsageByHour } from './usage.ts';

/** Revision that the record must have to be changed; undefined: any revision. */
export type Revision = { revision?: number | undefined };

export type StoredProjectJson = { project: ProjectJson; revision: number };

/** A key, and the revision of the record that contains the key. */
export type StoredKeyJson = { key: KeyJson; revision: number };

/** Whether putProject() expects the project to be new or to exist. */
export type Presence = 'new' | 'there';

/** The deleted record, or the id alone when only the usage of an earlier project was left. */
export type DeletedProject = ProjectJson | { id: string };

/** Page of a list: at most `limit` entries that follow the name `after`, in the list's order. */
export type NamePage = { after?: string | undefined; limit?: number | undefined };

export const PROJECT_SORTS = ['id', 'name', 'usage'] as const;

/**
 * Page of the projects that have the text `search` in their id, alias, name, tags, plan or key
 * labels. They are sorted by id, by name with projects without a name last, or by this month's
 * usage with the largest first.
 */
export type ProjectPage = NamePage & {
  search?: string | undefined;
  sort?: (typeof PROJECT_SORTS)[number] | undefined;
  /** Whether the list has each project's usage. A list that is sorted by usage always has it. */
  usage?: boolean | undefined;
  /** When usage sorts the list: the usage that the project `after` had on the page before. */
  used?: number | undefined;
};

/** Heartbeat token. `createdAt` is RFC 3339. */
export type HeartbeatJson = { token: string; url: string; createdAt: string };

/** A dead letter and its bytes. When bytes are missing, `bytes` is a sentence that says why. */
export type DeadLetterDetail = { letter: FiledDeadLetter; bytes: Uint8Array | string };

/** Type of an item that `tail` shows. */
export const SEEN_TYPES = [...ITEM_TYPES, 'heartbeat'] as const;

/** A `tail` that has begun. `ended` rejects when the tail cannot go on, but not after `stop`. */
export type Tail = { ended: Promise<never>; stop(): void };

/** Each may throw OperationError, InvalidError, RegistryError or UnrecordedError. */
export interface Operations {
  /** Whether the host in DSNs and heartbeat URLs is a guess, because no setting names it. */
  readonly isUrlGuessed: boolean;
  createProject(wanted: WantedProject): Promise<StoredProjectJson>;
  /** Finds a project by its id or alias, as the operations below do. */
  getProject(idOrAlias: string): Promise<StoredProjectJson>;
  /** Lists a page of projects, or all without `page`. Short ids come first, unless `page` sorts. */
  listProjects(page?: ProjectPage): Promise<ProjectJson[]>;
  setProject(idOrAlias: string, changes: ProjectChanges, wanted?: Revision): Promise<StoredProjectJson>;
  /**
   * Creates the project or replaces its record. A replaced record keeps its keys and its alias
   * where `wanted` has none.
   */
  putProject(
    wanted: WantedProject & { id: string },
    expected?: Revision & { presence?: Presence | undefined },
  ): Promise<StoredProjectJson & { isNew: boolean }>;
  /** Replaces the keys with a new one. Old keys stay valid for `overlapMs`, if it is set. */
  rotateKey(idOrAlias: string, overlapMs?: number, wanted?: Revision): Promise<StoredProjectJson>;
  deleteProject(idOrAlias: string, wanted: Revision & { keepUsage: boolean }): Promise<DeletedProject>;
  /** Lists the keys with the hour of their last use. */
  listKeys(idOrAlias: string): Promise<KeyJson[]>;
  addKey(idOrAlias: string, wanted: WantedKey, expected?: Revision): Promise<StoredKeyJson>;
  setKey(
    idOrAlias: string,
    keyId: string,
    wanted: Revision & { changes: KeyChanges },
  ): Promise<StoredKeyJson>;
  /** @returns the removed key */
  removeKey(idOrAlias: string, keyId: string, wanted?: Revision): Promise<KeyJson>;
  history(idOrAlias: string, page?: SequencePage): Promise<RecordedChange[]>;
  /** Reads the month's usage, and the outcomes of the requests of the last `hours`. */
  usageOf(idOrAlias: string, hours: number): Promise<UsageByHour>;
  usageOfAll(): Promise<Usage[]>;
  createHeartbeat(): Promise<HeartbeatJson>;
  /** Lists a page in the order of the tokens; without `page` all tokens, oldest first. */
  listHeartbeats(page?: NamePage): Promise<HeartbeatJson[]>;
  deleteHeartbeat(token: string): Promise<void>;
  /** Lists dead letters, oldest first; without `page` all of them. */
  listDeadLetters(page?: LetterPage): Promise<FiledDeadLetter[]>;
  findDeadLetter(id: string): Promise<FiledDeadLetter>;
  getDeadLetter(id: string): Promise<DeadLetterDetail>;
  /** Replays the dead letter and removes it. Then waits at most `waitMs` for the processor. */
  replayDeadLetter(letter: FiledDeadLetter, waitMs?: number): Promise<Replayed>;
  /** Removes the dead letter that the caller has read, but no newer one with the same id. */
  purgeDeadLetter(letter: FiledDeadLetter): Promise<void>;
  /** Checks the deployment: settings, machine, Redis and NATS. */
  examine(): Promise<Finding[]>;
  /** Shows what is accepted or refused from now on. Resolves when it has begun to watch. */
  tail(wanted: TailWanted, show: (sighting: Sighting) => void): Promise<Tail>;
}
