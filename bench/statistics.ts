/** The little statistics that benches need. Pure. */
import { seededRandom } from './random.ts';

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return Number.NaN;
  return sorted.length % 2 === 1
    ? (sorted[middle] as number)
    : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

/** Mann and Whitney's U of `a`: pairs in which a's value is the larger, ties half. */
function uStatistic(a: readonly number[], b: readonly number[]): number {
  let u = 0;
  for (const x of a) for (const y of b) u += x > y ? 1 : x === y ? 0.5 : 0;
  return u;
}

/** Ways to choose `a` of `a + b` ranks by their U, by the recurrence of Mann and Whitney. */
function waysByU(a: number, b: number): number[] {
  // ways[i][u] for i values of the first sample against j of the second, j growing outside.
  let ways: number[][] = Array.from({ length: a + 1 }, () => [1]);
  for (let j = 1; j <= b; j++) {
    const next: number[][] = [[1]];
    for (let i = 1; i <= a; i++) {
      const fewer = next[i - 1] as number[];
      const before = ways[i] as number[];
      next.push(Array.from({ length: i * j + 1 }, (_, u) => (fewer[u - j] ?? 0) + (before[u] ?? 0)));
    }
    ways = next;
  }
  return ways[a] as number[];
}

/** Two-sided p of the hypothesis that both samples come from the same distribution; exact but for ties. */
export function mannWhitneyP(a: readonly number[], b: readonly number[]): number {
  const u = uStatistic(a, b);
  const ways = waysByU(a.length, b.length);
  const all = ways.reduce((sum, count) => sum + count, 0);
  const extreme = Math.min(u, a.length * b.length - u);
  const tail = ways.reduce((sum, count, value) => (value <= extreme ? sum + count : sum), 0);
  return Math.min(1, (2 * tail) / all);
}

export type Interval = readonly [low: number, high: number];

/** Where the ratio median(b) / median(a) lies with the given confidence: percentile bootstrap, seeded. */
export function bootstrapRatio(
  a: readonly number[],
  b: readonly number[],
  { confidence = 0.95, seed = 1 } = {},
): Interval {
  const random = seededRandom(seed);
  const draw = (values: readonly number[]): number[] =>
    values.map(() => values[Math.floor(random() * values.length)] as number);
  const ratios = Array.from({ length: RESAMPLES }, () => median(draw(b)) / median(draw(a))).sort(
    (x, y) => x - y,
  );
  const at = (share: number): number =>
    ratios[Math.min(RESAMPLES - 1, Math.floor(share * RESAMPLES))] as number;
  return [at((1 - confidence) / 2), at((1 + confidence) / 2)];
}
const RESAMPLES = 4_000;

export type Verdict = {
  /** median(b) / median(a) - 1. */
  change: number;
  interval: Interval;
  p: number;
  differs: boolean;
};

/**
 * Whether two samples differ. Both must hold: the rank test is surer than 99 % (three figures are compared, so about one comparison of
 * equals in fifty cries wolf), and the medians are at least 2 % apart: layout of memory alone moves a program by that much.
 */
export function compareSamples(a: readonly number[], b: readonly number[]): Verdict {
  const change = median(b) / median(a) - 1;
  const p = mannWhitneyP(a, b);
  const [low, high] = bootstrapRatio(a, b);
  return { change, interval: [low - 1, high - 1], p, differs: p < P_MAX && Math.abs(change) >= CHANGE_MIN };
}
const P_MAX = 0.01;
const CHANGE_MIN = 0.02;
