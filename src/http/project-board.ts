import { PROJECTS_SHOWN_MAX, PROJECTS_WATCHED_MAX } from '../limits.ts';
import type { Outcome } from './outcome.ts';

/** What one project did at one worker since the worker started, or at several, summed. */
export type ProjectFigures = {
  id: string;
  requests: number;
  accepted: number;
  /** Removed by an inbound filter. */
  filtered: number;
  /** Over the per-minute limit or the quota. */
  limited: number;
  /** Newest known position of the month's usage, and the month (`YYYY-MM`) that it belongs to. */
  usage?: { month: string; position: number };
  /** Absent: unlimited. */
  quota?: number;
};

/** The same in one object; `month` empty: no position is known. */
type Watched = Omit<ProjectFigures, 'usage' | 'quota'> & { month: string; position: number };
/** A project, with a place for what the board knows of it. */
export type BoardSubject = { readonly id: string; watched?: Watched | 'not watched' | undefined };

const LIMITED: ReadonlySet<Outcome> = new Set(['rate_limited', 'limiter_unavailable', 'quota_exceeded']);

/** Month strings compare as they follow one another; within a month the larger position is the newer. */
function newer(a: ProjectFigures['usage'], b: ProjectFigures['usage']): ProjectFigures['usage'] {
  if (!a || !b) return a ?? b;
  if (a.month !== b.month) return a.month > b.month ? a : b;
  return a.position >= b.position ? a : b;
}

function raiseUsage(of: Watched, { month, position }: { month: string; position: number }): void {
  if (month === of.month) of.position = Math.max(of.position, position);
  else if (month > of.month) {
    of.month = month;
    of.position = position;
  }
}

const busiest = <Of extends Pick<ProjectFigures, 'id' | 'requests'>>(all: Iterable<Of>): Of[] =>
  [...all].sort((a, b) => b.requests - a.requests || (a.id < b.id ? -1 : 1)).slice(0, PROJECTS_SHOWN_MAX);

/** The busiest projects over all workers. `quota` is that of whichever list names the project last. */
export function mergeProjects(lists: readonly (readonly ProjectFigures[])[]): ProjectFigures[] {
  const sums = new Map<string, ProjectFigures>();
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
 * What each project did at this worker, for the page of the admin port.
 *
 * Two additions per request, nothing else: the page is for the eye, `sluice usage` is for accounting. Bounded to
 * PROJECTS_WATCHED_MAX projects, the first that came; a worker that serves more shows the busiest of those.
 */
export class ProjectBoard {
  readonly #projects = new Map<string, Watched>();

  note(project: BoardSubject, outcome: Outcome, counted?: { month: string; position: number }): void {
    project.watched ??= this.#watch(project.id);
    const { watched } = project;
    if (watched === 'not watched') return;
    watched.requests++;
    if (outcome === 'accepted') watched.accepted++;
    else if (outcome === 'filtered') watched.filtered++;
    else if (LIMITED.has(outcome)) watched.limited++;
    if (counted) raiseUsage(watched, counted);
  }

  /** The busiest, with the quota that `quotaOf` knows for each. */
  busiest(quotaOf: (id: string) => number | undefined): ProjectFigures[] {
    return busiest(this.#projects.values()).map(({ month, position, ...figures }) => {
      const quota = quotaOf(figures.id);
      return {
        ...figures,
        ...(month !== '' && { usage: { month, position } }),
        ...(quota !== undefined && { quota }),
      };
    });
  }

  #watch(id: string): Watched | 'not watched' {
    const known = this.#projects.get(id);
    if (known) return known;
    if (this.#projects.size >= PROJECTS_WATCHED_MAX) return 'not watched';
    const fresh = { id, requests: 0, accepted: 0, filtered: 0, limited: 0, month: '', position: 0 };
    this.#projects.set(id, fresh);
    return fresh;
  }
}
