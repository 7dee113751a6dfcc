/** When requests are due, and where the knee of a server is. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findKnee } from '../../bench/load/pace/knee.ts';
import { Pace, rateAt, type Segment, segmentsOf, withSpikes } from '../../bench/load/pace/pace.ts';
import type { LoadResult } from '../../bench/load/result.ts';
import { sparkline } from '../../bench/load/show/live.ts';

function duesOf(pace: Pace): number[] {
  const dues: number[] = [];
  for (let due = pace.next(); due < Number.POSITIVE_INFINITY; due = pace.next()) dues.push(due);
  return dues;
}

/** What is below the rates until this moment: the number of the request that is due then. */
const areaUntil = (ms: number, segments: readonly Segment[]): number =>
  segments.reduce((sum, segment) => {
    const to = Math.min(ms, segment.toMs);
    if (to <= segment.fromMs) return sum;
    return sum + ((segment.fromRate + rateAt(segment, to)) / 2000) * (to - segment.fromMs);
  }, 0);

const stage = fc.record({
  forMs: fc.integer({ min: 0, max: 5_000 }),
  rate: fc.integer({ min: 0, max: 2_000 }),
});

describe('a pace', () => {
  it('has as many requests by any moment as the rates until then say', () => {
    fc.assert(
      fc.property(
        fc.array(stage, { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 0, max: 500 }),
        (stages, start) => {
          const segments = segmentsOf(stages, start);
          const dues = duesOf(new Pace(segments));
          const wrong = dues.findIndex(
            (due, n) => due < (dues[n - 1] ?? 0) || Math.abs(areaUntil(due, segments) - n) > 1e-3,
          );
          expect(wrong).toBe(-1);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('keeps its total with a spike in it, which ends with the plan', () => {
    const plan = segmentsOf([{ forMs: 10_000, rate: 100 }], 100);
    const spiked = withSpikes(plan, [
      { atMs: 2_000, forMs: 1_000, rate: 500 },
      { atMs: 9_500, forMs: 60_000, rate: 0 },
    ]);
    expect(spiked.map(({ fromMs, toMs, fromRate }) => [fromMs, toMs, fromRate])).toEqual([
      [0, 2_000, 100],
      [2_000, 3_000, 500],
      [3_000, 9_500, 100],
      [9_500, 10_000, 0],
    ]);
    expect(duesOf(new Pace(spiked))).toHaveLength(200 + 500 + 650);
  });
});

it('knows what is due and not yet given', () => {
  const segments = segmentsOf(
    [
      { forMs: 1_000, rate: 100 },
      { forMs: 0, rate: 500 },
      { forMs: 2_000, rate: 500 },
    ],
    0,
  );
  const all = duesOf(new Pace(segments));
  for (const [given, until] of [
    [0, 500],
    [20, 900],
    [10, 1_700],
    [400, 2_999],
    [1_049, 3_000],
  ] as const) {
    const pace = new Pace(segments);
    for (let n = 0; n < given; n++) pace.next();
    const waiting = pace.waiting(until, 1e9);
    expect(waiting.map(([ms]) => ms)).toEqual(all.slice(given).filter((due) => due < until));
    const sampled = pace.waiting(until, 7);
    expect(sampled.length).toBeLessThanOrEqual(14);
    expect(sampled.reduce((sum, [, count]) => sum + count, 0)).toBe(waiting.length);
  }
});

it('parts of a plan take turns, and are the plan together', () => {
  const plan = segmentsOf([{ forMs: 1_000, rate: 90 }], 90);
  const third = plan.map((one) => ({ ...one, fromRate: 30, toRate: 30 }));
  const parts = [0, 1 / 3, 2 / 3].flatMap((phase) => duesOf(new Pace(third, phase)));
  const rounded = (dues: number[]): number[] =>
    dues.map((due) => Math.round(due * 1000)).sort((a, b) => a - b);
  expect(rounded(parts)).toEqual(rounded(duesOf(new Pace(plan))));
});

describe('the search for the knee', () => {
  /** A server that answers up to `capacity`, or a generator that is at its limit above it. */
  const stepOf =
    (capacity: number, generatorMax = Number.POSITIVE_INFINITY) =>
    async (rate: number) =>
      ({
        ratePerSec: Math.min(rate, capacity),
        seconds: 10,
        latencyMs: { p99: rate > capacity ? 900 : 9 },
        generator: { bottleneck: rate > generatorMax ? ['busy'] : [] },
      }) as unknown as LoadResult;

  it('finds it within five percent', async () => {
    const { knee } = await findKnee({ startRate: 100, judge: () => [], step: stepOf(1_234) });
    expect(knee.lastGoodRate).toBeLessThanOrEqual(1_234 * 1.05);
    expect(knee.lastGoodRate).toBeGreaterThan(1_234 / 1.05);
    expect(knee.firstBadRate).toBeLessThanOrEqual((knee.lastGoodRate as number) * 1.05 + 1);
  });

  it('ends where the generator, not the server, is at its limit', async () => {
    const { knee } = await findKnee({ startRate: 100, judge: () => [], step: stepOf(300, 200) });
    expect(knee.firstBadRate).toBeUndefined();
    expect(knee.lastGoodRate).toBe(225);
    expect(knee.steps.at(-1)).toMatchObject({ good: false, why: ['busy'] });
  });

  it('says that not even the first rate was good, after a second try', async () => {
    const { knee } = await findKnee({ startRate: 100, judge: () => ['slow'], step: stepOf(1_000) });
    expect(knee).toMatchObject({ lastGoodRate: undefined, firstBadRate: 100 });
    expect(knee.steps).toHaveLength(2);
  });
});

it('a sparkline shows zero as nothing and the largest as all', () => {
  expect(sparkline([0, 1, 50, 100])).toBe(' ▁▄█');
  expect(sparkline([0, 0])).toBe('  ');
});
