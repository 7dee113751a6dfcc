import {
  INFLATION_BUDGET_BYTES,
  INFLATION_BUDGET_BYTES_PER_SEC,
  INFLATION_FREE_BYTES,
  INFLATION_FREE_RATIO,
} from '../../limits.ts';

/** A project's bytes that were left at a moment (monotonic ms). */
type Level = { left: number; at: number };
/** Levels are looked through for full ones when they are this many, and twice as many as after. */
const LEVELS_MIN = 1_000;

/**
 * How much a project's recordings may inflate beyond what is usual. A recording that an SDK packs
 * swells to some 10 times its size, and few are larger than a MiB. One of `x` alone swells to a
 * thousand times: 49 KB of requests became 10 GB on disk. So beyond both bounds a recording draws
 * on a budget of its project, which fills up again by the second.
 *
 * Each processor has its own budgets, in memory, so the same recording may fit at its redelivery
 * and not before. Both forms have the same place in the sink, which stores the first that is
 * committed.
 */
export class InflationBudgets {
  readonly #now: () => number;
  readonly #levels = new Map<string, Level>();
  #tidyAt = LEVELS_MIN;

  /** @param now monotonic milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /**
   * The draft of one recording: told how far it has inflated, takes what is new of that.
   * @returns whether it may go on. What a recording took stays taken: its CPU was spent
   */
  draft(projectId: string, packedBytes: number): (inflatedBytes: number) => boolean {
    const free = Math.max(INFLATION_FREE_BYTES, INFLATION_FREE_RATIO * packedBytes);
    let taken = 0;
    return (inflatedBytes) => {
      if (inflatedBytes <= free) return true;
      const wanted = inflatedBytes - taken;
      taken = inflatedBytes;
      return this.#take(projectId, wanted);
    };
  }

  #take(projectId: string, bytes: number): boolean {
    const level = this.#levelOf(projectId);
    const fits = bytes <= level.left;
    level.left = fits ? level.left - bytes : 0;
    this.#levels.set(projectId, level);
    if (this.#levels.size >= this.#tidyAt) this.#forgetFull();
    return fits;
  }

  #levelOf(projectId: string): Level {
    const now = this.#now();
    const { left, at } = this.#levels.get(projectId) ?? { left: INFLATION_BUDGET_BYTES, at: now };
    const refilled = left + ((now - at) / 1000) * INFLATION_BUDGET_BYTES_PER_SEC;
    return { left: Math.min(INFLATION_BUDGET_BYTES, refilled), at: now };
  }

  /** A full level is the same as none. */
  #forgetFull(): void {
    for (const projectId of this.#levels.keys())
      if (this.#levelOf(projectId).left === INFLATION_BUDGET_BYTES) this.#levels.delete(projectId);
    this.#tidyAt = Math.max(LEVELS_MIN, 2 * this.#levels.size);
  }
}
