/**
 * Operations on projects, heartbeat tokens, usage and dead letters. The command line calls them,
 * and the management API serves them. direct.ts works on Redis and NATS; api-client.ts asks the
 * API of an ingest.
 */
import type { RecordedChange } from '../projects/audit-change.ts';
import type { FiledDeadLetter, LetterPage, SequencePage } from './dead-letters/box.ts';
import type { Replayed } from './dead-letters/replay.ts';
import type {
  KeyChanges,
  KeyJson,
  ProjectChanges,
  ProjectJson,
  WantedKey,
  WantedProject,
} from './project-json.ts';
import type { Usage, UsageByHour } from './usage.ts';

/** The record of this revision, and no other, is to be changed; undefined: any. */
export type Revision = { revision?: number | undefined };

export type StoredProjectJson = { project: ProjectJson; revision: number };

/** A key, and the revision of the record that it is in. */
export type StoredKeyJson = { key: KeyJson; revision: number };

/** Whether a project that is put must be new, or must exist. */
export type Presence = 'new' | 'there';

/** The record as it was; its id alone when only the usage of an earlier project was left. */
export type DeletedProject = ProjectJson | { id: string };

/** At most `limit` behind the name `after`, in the order of the list. */
export type NamePage = { after?: string | undefined; limit?: number | undefined };

/** A page of the projects with this text in what people know them by. */
export type ProjectPage = NamePage & { search?: string | undefined };

/** `createdAt` is RFC 3339. */
export type HeartbeatJson = { token: string; url: string; createdAt: string };

/** `bytes` is a sentence where the bytes are not all there. */
export type DeadLetterDetail = { letter: FiledDeadLetter; bytes: Uint8Array | string };

/** All throw OperationError, InvalidError, RegistryError or UnrecordedError. */
export interface Operations {
  createProject(wanted: WantedProject): Promise<StoredProjectJson>;
  /** Finds by id or alias; so do the operations below. */
  getProject(idOrAlias: string): Promise<StoredProjectJson>;
  /** Projects in the order of their ids, short ids first; all of them without a page. */
  listProjects(page?: ProjectPage): Promise<ProjectJson[]>;
  setProject(idOrAlias: string, changes: ProjectChanges, wanted?: Revision): Promise<StoredProjectJson>;
  /**
   * Makes the project what is wanted, whether it is there or not. Where nothing is said of its keys
   * and alias, they stay.
   */
  putProject(
    wanted: WantedProject & { id: string },
    expected?: Revision & { presence?: Presence | undefined },
  ): Promise<StoredProjectJson & { isNew: boolean }>;
  /** `overlapMs`: how long the keys before stay valid; undefined: they are removed. */
  rotateKey(idOrAlias: string, overlapMs?: number, wanted?: Revision): Promise<StoredProjectJson>;
  deleteProject(idOrAlias: string, wanted: Revision & { keepUsage: boolean }): Promise<DeletedProject>;
  /** With the hour of their last use. */
  listKeys(idOrAlias: string): Promise<KeyJson[]>;
  addKey(idOrAlias: string, wanted: WantedKey, expected?: Revision): Promise<StoredKeyJson>;
  setKey(
    idOrAlias: string,
    keyId: string,
    wanted: Revision & { changes: KeyChanges },
  ): Promise<StoredKeyJson>;
  /** @returns it as it was */
  removeKey(idOrAlias: string, keyId: string, wanted?: Revision): Promise<KeyJson>;
  history(idOrAlias: string, page?: SequencePage): Promise<RecordedChange[]>;
  /** With what became of the requests of the last `hours`. */
  usageOf(idOrAlias: string, hours: number): Promise<UsageByHour>;
  usageOfAll(): Promise<Usage[]>;
  createHeartbeat(): Promise<HeartbeatJson>;
  /** A page in the order of the tokens; without one all, oldest first. */
  listHeartbeats(page?: NamePage): Promise<HeartbeatJson[]>;
  deleteHeartbeat(token: string): Promise<void>;
  /** Oldest first; without a page all. */
  listDeadLetters(page?: LetterPage): Promise<FiledDeadLetter[]>;
  findDeadLetter(id: string): Promise<FiledDeadLetter>;
  getDeadLetter(id: string): Promise<DeadLetterDetail>;
  /** Sends it as it was read to the processor, removes it, and waits for what becomes of it. */
  replayDeadLetter(letter: FiledDeadLetter, waitMs?: number): Promise<Replayed>;
  /** Removes it as it was read: what was filed again under its id since stays. */
  purgeDeadLetter(letter: FiledDeadLetter): Promise<void>;
}
