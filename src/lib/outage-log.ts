import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

const LINE_MS_MIN = 60_000;

/**
 * Logs outages of the sink: one line at the first failure, one a minute while attempts fail, and
 * one when all streams work again. The lines have no stacks.
 *
 * Lines about failures are at least a minute apart, even of two outages. So an outage that begins
 * soon after such a line gets its first line later, or none if it ends within the minute.
 */
export class OutageLog {
  readonly #options: { log: Log; clock: Clock };
  /** Streams whose last attempt failed. */
  readonly #failing = new Set<string>();
  #saidAt = Number.NEGATIVE_INFINITY;
  /** When the outage began, monotonic ms: the first failure since all streams worked. */
  #since = 0;
  #failures = 0;
  #isTold = false;

  constructor(options: { log: Log; clock: Clock }) {
    this.#options = options;
  }

  get isAway(): boolean {
    return this.#failing.size > 0;
  }

  failed(stream: string, reason: string): void {
    const now = this.#options.clock.monotonic();
    if (!this.isAway) [this.#since, this.#failures, this.#isTold] = [now, 0, false];
    this.#failing.add(stream);
    this.#failures++;
    if (now - this.#saidAt < LINE_MS_MIN) return;
    this.#saidAt = now;
    this.#isTold = true;
    const figures = { seconds: this.#seconds(now), failures: this.#failures, streams: [...this.#failing] };
    this.#options.log.error({ reason, ...figures }, 'processor: nothing can be stored, trying again');
  }

  worked(stream: string): void {
    if (!this.#failing.delete(stream) || this.isAway || !this.#isTold) return;
    const figures = { seconds: this.#seconds(this.#options.clock.monotonic()), failures: this.#failures };
    this.#options.log.info(figures, 'processor: stores again');
  }

  #seconds(now: number): number {
    return Math.round((now - this.#since) / 1000);
  }
}
