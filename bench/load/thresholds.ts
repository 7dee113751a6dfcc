/** What a run must reach. */
import type { LoadResult } from './result.ts';

export type Thresholds = {
  minRate?: number | undefined;
  maxP95Ms?: number | undefined;
  maxP99Ms?: number | undefined;
  maxP999Ms?: number | undefined;
  /** 0 unless this or the next is said. */
  maxFailures?: number | undefined;
  /** Of all requests, 0 to 1. */
  maxFailureShare?: number | undefined;
};

/** One threshold and how it went; `missed` is a sentence. */
export type Check = { name: string; figure: string; missed?: string };

const listed = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([reason, count]) => `${count} ${reason}`)
    .join(', ');

export const failureShare = ({ expected, failed }: { expected: number; failed: number }): number =>
  failed / Math.max(1, expected + failed);

function failureChecks(result: LoadResult, { maxFailures, maxFailureShare }: Thresholds): Check[] {
  const { failed, failures } = result;
  const allowed = maxFailures ?? (maxFailureShare === undefined ? 0 : undefined);
  const checks: Check[] = [];
  const what = failed === 0 ? '' : ` (${listed(failures)})`;
  if (allowed !== undefined)
    checks.push({
      name: `at most ${allowed} failures`,
      figure: `${failed}`,
      ...(failed > allowed && { missed: `${failed} requests failed${what}, allowed are ${allowed}` }),
    });
  if (maxFailureShare !== undefined) {
    const percent = `${(failureShare(result) * 100).toFixed(3)} %`;
    const said = `${percent} of the requests failed${what}, allowed are ${maxFailureShare * 100} %`;
    checks.push({
      name: `at most ${maxFailureShare * 100} % failures`,
      figure: percent,
      ...(failureShare(result) > maxFailureShare && { missed: said }),
    });
  }
  return checks;
}

function latencyChecks({ latencyMs }: LoadResult, thresholds: Thresholds): Check[] {
  const bounds = [
    ['p95', latencyMs.p95, thresholds.maxP95Ms],
    ['p99', latencyMs.p99, thresholds.maxP99Ms],
    ['p99.9', latencyMs.p999, thresholds.maxP999Ms],
  ] as const;
  return bounds.flatMap(([name, ms, most]) => {
    if (most === undefined) return [];
    const none = latencyMs.count === 0;
    const missed = none
      ? `no request was accepted, so it has no ${name}`
      : `${name} is ${ms} ms, allowed are ${most}`;
    const isMissed = none || ms > most;
    return [{ name: `${name} at most ${most} ms`, figure: `${ms} ms`, ...(isMissed && { missed }) }];
  });
}

export function checksOf(result: LoadResult, thresholds: Thresholds): Check[] {
  const { minRate } = thresholds;
  const { ratePerSec, requests, stopped } = result;
  const checks: Check[] = [
    {
      name: 'requests are answered',
      figure: `${requests}`,
      ...(requests === 0 && { missed: 'no request was answered' }),
    },
    ...failureChecks(result, thresholds),
    ...latencyChecks(result, thresholds),
  ];
  if (minRate !== undefined)
    checks.push({
      name: `at least ${minRate} requests/s`,
      figure: `${ratePerSec.toFixed(1)}/s`,
      ...(ratePerSec < minRate && {
        missed: `${ratePerSec.toFixed(1)} requests/s, wanted are at least ${minRate}`,
      }),
    });
  if (stopped?.failed) checks.push({ name: 'runs to its end', figure: 'aborted', missed: stopped.reason });
  return checks;
}

/** Sentences for what is not as it should be; empty: the run passes. */
export const violations = (result: LoadResult, thresholds: Thresholds): string[] =>
  checksOf(result, thresholds).flatMap(({ missed }) => missed ?? []);
