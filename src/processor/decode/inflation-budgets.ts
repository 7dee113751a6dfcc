import { Debts } from '../../lib/debts.ts';
import {
  INFLATION_BUDGET_BYTES,
  INFLATION_BUDGET_BYTES_PER_SEC,
  INFLATION_FREE_BYTES,
  INFLATION_FREE_RATIO,
} from '../../limits.ts';

/** How long an empty budget takes to fill up. */
const FULL_MS = (INFLATION_BUDGET_BYTES / INFLATION_BUDGET_BYTES_PER_SEC) * 1000;

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
  readonly #debts = new Debts();

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
    const now = this.#now();
    const ms = (bytes / INFLATION_BUDGET_BYTES_PER_SEC) * 1000;
    const left = FULL_MS - this.#debts.of(projectId, now);
    this.#debts.add(projectId, Math.min(ms, left), now);
    return ms <= left;
  }
}
