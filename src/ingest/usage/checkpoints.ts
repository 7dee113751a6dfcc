/**
 * Writes each active project's monthly count to JetStream, so that counting can resume when Redis
 * comes back empty.
 *
 * Projects are divided into groups. All counts of a group go into one record, and each group is
 * written every ROUND_MS. So a count is written within CHECKPOINT_MS_MAX after its note, and ten
 * thousand active projects need no more writes than a few hundred.
 *
 * Several workers count the same project, and the last note of one worker may be lower than the
 * count that another has written: the store keeps the larger count. Counts that cannot be written
 * wait for the next turn of their group; the number of projects bounds them.
 *
 * The timer runs only while there is something to write.
 */
import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { Slot } from '../../lib/slots.ts';
import { CHECKPOINT_MS_MAX } from '../../limits.ts';
import type { ProjectState } from '../../projects/project-state.ts';
import type { CheckpointBucket, MonthCounts } from '../../projects/usage/checkpoint-bucket.ts';

/**
 * The store of the counts: the bucket `sluice_counters`, with one record per group and month
 * (YYYY-MM).
 */
export type CheckpointStore = Pick<CheckpointBucket, 'groups' | 'groupOf' | 'write' | 'noteLoss' | 'read'>;

/**
 * An unwritten count that was taken out of the project's slot (NOTED), because the project counts
 * in another month now or because the count is about to be written.
 */
type Leftover = { project: ProjectState; month: string; count: number };
/**
 * Counts of a group that are not written yet, and the write under way. When `noted` has several
 * counts of a project and month, the largest is written.
 */
type Group = { noted: (ProjectState | Leftover)[]; writing: Promise<void> | undefined };

/**
 * Each project's unwritten count and the month of that count (empty: no count), and how many counts
 * of the project are being written.
 */
const NOTED = new Slot(
  () => ({ month: '', count: 0, unwritten: 0 }),
  ({ month, unwritten }) => month !== '' || unwritten > 0,
);

/** Counts of one month, by project. */
type Figures = Map<ProjectState, number>;

/**
 * Time in ms from one write of a group to the next. It is a second shorter than CHECKPOINT_MS_MAX,
 * which leaves time for the timer (TICK_MS) and for the write.
 */
const ROUND_MS = CHECKPOINT_MS_MAX - 1_000;
const TICK_MS = 250;
/**
 * Number of groups that `close` writes at the same time. The number is small, because all workers
 * of a deployment may close at once.
 */
const CLOSING_WRITES = 8;

type CheckpointsOptions = { store: CheckpointStore; clock: Clock; log: Log };

export class Checkpoints {
  readonly #options: CheckpointsOptions;
  readonly #groups: Group[];
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  readonly #startedAt: number;
  /**
   * The group with which each round begins. It is random, so that workers do not write the same
   * record at the same time.
   */
  readonly #firstGroup: number;
  /** Number of turns so far, done or not needed. In each turn one group is written. */
  #turns = 0;
  readonly #failing = new Set<number>();
  /** Whether Redis lost counts and the store has not been told yet. */
  #hasLoss = false;
  /**
   * Time from which the next loss may be noted (monotonic ms). Many projects lose their counts at
   * once, and one note is enough for all of them.
   */
  #lossDueAt = 0;

  constructor(options: CheckpointsOptions) {
    const { store, clock } = options;
    this.#options = options;
    this.#groups = Array.from({ length: store.groups }, () => ({ noted: [], writing: undefined }));
    this.#firstGroup = Math.floor(Math.random() * store.groups);
    this.#startedAt = clock.monotonic();
  }

  /**
   * Notes a project's new count.
   * @param before the count that was found in Redis. When it is lower than an earlier note, either
   * Redis lost counts or a position was given back; the tally tells which.
   */
  note(project: ProjectState, month: string, count: number, before = count): void {
    if (project.isDeleted) return;
    const state = NOTED.of(project);
    if (state.month === month) {
      if (before < state.count) this.noteLoss();
      state.count = Math.max(state.count, count);
      return;
    }
    const { noted } = this.#groups[this.#options.store.groupOf(project.id)] as Group;
    noted.push(state.month === '' ? project : { project, month: state.month, count: state.count });
    state.month = month;
    state.count = count;
    this.#runTimer();
  }

  /**
   * Returns the stored count, or this worker's unwritten count when it is larger; undefined when
   * there is neither. Rejects when the store cannot be read.
   */
  async read(project: ProjectState, month: string): Promise<number | undefined> {
    const stored = await this.#options.store.read(project.id, month);
    const noted = project.isDeleted ? undefined : NOTED.find(project);
    return noted?.month === month ? Math.max(noted.count, stored ?? 0) : stored;
  }

  /**
   * Notes that Redis lost counts. The processor then raises the counts that are lower than its
   * tally.
   */
  noteLoss(): void {
    this.#hasLoss = true;
    this.#runTimer();
  }

  /** Writes all noted counts and stops the timer. */
  async close(): Promise<void> {
    this.#isClosed = true;
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

  #runTimer(): void {
    if (this.#isClosed || this.#timer) return;
    this.#turns = this.#turnsDue(); // nothing was noted during the turns since the timer stopped
    this.#timer = setInterval(() => this.#writeDue(), TICK_MS).unref();
  }

  #stopTimerIfIdle(): void {
    if (this.#hasLoss || this.#groups.some(({ noted }) => noted.length > 0)) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Number of turns that are due since the start. */
  #turnsDue(): number {
    const rounds = (this.#options.clock.monotonic() - this.#startedAt) / ROUND_MS;
    return Math.floor(rounds * this.#groups.length);
  }

  #writeDue(): void {
    const groups = this.#groups.length;
    const due = this.#turnsDue();
    // After a stall of this process, one round makes up for all missed rounds.
    for (this.#turns = Math.max(this.#turns, due - groups); this.#turns < due; this.#turns++)
      void this.#write((this.#firstGroup + this.#turns) % groups);
    if (this.#hasLoss && this.#options.clock.monotonic() >= this.#lossDueAt) void this.#writeLoss();
    this.#stopTimerIfIdle();
  }

  async #writeLoss(): Promise<void> {
    this.#hasLoss = false;
    this.#lossDueAt = this.#options.clock.monotonic() + ROUND_MS;
    try {
      await this.#options.store.noteLoss();
    } catch (error) {
      this.noteLoss();
      this.#options.log.warn({ err: error }, 'quota: a loss of counts is not noted, trying again');
    }
  }

  /**
   * Writes what is noted in a group. Does nothing when nothing is noted, or while the last write of
   * the group is under way: the counts then wait for the next turn.
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

/**
 * Returns the counts by project id. A project whose record could not be read for a while may have
 * two ProjectStates; the larger count is kept.
 */
function countsOf(figures: Figures): MonthCounts {
  const counts: MonthCounts = new Map();
  for (const [{ id, isDeleted }, count] of figures)
    if (!isDeleted) counts.set(id, Math.max(count, counts.get(id) ?? 0));
  return counts;
}

/**
 * Takes the unwritten count out of a project's slot; the next note of the project starts a new one.
 */
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
