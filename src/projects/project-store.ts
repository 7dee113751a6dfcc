/** Changes the registry, for commands. names.ts explains how names stay unique. */
import { randomBytes, randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { KV } from '@nats-io/kv';
import { systemClock } from '../lib/clock.ts';
import type { NatsLink } from '../stream/nats.ts';
import { PROJECTS_BUCKET } from '../stream/topology.ts';
import { changeBetween, fingerprint } from './audit-change.ts';
import { AuditLog, operatorName, readRemovedKeys } from './audit-log.ts';
import { type BucketState, bucketState, isConflict, openBucket, registryManager } from './bucket.ts';
import { type BucketAccess, readBucket } from './bucket-mirror.ts';
import { rotateKeys } from './keys.ts';
import {
  ConflictError,
  Names,
  NameTakenError,
  RevisionError,
  type StoredProject,
  UnknownNameError,
  UnreadableError,
} from './names.ts';
import { isNumericId, keysOf, type Project, parseEntry, projectText } from './project.ts';

/** A claim on an alias (names.ts) that no project carries may be taken over after this time. */
const CLAIM_MS = 2_000;
/** Most attempts at a compare-and-set write, and at minting an id that is free. */
const WRITE_TRIES_MAX = 12;
/**
 * Longest random pause after the first conflict of a write; after the n-th conflict, n times as
 * long.
 */
const CONFLICT_MS = 20;

export type NewProject = Omit<Project, 'id' | 'key'> & { id?: string | undefined; key?: string | undefined };

/** Mints an id of nine or ten digits, which the integers of all SDKs can hold. */
const mintNumericId = (): string => `${randomInt(100_000_000, 2_147_483_647)}`;
export const mintKey = (): string => randomBytes(16).toString('hex');

/** Puts short ids first, so that numeric ids are in numeric order. */
export function compareIds(one: string, other: string): number {
  if (one === other) return 0;
  return one.length - other.length || (one < other ? -1 : 1);
}

/** How long a list is kept that nobody asks for. */
const LIST_KEPT_MS = 60_000;

/**
 * The list of all projects as it was read last. Requests share it, because to read 50,000 records
 * takes 1.5 s of CPU time. The list takes a kilobyte a project, so it is forgotten when nobody asks
 * for it.
 */
export class KeptList {
  #list: Promise<readonly StoredProject[]> | undefined;
  /** State of the bucket before the list was read. */
  #state: BucketState | undefined;
  #forgetting: NodeJS.Timeout | undefined;

  /**
   * Returns the list at this state of the bucket. Calls `read` if no list of this state is kept.
   */
  at(state: BucketState, read: () => Promise<readonly StoredProject[]>): Promise<readonly StoredProject[]> {
    if (!this.#list || !isDeepStrictEqual(state, this.#state)) {
      const list = read();
      this.#list = list;
      this.#state = state;
      list.catch(() => this.#list === list && this.forget());
    }
    clearTimeout(this.#forgetting);
    this.#forgetting = setTimeout(() => this.forget(), LIST_KEPT_MS).unref();
    return this.#list;
  }

  forget(): void {
    this.#list = undefined;
  }
}

/**
 * `by`: name of the person or program that makes the changes; by default this process's user.
 * `claimMs`: replaces CLAIM_MS in tests.
 */
type StoreOptions = { by?: string; claimMs?: number };

/**
 * Creates, changes, lists and deletes projects. Every change is recorded in the audit.
 * UnrecordedError says that a change was made but not recorded.
 */
export class ProjectStore {
  readonly #access: BucketAccess;
  readonly #kv: KV;
  readonly #names: Names;
  readonly #audit: AuditLog;

  private constructor({ access, kv }: { access: BucketAccess; kv: KV }, audit: AuditLog, claimMs: number) {
    this.#access = access;
    this.#kv = kv;
    this.#audit = audit;
    this.#names = new Names(kv, claimMs);
  }

  /** Opens the store without sending a request. */
  static async open(link: NatsLink, options: StoreOptions = {}): Promise<ProjectStore> {
    const { by = operatorName(), claimMs = CLAIM_MS } = options;
    const kv = await openBucket(link, PROJECTS_BUCKET);
    const access = { link, bucket: PROJECTS_BUCKET, manager: await registryManager(link) };
    return new ProjectStore({ access, kv }, new AuditLog(link, by), claimMs);
  }

  /**
   * Creates a project. Mints what is not given: a numeric id, a key, and a numeric alias for a CUID
   * project.
   * @throws NameTakenError when the id or the alias is in use
   */
  async create(wanted: NewProject): Promise<Project> {
    await this.#audit.ready();
    const project = await this.#create(wanted);
    await this.#audit.record({ project: project.id }, { after: project });
    return project;
  }

  async #create(wanted: NewProject): Promise<Project> {
    for (let tries = 1; ; tries++) {
      const id = wanted.id ?? mintNumericId();
      const alias = wanted.alias ?? (isNumericId(id) ? undefined : mintNumericId());
      const project = { ...wanted, id, key: wanted.key ?? mintKey(), ...(alias !== undefined && { alias }) };
      if (wanted.key !== undefined) await this.#refuseRemoved(project);
      try {
        await this.#insert(project);
        return project;
      } catch (error) {
        if (!(error instanceof NameTakenError) || tries === WRITE_TRIES_MAX) throw error;
        if (error.taken === wanted.id || error.taken === wanted.alias) throw error;
      }
    }
  }

  /**
   * Finds a project by id or alias.
   * @throws RegistryError when there is none, or its record cannot be read
   */
  async get(idOrAlias: string): Promise<Project> {
    return (await this.find(idOrAlias)).project;
  }

  /** Does the same as {@link get}, and returns the record's revision as well. */
  find(idOrAlias: string): Promise<StoredProject> {
    return this.#names.find(idOrAlias);
  }

  /**
   * Lists all projects by id: short ids first, so that numeric ids are in numeric order.
   * @throws UnreadableError when some records cannot be read
   */
  async list(): Promise<Project[]> {
    return (await this.listStored()).map(({ project }) => project);
  }

  /**
   * Does the same as {@link list}, and returns the revision of each record as well.
   * @param kept a list that other stores have read; it is read again only when the bucket has
   * changed
   */
  async listStored(kept?: KeptList): Promise<readonly StoredProject[]> {
    if (!kept) return this.#readAll();
    return kept.at(await bucketState(this.#access.manager, PROJECTS_BUCKET), () => this.#readAll());
  }

  async #readAll(): Promise<StoredProject[]> {
    const entries = await readBucket(this.#access, (key, text, revision) => ({
      key,
      revision,
      ...parseEntry(key, text),
    }));
    const projects = entries.filter((entry) => entry.kind === 'project');
    projects.sort((one, other) => compareIds(one.project.id, other.project.id));
    const unreadable = entries.filter((entry) => entry.kind === 'broken');
    if (unreadable.length > 0) throw new UnreadableError(unreadable, projects);
    return projects;
  }

  /**
   * Changes a record by compare-and-set. `change` is called again when another command wrote the
   * record meanwhile. `change` must not change the id. A record that does not change is not
   * written.
   * @param revision which the record must have; undefined: any
   * @throws RegistryError when there is no such project, it has another revision or the new alias
   * is in use; what `change` throws
   */
  async set(idOrAlias: string, change: (project: Project) => Project, revision?: number): Promise<Project> {
    await this.#audit.ready();
    const { before, after } = await this.#retry(idOrAlias, () => this.#set(idOrAlias, change, revision));
    await this.#audit.record({ project: after.id }, { before, after });
    return after;
  }

  async #set(
    idOrAlias: string,
    change: (project: Project) => Project,
    wanted: number | undefined,
  ): Promise<{ before: Project; after: Project }> {
    const { project: before, revision } = await this.#find(idOrAlias, wanted);
    const after = change(before);
    if (!changeBetween(before, after)) return { before, after };
    await this.#refuseRemoved(after, before);
    const isRenamed = after.alias !== before.alias;
    if (isRenamed && after.alias !== undefined) await this.#names.claim(after.alias, after.id);
    const written = await this.#kv.update(after.id, projectText(after), revision);
    if (isRenamed && !(await this.#names.holds(after))) {
      await this.#kv.update(before.id, projectText(before), written);
      throw new NameTakenError(`${after.alias}`);
    }
    if (isRenamed) await this.#names.release(before.alias, before.id);
    return { before, after };
  }

  /**
   * Gives the project a new key.
   * @param overlapMs how long the old keys stay valid; undefined: they are removed at once
   */
  rotateKey(idOrAlias: string, overlapMs?: number, revision?: number): Promise<Project> {
    const fresh = mintKey();
    const change = (project: Project): Project =>
      rotateKeys(project, fresh, { now: systemClock.now(), overlapMs });
    return this.set(idOrAlias, change, revision);
  }

  /**
   * Deletes a project.
   * @param revision as in {@link set}
   * @returns the record as it was
   */
  async delete(idOrAlias: string, revision?: number): Promise<Project> {
    await this.#audit.ready();
    const before = await this.#retry(idOrAlias, async () => {
      const { project, revision: found } = await this.#find(idOrAlias, revision);
      await this.#kv.delete(project.id, { previousSeq: found });
      await this.#names.release(project.alias, project.id);
      return project;
    });
    await this.#audit.record({ project: before.id }, { before });
    return before;
  }

  async #find(idOrAlias: string, wanted: number | undefined): Promise<StoredProject> {
    const found = await this.find(idOrAlias).catch((error: unknown) => {
      if (wanted === undefined || !(error instanceof UnknownNameError)) throw error;
      throw new RevisionError(error.message);
    });
    if (wanted !== undefined && found.revision !== wanted)
      throw new RevisionError(`Project ${idOrAlias} has revision ${found.revision}, not ${wanted}.`);
    return found;
  }

  /**
   * Refuses to add a key that was once removed from the project, according to the audit. Such a key
   * has often leaked, so neither an older file nor a repeated command may bring it back.
   * @throws ConflictError
   */
  async #refuseRemoved(after: Project, before?: Project): Promise<void> {
    const there = before ? keysOf(before).map(({ key }) => key) : [];
    const added = keysOf(after).filter(({ key }) => !there.includes(key));
    if (added.length === 0) return;
    const removed = await readRemovedKeys(this.#access.link, after.id);
    const revoked = added.map(({ key }) => fingerprint(key)).find((print) => removed.has(print));
    if (revoked !== undefined)
      throw new ConflictError(
        `Key ${revoked} was removed from project ${after.id} and is not taken back: add a new one.`,
      );
  }

  async #insert(project: Project): Promise<void> {
    if (project.alias !== undefined) await this.#names.claim(project.alias, project.id);
    try {
      const revision = await this.#names.take(project.id, projectText(project));
      if (await this.#names.holds(project)) return;
      await this.#kv.delete(project.id, { previousSeq: revision });
      throw new NameTakenError(`${project.alias}`);
    } catch (error) {
      await this.#names.release(project.alias, project.id);
      throw error;
    }
  }

  /**
   * Repeats an attempt when another command wrote the same record meanwhile.
   * @throws ConflictError when that happened in every try
   */
  async #retry<T>(idOrAlias: string, attempt: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      try {
        return await attempt();
      } catch (error) {
        if (!isConflict(error)) throw error;
        if (tries === WRITE_TRIES_MAX)
          throw new ConflictError(`Others change project ${idOrAlias} all the time; try again.`);
        await sleep(Math.random() * CONFLICT_MS * tries);
      }
    }
  }
}
