import { SLICE_MS_MAX } from '../limits.ts';

/** Long work in steps of about a millisecond. The last step returns the result. */
export type Steps<T> = Generator<undefined, T, void>;

/** Does all steps without a pause; meant for small work. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/**
 * Shares the event loop's time among long works on items: inflating, checking, scrubbing. A
 * recording of 64 MiB may need ten seconds. So work is done in slices, and the loop handles
 * everything else between two slices. All work of the process uses one object: each turn of the
 * loop runs one slice, of the work that has waited longest.
 */
export class Slices {
  readonly #now: () => number;
  readonly #waiting: (() => void)[] = [];
  #isWaking = false;

  /** @param now returns monotonic milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Runs all steps, in slices, and resolves with the result. */
  async run<T>(steps: Steps<T>): Promise<T> {
    for (let began = this.#now(); ; ) {
      const { done, value } = steps.next();
      if (done) return value;
      if (this.#now() - began < SLICE_MS_MAX) continue;
      await this.turn();
      began = this.#now();
    }
  }

  /** Does the steps, and measures the milliseconds that they take, without the pauses between. */
  *timed<T>(steps: Steps<T>): Steps<{ result: T; ms: number }> {
    for (let ms = 0; ; ) {
      const began = this.#now();
      const { done, value } = steps.next();
      ms += this.#now() - began;
      if (done) return { result: value, ms };
      yield;
    }
  }

  /**
   * Divides a loop over small pieces of work into slices.
   * @returns a function to call between two pieces; when the slice is over, it returns a promise
   * that the loop must await
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

  /** Resolves in a later turn of the event loop, after all earlier callers have had a turn. */
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
