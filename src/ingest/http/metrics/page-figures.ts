import { Slot } from '../../../lib/slots.ts';
import { PROJECTS_SHOWN_MAX, PROJECTS_WATCHED_MAX } from '../../../limits.ts';
import type { ProjectState } from '../../../projects/project-state.ts';
import type { Outcome } from '../answers/outcome.ts';

/**
 * Counts of one project's requests at this worker since the worker started, for the page of the
 * admin port. `month` is '' while no position is known.
 */
type ProjectFigures = {
  requests: number;
  accepted: number;
  /** Requests of which inbound filters removed all items. */
  filtered: number;
  /** Requests refused for the per-minute limit or the quota, or because the limiter was away. */
  limited: number;
  month: string;
  position: number;
};

const FIGURES = new Slot<ProjectFigures>(
  () => ({ requests: 0, accepted: 0, filtered: 0, limited: 0, month: '', position: 0 }),
  () => true,
);

/** Counts of one project since the start: those of one worker, or the sums over several. */
export type ProjectRow = Omit<ProjectFigures, 'month' | 'position'> & {
  id: string;
  /** Newest known position in the month's usage, and its month (`YYYY-MM`). */
  usage?: { month: string; position: number };
  /** Absent: unlimited. */
  quota?: number;
};

const LIMITED: ReadonlySet<Outcome> = new Set(['rate_limited', 'limiter_unavailable', 'quota_exceeded']);

/**
 * The newer of two usages. Texts of months sort by time; within a month the larger position is
 * newer.
 */
function newer(a: ProjectRow['usage'], b: ProjectRow['usage']): ProjectRow['usage'] {
  if (!a || !b) return a ?? b;
  if (a.month !== b.month) return a.month > b.month ? a : b;
  return a.position >= b.position ? a : b;
}

function raiseUsage(of: ProjectFigures, { month, position }: { month: string; position: number }): void {
  if (month === of.month) of.position = Math.max(of.position, position);
  else if (month > of.month) {
    of.month = month;
    of.position = position;
  }
}

const busiest = (all: Iterable<ProjectRow>): ProjectRow[] =>
  [...all].sort((a, b) => b.requests - a.requests || (a.id < b.id ? -1 : 1)).slice(0, PROJECTS_SHOWN_MAX);

/**
 * The busiest projects over all workers. Where the lists give different quotas for a project, the
 * last one counts.
 */
export function mergeProjects(lists: readonly (readonly ProjectRow[])[]): ProjectRow[] {
  const sums = new Map<string, ProjectRow>();
  for (const one of lists.flat()) {
    const sum = sums.get(one.id);
    if (!sum) {
      sums.set(one.id, { ...one });
      continue;
    }
    for (const field of ['requests', 'accepted', 'filtered', 'limited'] as const) sum[field] += one[field];
    const usage = newer(sum.usage, one.usage);
    if (usage) sum.usage = usage;
    if (one.quota !== undefined) sum.quota = one.quota;
  }
  return busiest(sums.values());
}

/**
 * Counts of each project at this worker, for the page of the admin port.
 *
 * Counting costs only two additions per request. The page is for a quick look; `sluice usage` is
 * for accounting. A worker counts only the first PROJECTS_WATCHED_MAX projects that had requests,
 * and shows the PROJECTS_SHOWN_MAX busiest of them. A busy project that came later may be missing.
 */
export class PageFigures {
  readonly #projects: ProjectState[] = [];

  note(project: ProjectState, outcome: Outcome, counted?: { month: string; position: number }): void {
    const figures = FIGURES.find(project) ?? this.#watch(project);
    if (!figures) return;
    figures.requests++;
    if (outcome === 'accepted') figures.accepted++;
    else if (outcome === 'filtered') figures.filtered++;
    else if (LIMITED.has(outcome)) figures.limited++;
    if (counted) raiseUsage(figures, counted);
  }

  busiest(): ProjectRow[] {
    return busiest(this.#projects.filter(({ isDeleted }) => !isDeleted).map(rowOf));
  }

  /**
   * Begins to count a project, and returns its counts; undefined when PROJECTS_WATCHED_MAX projects
   * are counted already.
   */
  #watch(project: ProjectState): ProjectFigures | undefined {
    if (this.#projects.length >= PROJECTS_WATCHED_MAX) return undefined;
    this.#projects.push(project);
    return FIGURES.of(project);
  }
}

function rowOf(project: ProjectState): ProjectRow {
  const { id, record } = project;
  const { month, position, ...counts } = FIGURES.of(project);
  return {
    id,
    ...counts,
    ...(month !== '' && { usage: { month, position } }),
    ...(record.quota !== undefined && { quota: record.quota }),
  };
}
