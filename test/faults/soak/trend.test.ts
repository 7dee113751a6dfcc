/** A slope is found where there is one, and nowhere else. */
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../../bench/random.ts';
import { fitTrend, type Point, type Trend, verdict } from './trend.ts';

const SEED = 4;

/** Ten minutes, a sample every five seconds. */
const series = (y: (x: number, n: number) => number): Point[] =>
  Array.from({ length: 121 }, (_, n) => ({ x: n / 12, y: y(n / 12, n) }));
const lineOf = (y: (x: number, n: number) => number): Trend => fitTrend(series(y)) as Trend;

describe('a trend', () => {
  it('of a straight line is that line', () => {
    const { slope, error, mean, samples, minutes } = lineOf((x) => 100 + 3 * x);
    expect(slope).toBeCloseTo(3, 9);
    expect(error).toBeCloseTo(0, 9);
    expect(mean).toBeCloseTo(115, 9);
    expect([samples, minutes]).toEqual([121, 10]);
  });

  it('holds the true slope within two errors in most of many noisy series', () => {
    const random = seededRandom(SEED);
    const held = Array.from({ length: 200 }, () => lineOf((x) => 0.5 * x + 20 * random())).filter(
      ({ slope, error }) => Math.abs(slope - 0.5) <= 2 * error,
    );
    expect(held.length, `seed ${SEED}`).toBeGreaterThan(180);
  });

  it('is less sure where neighbours are alike', () => {
    const random = seededRandom(SEED);
    const noise = Array.from({ length: 121 }, () => 20 * random());
    const quick = lineOf((_, n) => noise[n] as number);
    const slow = lineOf((_, n) => noise[n - (n % 12)] as number);
    expect(slow.error).toBeGreaterThan(2 * quick.error);
  });

  it('needs three samples', () => {
    expect(fitTrend(series((x) => x).slice(0, 2))).toBeUndefined();
  });
});

describe('the verdict', () => {
  const at = (slope: number, error: number): Trend => ({ samples: 9, minutes: 9, mean: 9, slope, error });

  it.each([
    { slope: 0, error: 0.4, said: 'flat' },
    { slope: -5, error: 1, said: 'flat' },
    { slope: 0, error: 0.6, said: 'not sure' },
    { slope: 2, error: 0.6, said: 'not sure' },
    { slope: 2, error: 0.4, said: 'grows' },
  ])('on $slope ± $error a minute, where 1 would matter, is: $said', ({ slope, error, said }) => {
    expect(verdict(at(slope, error), 1)).toBe(said);
  });

  it('on less than four minutes is none', () => {
    expect(verdict({ ...at(9, 0.1), minutes: 3.9 }, 1)).toBe('too short');
  });
});
