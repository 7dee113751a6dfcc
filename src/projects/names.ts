import type { KV, KvEntry } from '@nats-io/kv';
import { isConflict } from './bucket.ts';
import { claimText, isProjectId, type Project, parseEntry } from './project.ts';

/** A request that the registry's state forbids; the message is one sentence for the user. */
export class RegistryError extends Error {
  override name = 'RegistryError';
}

/** There is no project, or no heartbeat token, of this name. */
export class UnknownNameError extends RegistryError {
  override name = 'UnknownNameError';
}

/** The record is not the one that was to be changed: another revision, or there at all. */
export class RevisionError extends RegistryError {
  override name = 'RevisionError';
}

/** A change that the present state forbids. */
export class ConflictError extends RegistryError {
  override name = 'ConflictError';
}

export class NameTakenError extends ConflictError {
  override name = 'NameTakenError';
  readonly taken: string;
  constructor(taken: string) {
    super(`${taken} is already in use, as a project's id or alias.`);
    this.taken = taken;
  }
}

const UNREADABLE_NAMED_MAX = 10;

/** Records of the registry cannot be read: a later build wrote them, or another program. */
export class UnreadableError extends RegistryError {
  override name = 'UnreadableError';
  /** The projects whose records can be read. */
  readonly readable: readonly StoredProject[];

  constructor(unreadable: readonly { key: string; reason: string }[], readable: readonly StoredProject[]) {
    const named = unreadable.slice(0, UNREADABLE_NAMED_MAX).map(({ key, reason }) => `${key} (${reason})`);
    const more = unreadable.length - named.length;
    super(`Records of projects cannot be read: ${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}.`);
    this.readable = readable;
  }
}

export type StoredProject = { project: Project; revision: number };

/**
 * Every name of a project is one key of the bucket: its id holds the record, its alias a claim that
 * names the id. So ids and aliases share one space, and the command that creates the key first has
 * the name, however many run at once. No lock is held.
 *
 * A project with an alias takes two writes: the claim first, then the record. A crash between them
 * leaves a claim without a record that carries the alias. Such a claim resolves to nothing
 * (project-view.ts), and another command may take it over by compare-and-set once it has been
 * unused for `claimMs`. A command that was merely slow finds its claim gone after writing the
 * record, and takes the record back. Removal goes the other way round: record first, claim second.
 * A changed alias claims the new name, writes the record, and releases the old name.
 *
 * A command that releases or takes over a claim looks at the record first, and both write by
 * compare-and-set. The record may get the alias between its look and its write. So the claim is
 * written again before the record and after it, which moves its revision: that command's write
 * fails, or ours finds the claim gone.
 */
export class Names {
  readonly #kv: KV;
  readonly #claimMs: number;

  constructor(kv: KV, claimMs: number) {
    this.#kv = kv;
    this.#claimMs = claimMs;
  }

  /** Makes `alias` lead to `id`. @throws NameTakenError */
  async claim(alias: string, id: string): Promise<void> {
    // It may be ours from an earlier attempt, or a twin's that creates the same project right now.
    if (!(await this.#renew(alias, id))) await this.take(alias, claimText(id));
  }

  /**
   * Creates a key, or takes it over from a claim without a project.
   * @throws NameTakenError
   */
  async take(name: string, text: string): Promise<number> {
    try {
      return await this.#kv.create(name, text);
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
    const abandoned = await this.#abandonedClaim(name);
    if (abandoned === undefined) throw new NameTakenError(name);
    try {
      return await this.#kv.update(name, text, abandoned);
    } catch (error) {
      throw isConflict(error) ? new NameTakenError(name) : error;
    }
  }

  /**
   * Whether the project's alias (if it has one) still leads to it; asked after its record was
   * written.
   */
  async holds(project: Project): Promise<boolean> {
    return project.alias === undefined || (await this.#renew(project.alias, project.id));
  }

  /** Releases an alias, unless the project carries it (again) or another project has it by now. */
  async release(alias: string | undefined, id: string): Promise<void> {
    if (alias === undefined) return;
    const entry = await this.read(alias);
    const parsed = entry && parseEntry(alias, entry.string());
    if (!entry || parsed?.kind !== 'alias' || parsed.id !== id) return;
    if ((await this.record(id))?.project.alias === alias) return;
    try {
      await this.#kv.delete(alias, { previousSeq: entry.revision });
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
  }

  /** Finds by id or alias. @throws RegistryError when there is none, or its record is spoiled */
  async find(idOrAlias: string): Promise<StoredProject> {
    // Other text that a user types may not even be a legal key.
    const id = isProjectId(idOrAlias) ? ((await this.#claimant(idOrAlias)) ?? idOrAlias) : undefined;
    const found = id === undefined ? undefined : await this.record(id);
    if (found?.project.id === idOrAlias || found?.project.alias === idOrAlias) return found;
    throw new UnknownNameError(`There is no project ${idOrAlias}.`);
  }

  /** @throws RegistryError when the record is spoiled */
  async record(id: string): Promise<StoredProject | undefined> {
    const entry = await this.read(id);
    const parsed = entry && parseEntry(id, entry.string());
    if (parsed?.kind === 'broken')
      throw new RegistryError(`The record of project ${id} cannot be read: ${parsed.reason}.`);
    return entry && parsed?.kind === 'project'
      ? { project: parsed.project, revision: entry.revision }
      : undefined;
  }

  async read(key: string): Promise<KvEntry | undefined> {
    const entry = await this.#kv.get(key);
    return entry && entry.operation === 'PUT' ? entry : undefined;
  }

  /** Moves the revision of a claim. @returns whether it leads to `id` */
  async #renew(alias: string, id: string): Promise<boolean> {
    const entry = await this.read(alias);
    const parsed = entry && parseEntry(alias, entry.string());
    if (!entry || parsed?.kind !== 'alias' || parsed.id !== id) return false;
    try {
      await this.#kv.update(alias, claimText(id), entry.revision);
      return true;
    } catch (error) {
      if (!isConflict(error)) throw error;
      return (await this.#claimant(alias)) === id; // moved by a twin; or it is released, or taken
    }
  }

  /** The id that an alias was claimed for. */
  async #claimant(alias: string): Promise<string | undefined> {
    const entry = await this.read(alias);
    const parsed = entry && parseEntry(alias, entry.string());
    return parsed?.kind === 'alias' ? parsed.id : undefined;
  }

  /**
   * The revision of a claim whose project does not carry it, now and a while later; undefined when
   * the name is in use.
   */
  async #abandonedClaim(name: string): Promise<number | undefined> {
    const revision = await this.#emptyClaim(name);
    if (revision === undefined) return undefined;
    await new Promise((resolve) => setTimeout(resolve, this.#claimMs));
    return (await this.#emptyClaim(name)) === revision ? revision : undefined;
  }

  async #emptyClaim(name: string): Promise<number | undefined> {
    const entry = await this.read(name);
    const parsed = entry && parseEntry(name, entry.string());
    if (!entry || parsed?.kind !== 'alias') return undefined;
    return (await this.record(parsed.id))?.project.alias === name ? undefined : entry.revision;
  }
}
