/** Upper bounds of buckets, in seconds, for durations of requests, Redis calls and publishes. */
export const SECONDS_BOUNDS = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60,
] as const;
/** Upper bounds of the buckets for numbers of entries per frame. */
export const COUNT_BOUNDS = [1, 2, 4, 8, 16, 32, 64, 128, 256] as const;

/**
 * A histogram of plain counters that are read at each scrape. An observation costs a few
 * nanoseconds, less than in prom-client's histogram.
 */
export class Distribution {
  readonly bounds: readonly number[];
  /** Number of observations in each bucket, not cumulative. The last bucket has no bound. */
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  /** Number of all observations. */
  get count(): number {
    return this.counts.reduce((sum, count) => sum + count, 0);
  }

  /**
   * Counts an observation.
   * @param times how often the value was observed
   */
  observe(value: number, times = 1): void {
    let at = 0;
    while (at < this.bounds.length && value > (this.bounds[at] as number)) at++;
    this.counts[at] = (this.counts[at] as number) + times;
    this.sum += value * times;
  }
}
