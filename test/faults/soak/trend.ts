/** Does a figure grow? A straight line through its samples, and how sure its slope is. Pure. */

/** `x` in minutes since some moment. */
export type Point = { x: number; y: number };

export type Trend = {
  samples: number;
  /** Minutes from the first sample to the last. */
  minutes: number;
  mean: number;
  /** Per minute. */
  slope: number;
  /** Standard error of the slope. */
  error: number;
};

/** `flat`: the slope and two standard errors lie below what would matter. `grows`: above it. */
export type Verdict = 'flat' | 'grows' | 'not sure' | 'too short';

/** A heap that finds its size looks like a leak for some minutes. */
const MINUTES_MIN = 4;

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** Correlation of neighbours. */
function lagOne(residuals: readonly number[]): number {
  const squares = residuals.reduce((sum, r) => sum + r * r, 0);
  const products = residuals.slice(1).reduce((sum, r, n) => sum + r * (residuals[n] as number), 0);
  return squares === 0 ? 0 : products / squares;
}

/**
 * Least squares. Neighbouring samples of a heap are alike (its saw-tooth is longer than their distance), so that they tell less than so
 * many independent ones: the error is widened by √((1 + r) / (1 − r)), r their correlation, when that is positive.
 * @returns undefined for fewer than three samples
 */
export function fitTrend(points: readonly Point[]): Trend | undefined {
  if (points.length < 3) return undefined;
  const xMean = mean(points.map(({ x }) => x));
  const yMean = mean(points.map(({ y }) => y));
  const spread = points.reduce((sum, { x }) => sum + (x - xMean) ** 2, 0);
  const slope = points.reduce((sum, { x, y }) => sum + (x - xMean) * (y - yMean), 0) / spread;
  const residuals = points.map(({ x, y }) => y - yMean - slope * (x - xMean));
  const variance = residuals.reduce((sum, r) => sum + r * r, 0) / (points.length - 2);
  const r = Math.min(0.95, Math.max(0, lagOne(residuals)));
  return {
    samples: points.length,
    minutes: (points.at(-1) as Point).x - (points[0] as Point).x,
    mean: yMean,
    slope,
    error: Math.sqrt((variance / spread) * ((1 + r) / (1 - r))),
  };
}

/** @param bound slope that would matter, per minute */
export function verdict({ slope, error, minutes }: Trend, bound: number): Verdict {
  if (minutes < MINUTES_MIN) return 'too short';
  if (slope + 2 * error < bound) return 'flat';
  return slope - 2 * error > bound ? 'grows' : 'not sure';
}
