/**
 * Counts the answers of one second, and the requests that are open at its end. The live line, the
 * chart of the report and the rules that end a run show or use these counts.
 */
import { encodeHistogram, isHeadline, newHistogram, TIMED_OUT } from './recording.ts';
import { percentilesOf, type Second, statusName } from './result.ts';

const STATUSES = 1_000;
const SECOND_US = 1_000_000;

export class SecondCounts {
  readonly #expected: readonly number[];
  readonly #keepsHistogram: boolean;
  readonly #latency = newHistogram();
  /**
   * Number of answers by status. Reading the whole array once a second is cheaper than changing a
   * map for each answer.
   */
  readonly #counts = new Uint32Array(STATUSES);
  #longestUs = 0;
  #open = 0;
  sent = 0;

  constructor(expected: readonly number[], keepsHistogram: boolean) {
    this.#expected = expected;
    this.#keepsHistogram = keepsHistogram;
  }

  get isEmpty(): boolean {
    return this.#counts.every((count) => count === 0);
  }

  record(status: number, us: number): void {
    this.#counts[status] = (this.#counts[status] as number) + 1;
    this.#longestUs = Math.max(this.#longestUs, us);
    if (isHeadline(status)) this.#latency.recordValue(us);
  }

  /**
   * Notes `count` requests that are due and have no answer. To be called after all answers of the
   * second were recorded. The age counts as a latency if it is a second or more, or at least as
   * long as each answer of the second took, refusals included. A smaller age is left out, because
   * with it the second would look quicker than it was.
   * @param us age of the requests in microseconds
   */
  noteOpen(us: number, count = 1): void {
    this.#open += count;
    if (us >= Math.min(this.#longestUs, SECOND_US)) this.#latency.recordValueWithCount(us, count);
  }

  /** Returns the second's figures, and begins the next second. */
  close(place: Pick<Second, 'second' | 'stage' | 'ms' | 'late'>): Second {
    const statuses: Record<string, number> = {};
    let [ok, failed] = [0, 0];
    for (const [status, count] of this.#counts.entries()) {
      if (count === 0) continue;
      statuses[statusName(status)] = count;
      if (status > TIMED_OUT && this.#expected.includes(status)) ok += count;
      else failed += count;
    }
    const latency = this.#latency;
    const { p50, p90, p95, p99, p999 } = percentilesOf(latency);
    const entry = {
      ...place,
      ...{ sent: this.sent, ok, failed, statuses, open: this.#open },
      ...{ p50Ms: p50, p90Ms: p90, p95Ms: p95, p99Ms: p99, p999Ms: p999 },
    };
    const hdr = this.#keepsHistogram ? encodeHistogram(latency) : undefined;
    this.sent = 0;
    this.#longestUs = 0;
    this.#open = 0;
    this.#counts.fill(0);
    latency.reset();
    return hdr === undefined ? entry : { ...entry, hdr };
  }
}
