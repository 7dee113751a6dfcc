/**
 * The projects of one worker by every name they have. Pure: fed by a mirror, asked by the request
 * path.
 */
import type { Log } from '../lib/log.ts';
import { BucketCopy, type CopiedEntry } from './bucket-copy.ts';
import { type ParsedEntry, type PlanLimits, type Project, parseEntry, rateLimitOf } from './project.ts';
import { ProjectState } from './project-state.ts';

export type ProjectViewOptions = { planLimits: PlanLimits; log: Log };

/** Names that {@link ProjectView.sweep} looks at between two pauses. */
const SWEPT_AT_ONCE = 1_000;

/**
 * The bucket has one key per name: a record under the project's id, a claim that names the id under
 * an alias. An alias resolves only while claim and record agree. So a claim left behind by a crash,
 * or a record whose claim was lost, leads to no project rather than to the wrong one.
 *
 * A project is the text of its record until its first request. Then it becomes a ProjectState,
 * which changes of the record go into, until {@link sweep} finds it unused.
 */
export class ProjectView {
  /** The bucket, as text: the mirror's side. */
  readonly copy = new BucketCopy((entry) => this.#changed(entry));
  readonly #options: ProjectViewOptions;
  /** Projects by the ids and aliases that requests asked for. */
  readonly #active = new Map<string, ProjectState>();
  /** Keys whose text cannot be read, which was logged. */
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
   * Makes each project idle that was not looked up since the last sweep, unless a stage keeps state
   * of it. An idle project has no ProjectState until a request asks for it. Yields often, so that
   * the caller can pause.
   */
  *sweep(): Generator<void> {
    let looked = 0;
    for (const [name, state] of this.#active) {
      if (++looked % SWEPT_AT_ONCE === 0) yield;
      if (name !== state.id) continue; // an alias goes with its id
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

  /** A project that is idle is read when a request asks for it. */
  #changed({ key, text, revision }: CopiedEntry): void {
    this.#broken.delete(key);
    const state = this.#active.get(key);
    if (!state) return;
    if (state.id !== key) {
      this.#active.delete(key); // a claim: the next request finds out where it leads
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
