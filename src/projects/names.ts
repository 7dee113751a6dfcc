import type { KV, KvEntry } from '@nats-io/kv';
import { isConflict } from './bucket.ts';
import { claimText, isProjectId, type Project, parseEntry } from './project.ts';

/** A request that the state of the registry forbids. The message is one sentence for the user. */
export class RegistryError extends Error {
  override name = 'RegistryError';
}

/** No project, or no heartbeat token, has this name. */
export class UnknownNameError extends RegistryError {
  override name = 'UnknownNameError';
}

/** The record is not the one that the caller meant: it has another revision, or is missing. */
export class RevisionError extends RegistryError {
  override name = 'RevisionError';
}

/** A change that the present state of the registry forbids. */
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

/** Some records of the registry cannot be read: a later build or another program wrote them. */
export class UnreadableError extends RegistryError {
  override name = 'UnreadableError';
  /** Projects whose records can be read. */
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
 * Every name of a project is one key of the bucket: the key of its id holds the record, and the key
 * of its alias holds a claim that names the id. So ids and aliases share one name space, and the
 * command that creates a key first has the name.
 *
 * A project with an alias takes two writes: first the claim, then the record. A crash in between
 * leaves a claim whose alias no record carries. Such a claim leads to no project (project-view.ts),
 * and after `claimMs` another command may take it over by compare-and-set. If the first command was
 * only slow, it finds its claim gone after it wrote the record, and takes the record back. A
 * removal deletes first the record, then the claim. A change of alias claims the new name, writes
 * the record, and releases the old name.
 *
 * Command A may see no record with an alias, and take over or release its claim, while command B
 * writes such a record. So B writes the claim again before and after the record, which changes the
 * claim's revision. As both compare revisions, either A's write fails, or B finds its claim gone.
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
    // The claim may exist already: from an earlier attempt of this command, or from another command
    // that is creating the same project.
    if (!(await this.#renew(alias, id))) await this.take(alias, claimText(id));
  }

  /**
   * Creates a key, or takes it over from an abandoned claim.
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
   * Whether the project's alias, if it has one, still leads to the project. Called after the
   * project's record was written. Writes the claim again, so that a command that is just taking it
   * over fails.
   */
  async holds(project: Project): Promise<boolean> {
    return project.alias === undefined || (await this.#renew(project.alias, project.id));
  }

  /** Releases an alias, unless the project carries it again or another project has it by now. */
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

  /**
   * Finds a project by id or alias.
   * @throws RegistryError when there is none, or its record cannot be read
   */
  async find(idOrAlias: string): Promise<StoredProject> {
    // Text that is no id or alias is not looked up: it may not even be a legal key of the bucket.
    const id = isProjectId(idOrAlias) ? ((await this.#claimant(idOrAlias)) ?? idOrAlias) : undefined;
    const found = id === undefined ? undefined : await this.record(id);
    if (found?.project.id === idOrAlias || found?.project.alias === idOrAlias) return found;
    throw new UnknownNameError(`There is no project ${idOrAlias}.`);
  }

  /**
   * Reads the record of a project; undefined when the id has none.
   * @throws RegistryError when the record cannot be read
   */
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

  /**
   * Writes a claim again, which changes its revision.
   * @returns whether the claim leads to `id`
   */
  async #renew(alias: string, id: string): Promise<boolean> {
    const entry = await this.read(alias);
    const parsed = entry && parseEntry(alias, entry.string());
    if (!entry || parsed?.kind !== 'alias' || parsed.id !== id) return false;
    try {
      await this.#kv.update(alias, claimText(id), entry.revision);
      return true;
    } catch (error) {
      if (!isConflict(error)) throw error;
      return (await this.#claimant(alias)) === id; // another command changed the claim
    }
  }

  /** Returns the id that the claim on this alias names; undefined when there is no claim. */
  async #claimant(alias: string): Promise<string | undefined> {
    const entry = await this.read(alias);
    const parsed = entry && parseEntry(alias, entry.string());
    return parsed?.kind === 'alias' ? parsed.id : undefined;
  }

  /**
   * The revision of the claim on `name` if no project carries this alias, now and `claimMs` later;
   * otherwise undefined.
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
