/**
 * Writes each active project's monthly count to a durable place, so that counting can resume when
 * Redis comes back empty.
 *
 * Projects are written by group, one record for all of a group, and each group has its turn every
 * ROUND_MS. So a count is written within CHECKPOINT_MS_MAX of the moment at which it was noted, and
 * ten thousand active projects cost no more writes than a few hundred. Several workers count the
 * same project, and the last note of one may be older than what another has written: the store
 * keeps the larger figure. What cannot be written waits for the next turn, bounded by the projects
 * that exist.
 */
import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { Slot } from '../../lib/slots.ts';
import { CHECKPOINT_MS_MAX } from '../../limits.ts';
import type { ProjectState } from '../../projects/project-state.ts';
import type { CheckpointBucket, MonthCounts } from '../../projects/usage/checkpoint-bucket.ts';

/** Where the figures are: in `sluice_counters`, one record per group and month (YYYY-MM). */
export type CheckpointStore = Pick<CheckpointBucket, 'groups' | 'groupOf' | 'write' | 'noteLoss' | 'read'>;

/** The figure of an earlier month, of a project that counts in another one now. */
type Leftover = { project: ProjectState; month: string; count: number };
/**
 * What is not written yet of one group; of several figures of a project and month the largest
 * counts.
 */
type Group = { noted: (ProjectState | Leftover)[]; writing: Promise<void> | undefined };

/**
 * Of a project: the figure that is not written yet, `month` empty: there is none; and how many
 * figures of it are being written.
 */
const NOTED = new Slot(
  () => ({ month: '', count: 0, unwritten: 0 }),
  ({ month, unwritten }) => month !== '' || unwritten > 0,
);

/** Counts of a month. */
type Figures = Map<ProjectState, number>;

/** Leaves a second for the tick and the write. */
const ROUND_MS = CHECKPOINT_MS_MAX - 1_000;
const TICK_MS = 250;
/** Groups that are written together at the end: all workers of a deployment may end at once. */
const CLOSING_WRITES = 8;

type CheckpointsOptions = { store: CheckpointStore; clock: Clock; log: Log };

export class Checkpoints {
  readonly #options: CheckpointsOptions;
  readonly #groups: Group[];
  readonly #timer: NodeJS.Timeout;
  readonly #startedAt: number;
  /**
   * With which each round begins: another one for each worker, so that they do not meet at the same
   * record.
   */
  readonly #firstGroup: number;
  /** Groups that had their turn. */
  #turns = 0;
  readonly #failing = new Set<number>();
  /** Redis lost counts, and that is not noted yet. */
  #hasLoss = false;
  /** From when on it may be noted again, monotonic ms: many projects lose their counts at once. */
  #lossDueAt = 0;

  constructor(options: CheckpointsOptions) {
    const { store, clock } = options;
    this.#options = options;
    this.#groups = Array.from({ length: store.groups }, () => ({ noted: [], writing: undefined }));
    this.#firstGroup = Math.floor(Math.random() * store.groups);
    this.#startedAt = clock.monotonic();
    this.#timer = setInterval(() => this.#writeDue(), TICK_MS);
    this.#timer.unref();
  }

  /**
   * `before`: the count that was found. One that is lower than an earlier note is a loss, or a
   * position that was taken back: the tally tells them apart.
   */
  note(project: ProjectState, month: string, count: number, before = count): void {
    if (project.isDeleted) return;
    const state = NOTED.of(project);
    if (state.month === month) {
      if (before < state.count) this.#hasLoss = true;
      state.count = Math.max(state.count, count);
      return;
    }
    const { noted } = this.#groups[this.#options.store.groupOf(project.id)] as Group;
    noted.push(state.month === '' ? project : { project, month: state.month, count: state.count });
    state.month = month;
    state.count = count;
  }

