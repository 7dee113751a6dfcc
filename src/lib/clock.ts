export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/** The clocks that the code reads, so that a test can pass clocks of its own. */
export interface Clock {
  /** The wall clock, in Unix milliseconds. It may step backwards. */
  now(): number;
  /** Milliseconds since some fixed moment. They never go backwards. */
  monotonic(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};
