/**
 * The projects of one worker by every name they have. Pure: fed by a mirror, asked by the request
 * path.
 */
import type { Log } from '../lib/log.ts';
import type { BucketEntry } from './bucket-watch.ts';
import { parseEntry } from './entry.ts';
import { type PlanLimits, type Project, rateLimitOf } from './project.ts';

/** A project's record as it came. */
export type Registration = Readonly<{
  project: Project;
  /**
   * Grows with every change of the record: the bucket's creation time (Unix ms) plus the key-value
   * revision. A bucket that is made again begins at revision 1; the addition keeps the sum growing,
   * so that the limiter can let the newest win.
   */
  revision: number;
  /** Requests a minute in force, undefined for none. */
  rateLimit: number | undefined;
}>;

/** What a view makes of a registration: the same object until the record changes. */
export type Registered = Pick<Registration, 'project' | 'revision'>;

export type ProjectViewOptions<Of> = {
  planLimits: PlanLimits;
  log: Log;
  register: (registration: Registration) => Of;
};

/**
 * The bucket has one key per name: a record under the project's id, a claim that names the id under
 * an alias. An alias resolves only while claim and record agree. So a claim left behind by a crash,
 * or a record whose claim was lost, leads to no project rather than to the wrong one.
 */
export class ProjectView<Of extends Registered> {
  readonly #planLimits: PlanLimits;
  readonly #log: Log;
  readonly #register: (registration: Registration) => Of;
  #createdMs = 0;
  /** What a look-up reads: ids and the aliases in force. */
  #byName = new Map<string, Of>();
  #byId = new Map<string, Of>();
  /** Alias → id, as claimed. */
  #claims = new Map<string, string>();

  /** @param register the object to which the look-up leads, without another object between */
  constructor({ planLimits, log, register }: ProjectViewOptions<Of>) {
    this.#planLimits = planLimits;
    this.#log = log;
    this.#register = register;
  }

  find(idOrAlias: string): Of | undefined {
    return this.#byName.get(idOrAlias);
  }

  replace(entries: readonly BucketEntry[], createdMs: number): void {
    const before = this.#createdMs === createdMs ? this.#byId : new Map<string, Of>();
    this.#createdMs = createdMs;
    this.#byName = new Map();
    this.#byId = new Map();
    this.#claims = new Map();
    for (const entry of entries) this.#put(entry, before.get(entry.key));
  }

  apply(entry: BucketEntry): void {
    const known = this.#byId.get(entry.key);
    this.#remove(entry.key);
    this.#put(entry, known);
  }

  #put(entry: BucketEntry, known: Of | undefined): void {
    const parsed = entry.text === undefined ? undefined : parseEntry(entry.key, entry.text);
    if (!parsed) return;
    if (parsed.kind === 'broken') {
      this.#log.error({ key: entry.key, reason: parsed.reason }, 'registry: record skipped');
    } else if (parsed.kind === 'alias') {
      this.#claims.set(entry.key, parsed.id);
      this.#link(entry.key, this.#byId.get(parsed.id));
    } else {
      const registered = this.#registered(parsed.project, entry.revision, known);
      this.#byId.set(entry.key, registered);
      this.#byName.set(entry.key, registered);
      this.#link(registered.project.alias, registered);
    }
  }

  #registered(project: Project, sequence: number, known: Of | undefined): Of {
    const revision = this.#createdMs + sequence;
    if (known?.revision === revision) return known;
    return this.#register({ project, revision, rateLimit: rateLimitOf(project, this.#planLimits) });
  }

  #link(alias: string | undefined, registered: Of | undefined): void {
    if (alias === undefined || registered === undefined) return;
    const agreed = registered.project.alias === alias && this.#claims.get(alias) === registered.project.id;
    if (agreed) this.#byName.set(alias, registered);
  }

  /** Forgets a key, with the aliases that led to it. */
  #remove(key: string): void {
    const alias = this.#byId.get(key)?.project.alias;
    if (alias !== undefined && this.#claims.get(alias) === key) this.#byName.delete(alias);
    this.#byName.delete(key);
    this.#byId.delete(key);
    this.#claims.delete(key);
  }
}
