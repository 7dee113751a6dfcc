/**
 * `--find-knee`: finds the highest rate at which the thresholds hold (the knee).
 *
 * Each step has a fixed rate, and lasts longer than a stall of the server. The rate grows by half
 * until a step fails. Then the search halves the gap between the last good and the first bad rate
 * until the gap is small. A rate that fails is tried once more, because one bad moment of a shared
 * machine is no knee.
 */
import type { LoadResult } from '../result.ts';

export type KneeOptions = {
  startRate: number;
  /** Returns sentences that say why the step is bad; none when it is good. */
  judge(result: LoadResult): readonly string[];
  step(rate: number): Promise<LoadResult>;
  onStep?(step: KneeStep): void;
};

export type KneeStep = { rate: number; good: boolean; why: readonly string[]; p99Ms: number | null };
export type Knee = {
  /** Undefined when not even the first rate was good. */
  lastGoodRate: number | undefined;
  /** Undefined when the generator reached its limit before the server. */
  firstBadRate: number | undefined;
  steps: readonly KneeStep[];
};

const GROWTH = 1.5;
const GAP_MAX = 1.05;
/**
 * A rate is bad when the server answers less than this share of the requests, whatever the latency
 * is.
 */
const KEEPS_UP = 0.97;
/** Requests of the last 50 ms of a step may be under way at its end, so they need no answer. */
const UNDER_WAY_S = 0.05;
const WAITED_SHARE = 0.05;

/**
 * Returns why a step is beyond the knee; nothing when it is not.
 * @param missed the thresholds that the step missed, as sentences
 */
export function kneeProblems(result: LoadResult, rate: number, missed: readonly string[]): string[] {
  const problems = [...missed];
  const { ratePerSec, seconds, waited, expected, failed, connections } = result;
  if (!(ratePerSec * seconds >= rate * (KEEPS_UP * seconds - UNDER_WAY_S)))
    problems.push(`${ratePerSec.toFixed(0)} of ${rate} requests/s were answered in time`);
  if (problems.length > 0 && waited > WAITED_SHARE * (expected + failed))
    problems.push(
      `all ${connections} connections were busy (more --connections tell whether they are the limit)`,
    );
  return problems;
}

export async function findKnee({ startRate, judge, step, onStep }: KneeOptions): Promise<{
  knee: Knee;
  results: LoadResult[];
}> {
  const results: LoadResult[] = [];
  const steps: KneeStep[] = [];
  let good: number | undefined;
  let bad: number | undefined;
  const attempt = async (rate: number): Promise<'good' | 'bad' | 'over'> => {
    const result = await step(rate);
    results.push(result);
    const problems = kneeProblems(result, rate, judge(result));
    const isGenerator = problems.length > 0 && result.generator.bottleneck.length > 0;
    const why = isGenerator ? result.generator.bottleneck : problems;
    const found = { rate, good: problems.length === 0, why, p99Ms: result.latencyMs.p99 };
    steps.push(found);
    onStep?.(found);
    if (result.stopped || isGenerator) return 'over';
    return found.good ? 'good' : 'bad';
  };
  for (let rate = startRate; ; ) {
    let outcome = await attempt(rate);
    if (outcome === 'bad') outcome = await attempt(rate);
    if (outcome === 'over') break;
    if (outcome === 'good') good = rate;
    else bad = rate;
    if (good === undefined || (bad !== undefined && bad <= good * GAP_MAX)) break;
    rate = Math.round(bad === undefined ? rate * GROWTH : Math.sqrt(good * bad));
  }
  return { knee: { lastGoodRate: good, firstBadRate: bad, steps }, results };
}
