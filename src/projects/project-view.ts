/**
 * The projects of one worker by every name they have. Pure: fed by a mirror, asked by the request
 * path.
 */
import type { Log } from '../lib/log.ts';
import type { BucketEntry } from './bucket-watch.ts';
import { parseEntry } from './entry.ts';
import { type PlanLimits, type Project, rateLimitOf } from './project.ts';
import { ProjectState } from './project-state.ts';

export type ProjectViewOptions = { planLimits: PlanLimits; log: Log };

/**
 * The bucket has one key per name: a record under the project's id, a claim that names the id under
 * an alias. An alias resolves only while claim and record agree. So a claim left behind by a crash,
 * or a record whose claim was lost, leads to no project rather than to the wrong one.
 */
export class ProjectView {
  readonly #planLimits: PlanLimits;
  readonly #log: Log;
  #createdMs = 0;
  /** What a look-up reads: ids and the aliases in force. */
  #byName = new Map<string, ProjectState>();
  #byId = new Map<string, ProjectState>();
  /** Alias → id, as claimed. */
  #claims = new Map<string, string>();

  constructor({ planLimits, log }: ProjectViewOptions) {
    this.#planLimits = planLimits;
    this.#log = log;
  }

  find(idOrAlias: string): ProjectState | undefined {
    return this.#byName.get(idOrAlias);
  }

  replace(entries: readonly BucketEntry[], createdMs: number): void {
    const before = this.#byId;
    this.#createdMs = createdMs;
    this.#byName = new Map();
    this.#byId = new Map();
    this.#claims = new Map();
    for (const entry of entries) this.#put(entry, before.get(entry.key));
    for (const [id, known] of before) if (!this.#byId.has(id)) known.markDeleted();
  }

  apply(entry: BucketEntry): void {
    const known = this.#byId.get(entry.key);
    this.#remove(entry.key);
    this.#put(entry, known);
    if (entry.text === undefined) known?.markDeleted();
  }

  #put(entry: BucketEntry, known: ProjectState | undefined): void {
    const parsed = entry.text === undefined ? undefined : parseEntry(entry.key, entry.text);
    if (!parsed) return;
    if (parsed.kind === 'broken') {
      this.#log.error({ key: entry.key, reason: parsed.reason }, 'projects: record skipped');
    } else if (parsed.kind === 'alias') {
      this.#claims.set(entry.key, parsed.id);
      this.#link(entry.key, this.#byId.get(parsed.id));
    } else {
      const state = this.#updated(parsed.project, entry.revision, known);
      this.#byId.set(entry.key, state);
      this.#byName.set(entry.key, state);
      this.#link(state.record.alias, state);
    }
  }

  /**
   * The bucket's creation time (Unix ms) plus the key-value revision is a revision that keeps
   * growing when a bucket is deleted and made again, whose own revisions begin at 1.
   */
  #updated(record: Project, sequence: number, known: ProjectState | undefined): ProjectState {
    const revision = this.#createdMs + sequence;
    const limit = rateLimitOf(record, this.#planLimits);
    if (!known) return new ProjectState(record, revision, limit);
    if (known.revision !== revision) known.update(record, revision, limit);
    return known;
  }

  #link(alias: string | undefined, state: ProjectState | undefined): void {
    if (alias === undefined || state === undefined) return;
    if (state.record.alias === alias && this.#claims.get(alias) === state.id) this.#byName.set(alias, state);
  }

  /** Forgets a key, with the aliases that led to it. */
  #remove(key: string): void {
    const alias = this.#byId.get(key)?.record.alias;
    if (alias !== undefined && this.#claims.get(alias) === key) this.#byName.delete(alias);
    this.#byName.delete(key);
    this.#byId.delete(key);
    this.#claims.delete(key);
  }
}
