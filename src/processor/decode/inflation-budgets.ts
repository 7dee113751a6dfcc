import { Debts } from '../../lib/debts.ts';
import {
  INFLATION_BUDGET_BYTES,
  INFLATION_BUDGET_BYTES_PER_SEC,
  INFLATION_FREE_BYTES,
  INFLATION_FREE_RATIO,
} from '../../limits.ts';

/** Time in which an empty budget fills up. */
const FULL_MS = (INFLATION_BUDGET_BYTES / INFLATION_BUDGET_BYTES_PER_SEC) * 1000;

/**
 * Limits how far each project's recordings inflate beyond the usual. A recording that an SDK packs
 * inflates to about 10 times its size, and few recordings exceed 1 MiB. A recording that repeats
 * one letter inflates to a thousand times its size: 49 KB of requests became 10 GB on disk. So a
 * recording that exceeds both INFLATION_FREE_BYTES and INFLATION_FREE_RATIO draws on its project's
 * budget, which refills by the second.
 *
 * Each processor has its own budgets, in memory. So a recording that exceeds the budget at first
 * may be inflated at its redelivery. The packed and the inflated form have the same place in the
 * sink, which stores whichever is committed first.
 */
export class InflationBudgets {
  readonly #now: () => number;
  readonly #debts = new Debts();

  /** @param now monotonic milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /**
   * Starts the account of one recording. Up to `free` inflated bytes are free. Beyond them, all
   * bytes of the recording are taken from the project's budget. Nothing is given back, because the
   * CPU time was spent.
   * @returns a function that gets the number of bytes inflated so far, and says whether the
   * recording may inflate further
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