  /** The stored figure, or a larger one that is not written yet. Rejects as the store does. */
  async read(project: ProjectState, month: string): Promise<number | undefined> {
    const stored = await this.#options.store.read(project.id, month);
    const noted = project.isDeleted ? undefined : NOTED.find(project);
    return noted?.month === month ? Math.max(noted.count, stored ?? 0) : stored;
  }

  /** Redis lost counts: the processor raises those that its tally says more of. */
  noteLoss(): void {
    this.#hasLoss = true;
  }

  /** Writes everything that was noted, and stops. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    if (this.#hasLoss) await this.#writeLoss();
    const queue = this.#groups.map((_, i) => (this.#firstGroup + i) % this.#groups.length).values();
    const writer = async (): Promise<void> => {
      for (const at of queue) {
        await this.#groups[at]?.writing;
        await this.#write(at);
      }
    };
    await Promise.all(Array.from({ length: CLOSING_WRITES }, writer));
  }

  #writeDue(): void {
    const groups = this.#groups.length;
    const due = Math.floor(((this.#options.clock.monotonic() - this.#startedAt) / ROUND_MS) * groups);
    // After a stall of this process one round makes good for all that it missed.
    for (this.#turns = Math.max(this.#turns, due - groups); this.#turns < due; this.#turns++)
      void this.#write((this.#firstGroup + this.#turns) % groups);
    if (this.#hasLoss && this.#options.clock.monotonic() >= this.#lossDueAt) void this.#writeLoss();
  }

  async #writeLoss(): Promise<void> {
    this.#hasLoss = false;
    this.#lossDueAt = this.#options.clock.monotonic() + ROUND_MS;
    try {
      await this.#options.store.noteLoss();
    } catch (error) {
      this.#hasLoss = true;
      this.#options.log.warn({ err: error }, 'quota: a loss of counts is not noted, trying again');
    }
  }

  /**
   * Nothing when there is nothing to write, or while the last write of this group is under way:
   * then it has its next turn.
   */
  async #write(at: number): Promise<void> {
    const group = this.#groups[at] as Group;
    if (group.writing || group.noted.length === 0) return;
    const { noted } = group;
    group.noted = [];
    group.writing = this.#writeMonths(at, byMonth(noted));
    await group.writing;
    group.writing = undefined;
  }

  async #writeMonths(at: number, months: ReadonlyMap<string, Figures>): Promise<void> {
    for (const [month, figures] of months) {
      try {
        await this.#options.store.write(at, month, countsOf(figures));
        if (this.#failing.delete(at) && this.#failing.size === 0)
          this.#options.log.info('quota checkpoints are all written again');
      } catch (error) {
        if (this.#failing.size === 0)
          this.#options.log.warn({ err: error, month }, 'quota checkpoints not written');
        this.#failing.add(at);
        for (const [project, count] of figures) this.note(project, month, count);
      }
      for (const project of figures.keys()) NOTED.of(project).unwritten--;
    }
  }
}

/** Of a project whose record could not be read for a while there may be two. */
function countsOf(figures: Figures): MonthCounts {
  const counts: MonthCounts = new Map();
  for (const [{ id, isDeleted }, count] of figures)
    if (!isDeleted) counts.set(id, Math.max(count, counts.get(id) ?? 0));
  return counts;
}

/** Of a project that has its figure in itself: what comes from now on is noted anew. */
function takeFigure(project: ProjectState): Leftover {
  const state = NOTED.of(project);
  const { month, count } = state;
  state.month = '';
  return { project, month, count };
}

function byMonth(all: readonly (ProjectState | Leftover)[]): Map<string, Figures> {
  const months = new Map<string, Figures>();
  for (const noted of all) {
    const { project, month, count } = 'month' in noted ? noted : takeFigure(noted);
    if (project.isDeleted) continue;
    const figures = months.get(month) ?? new Map<ProjectState, number>();
    months.set(month, figures);
    if (!figures.has(project)) NOTED.of(project).unwritten++;
    figures.set(project, Math.max(count, figures.get(project) ?? 0));
  }
  return months;
}
