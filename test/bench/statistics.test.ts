import { describe, expect, it } from 'vitest';
import { sentenceOf } from '../../bench/compare.ts';
import { seededRandom } from '../../bench/random.ts';
import { compareSamples, mannWhitneyP, median } from '../../bench/statistics.ts';

const METRIC = { name: 'x', higherIsBetter: false };

describe('statistics', () => {
  it('takes the middle, or the mean of the two middle ones', () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
  });

  it('knows the exact p of two samples that do not overlap', () => {
    // 2 of the 924 ways to deal twelve ranks are as extreme.
    expect(mannWhitneyP([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12])).toBeCloseTo(2 / 924, 10);
    // A table of the distribution: n = m = 3, U = 1 has p = 0.2.
    expect(mannWhitneyP([1, 2, 4], [3, 5, 6])).toBeCloseTo(0.2, 10);
    expect(mannWhitneyP([1, 2, 3], [1, 2, 3])).toBe(1);
  });

  it('says that B is worse when it costs a fifth more', () => {
    const verdict = compareSamples([50, 51, 52, 50.5, 51.5, 49], [60, 61, 62, 60.5, 61.5, 59]);
    expect(verdict.differs).toBe(true);
    expect(verdict.interval[0]).toBeGreaterThan(0.1);
    expect(sentenceOf(METRIC, verdict)).toMatch(/^x: B is 1\d\.\d % higher, worse/);
  });

  it('calls a certain but tiny change no difference', () => {
    const a = [100, 100.1, 100.2, 100.3, 100.4, 100.5];
    const verdict = compareSamples(
      a,
      a.map((value) => value + 1),
    );
    expect(verdict.p).toBeLessThan(0.01);
    expect(verdict.differs).toBe(false);
  });

  it('seldom finds a difference between equals', () => {
    const random = seededRandom(7);
    const sample = (): number[] => Array.from({ length: 6 }, () => 100 + 30 * random());
    const found = Array.from({ length: 300 }, () => mannWhitneyP(sample(), sample())).filter((p) => p < 0.01);
    expect(found.length).toBeLessThan(9);
  });
});
