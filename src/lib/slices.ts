import { SLICE_MS_MAX } from '../limits.ts';

/** Long work that its caller may interrupt: steps of about a millisecond, the last one returns. */
export type Steps<T> = Generator<void, T, void>;

/** Does all of the work without a pause: for small work. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/**
 * The event loop's time for work on items: inflating, checking, scrubbing. A recording of 64 MiB
 * may need ten seconds of it. So the work is done in slices, and between two slices the loop does
 * all else. All work of the process shares one object: one slice runs in each turn of the loop,
 * whoever waits longest.
 */
export class Slices {
  readonly #now: () => number;
  readonly #waiting: (() => void)[] = [];
  #isWaking = false;

  /** @param now monotonic milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Runs the steps to their end. */
  async run<T>(steps: Steps<T>): Promise<T> {
    for (let began = this.#now(); ; ) {
      const { done, value } = steps.next();
      if (done) return value;
      if (this.#now() - began < SLICE_MS_MAX) continue;
      await this.turn();
      began = this.#now();
    }
  }

  /**
   * For a loop over small works. What is returned is asked between two of them, and answers with a
   * promise to wait for when the slice is over.
   */
  pauses(): () => Promise<void> | undefined {
    let began = this.#now();
    return () => {
      if (this.#now() - began < SLICE_MS_MAX) return undefined;
      return this.turn().then(() => {
        began = this.#now();
      });
    };
  }

  /** Resolves in a later turn of the loop, when this work is next. */
  turn(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#wake();
    });
  }

  #wake(): void {
    if (this.#isWaking || this.#waiting.length === 0) return;
    this.#isWaking = true;
    setImmediate(() => {
      this.#isWaking = false;
      this.#waiting.shift()?.();
      this.#wake();
    });
  }
}
