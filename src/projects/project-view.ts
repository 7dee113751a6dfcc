/**
 * Finds a worker's projects by any of their names. Pure: a BucketMirror puts records in, and
 * requests look projects up.
 */
import type { Log } from '../lib/log.ts';
import { BucketCopy, type CopiedEntry } from './bucket-copy.ts';
import { type ParsedEntry, type PlanLimits, type Project, parseEntry, rateLimitOf } from './project.ts';
import { ProjectState } from './project-state.ts';

export type ProjectViewOptions = { planLimits: PlanLimits; log: Log };

/** Names that {@link ProjectView.sweep} examines between two pauses. */
const SWEPT_AT_ONCE = 1_000;

/**
 * The worker's projects. The bucket has one key per name: the id of a project holds its record, an
 * alias holds a claim that names the id. An alias is valid only while claim and record agree. So
 * after a crash between the writes of claim and record, it leads to no project rather than to a
 * wrong one.
 *
 * Until its first request a project is only the text of its record. Then it becomes a ProjectState,
 * which takes up changes of the record until {@link sweep} finds it unused.
 */
export class ProjectView {
  /** The text of all entries, which a BucketMirror puts in. */
  readonly copy = new BucketCopy((entry) => this.#changed(entry));
  readonly #options: ProjectViewOptions;
  /** Projects that had requests, by the ids and aliases in these requests. */
  readonly #active = new Map<string, ProjectState>();
  /** Keys whose text could not be read. Each was logged once. */
  readonly #broken = new Set<string>();

  constructor(options: ProjectViewOptions) {
    this.#options = options;
  }

  find(idOrAlias: string): ProjectState | undefined {
    const state = this.#active.get(idOrAlias) ?? this.#activate(idOrAlias);
    if (state) state.wasLookedUp = true;
    return state;
  }

  /**
   * Drops the ProjectState of each project that was not looked up since the last sweep, unless a
   * stage keeps state of it. The next request makes a new one. Yields often, so that the caller can
   * pause.
   */
  *sweep(): Generator<void> {
    let looked = 0;
    for (const [name, state] of this.#active) {
      if (++looked % SWEPT_AT_ONCE === 0) yield;
      if (name !== state.id) continue; // an alias is dropped with its id
      if (!state.wasLookedUp && !state.mustBeKept) this.#forget(state);
      state.wasLookedUp = false;
    }
  }

  #activate(name: string): ProjectState | undefined {
    const found = this.#read(name);
    if (found?.kind === 'project') return this.#keep(found);
    if (found?.kind !== 'alias') return undefined;
    let state = this.#active.get(found.id);
    if (!state) {
      const record = this.#read(found.id);
      state = record?.kind === 'project' ? this.#keep(record) : undefined;
    }
    if (state?.record.alias !== name) return undefined;
    this.#active.set(name, state);
    return state;
  }

  #read(key: string): (ParsedEntry & { revision: number }) | undefined {
    const entry = this.#broken.has(key) ? undefined : this.copy.get(key);
    if (!entry) return undefined;
    const parsed = parseEntry(key, entry.text);
    if (parsed.kind === 'broken') {
      this.#broken.add(key);
      this.#options.log.error({ key, reason: parsed.reason }, 'projects: record skipped');
    }
    return { ...parsed, revision: entry.revision };
  }

  #keep({ project, revision }: { project: Project; revision: number }): ProjectState {
    const state = new ProjectState(project, revision, rateLimitOf(project, this.#options.planLimits));
    this.#active.set(state.id, state);
    return state;
  }

  #forget({ id, record }: ProjectState): void {
    this.#active.delete(id);
    if (record.alias !== undefined) this.#active.delete(record.alias);
  }

  /** Takes a changed entry over into the ProjectState, if there is one. */
  #changed({ key, text, revision }: CopiedEntry): void {
    this.#broken.delete(key);
    const state = this.#active.get(key);
    if (!state) return;
    if (state.id !== key) {
      this.#active.delete(key); // a claim: the next request reads where it leads
      return;
    }
    this.#forget(state);
    const parsed = text === undefined ? undefined : parseEntry(key, text);
    if (parsed?.kind === 'project') {
      state.update(parsed.project, revision, rateLimitOf(parsed.project, this.#options.planLimits));
      this.#active.set(key, state);
    } else if (!parsed) state.markDeleted();
  }
}
