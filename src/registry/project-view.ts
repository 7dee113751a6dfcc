/** The projects of one worker by every name they have. Pure: fed by a mirror, asked by the request path. */
import type { Log } from '../lib/log.ts';
import type { BucketEntry } from './bucket-watch.ts';
import { parseEntry } from './entry.ts';
import { type PlanLimits, type Project, rateLimitOf } from './project.ts';

/** The same object until the record changes. */
export type RegisteredProject = Readonly<{
  project: Project;
  /**
   * Grows with every change of the record: the bucket's creation time (Unix ms) plus the key-value revision. The addition keeps
   * it growing when a bucket is deleted and made again, whose own revisions begin at 1: the limiter lets the newest win.
   */
  revision: number;
  /** Requests a minute in force, undefined for none. */
  rateLimit: number | undefined;
}> & {
  /** What the request path made of this record, kept here for it: one look-up less than by a map of its own. */
  compiled?: unknown;
};

/**
 * The bucket has one key per name. A record stands under the project's id; under an alias stands a claim that names the id. An
 * alias resolves only while claim and record agree, so that a claim left behind by a crash, or a record whose claim was lost,
 * leads nowhere rather than to the wrong project.
 */
export class ProjectView {
  readonly #planLimits: PlanLimits;
  readonly #log: Log;
  #createdMs = 0;
  /** What a look-up reads: ids and the aliases in force. */
  #byName = new Map<string, RegisteredProject>();
  #byId = new Map<string, RegisteredProject>();
  /** Alias → id, as claimed. */
  #claims = new Map<string, string>();

  constructor(planLimits: PlanLimits, log: Log) {
    this.#planLimits = planLimits;
    this.#log = log;
  }

  find(idOrAlias: string): RegisteredProject | undefined {
    return this.#byName.get(idOrAlias);
  }

  replace(entries: readonly BucketEntry[], createdMs: number): void {
    const before = this.#createdMs === createdMs ? this.#byId : new Map<string, RegisteredProject>();
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

  #put(entry: BucketEntry, known: RegisteredProject | undefined): void {
    const parsed = entry.text === undefined ? undefined : parseEntry(entry.key, entry.text);
    if (!parsed) return;
    if (parsed.kind === 'broken') {
      this.#log.error({ key: entry.key, reason: parsed.reason }, 'registry: record skipped');
    } else if (parsed.kind === 'alias') {
      this.#claims.set(entry.key, parsed.id);
      this.#link(entry.key, this.#byId.get(parsed.id));
    } else {
      const registered = this.#register(parsed.project, entry.revision, known);
      this.#byId.set(entry.key, registered);
      this.#byName.set(entry.key, registered);
      this.#link(registered.project.alias, registered);
    }
  }

  #register(project: Project, sequence: number, known: RegisteredProject | undefined): RegisteredProject {
    const revision = this.#createdMs + sequence;
    if (known?.revision === revision) return known;
    return { project, revision, rateLimit: rateLimitOf(project, this.#planLimits), compiled: undefined };
  }

  #link(alias: string | undefined, registered: RegisteredProject | undefined): void {
    if (alias === undefined || registered === undefined) return;
    const agreed = registered.project.alias === alias && this.#claims.get(alias) === registered.project.id;
    if (agreed) this.#byName.set(alias, registered);
  }

  /** Forgets what stood under a key, with the aliases that led there. */
  #remove(key: string): void {
    const alias = this.#byId.get(key)?.project.alias;
    if (alias !== undefined && this.#claims.get(alias) === key) this.#byName.delete(alias);
    this.#byName.delete(key);
    this.#byId.delete(key);
    this.#claims.delete(key);
  }
}
