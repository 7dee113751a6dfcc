export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/** Time as the code sees it, so that a test can pass its own. */
export interface Clock {
  /** Wall clock, Unix milliseconds. May step backwards. */
  now(): number;
  /** Milliseconds since some fixed moment; never goes backwards. */
  monotonic(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};
