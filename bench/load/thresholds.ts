/** Thresholds that a run must meet. */
import type { LoadResult, Percentiles } from './result.ts';

export type Thresholds = {
  minRate?: number | undefined;
  maxP95Ms?: number | undefined;
  maxP99Ms?: number | undefined;
  maxP999Ms?: number | undefined;
  /** Most failed requests. 0 when neither this nor `maxFailureShare` is given. */
  maxFailures?: number | undefined;
  /** Largest share of failed requests among all, 0 to 1. */
  maxFailureShare?: number | undefined;
  /** Most requests that were answered 200 while nothing of them is stored. */
  maxUnstored?: number | undefined;
  bounds?: readonly Bound[] | undefined;
};

/**
 * A bound such as `transaction:p95>200`: the run fails when this is true. Without `where` it is
 * about all requests.
 */
export type Bound = {
  text: string;
  where: string | undefined;
  figure: string;
  isAbove: boolean;
  value: number;
};

/**
 * The check of one threshold. `missed` is a sentence, present only when the threshold was missed.
 */
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
    const missed =
      ms === null
        ? `no request was accepted, so it has no ${name}`
        : `${name} is ${ms} ms, allowed are ${most}`;
    const isMissed = ms === null || ms > most;
    const found = ms === null ? 'none' : `${ms} ms`;
    return [{ name: `${name} at most ${most} ms`, figure: found, ...(isMissed && { missed }) }];
  });
}

/**
 * Checks the 200s of which nothing is stored.
 * @param found how many of them the sink has all the same, as in development without Redis
 */
export function unstoredChecks({ unstored }: LoadResult, max: number | undefined, found = 0): Check[] {
  if (max === undefined) return [];
  const count = Math.max(0, Object.values(unstored).reduce((sum, one) => sum + one, 0) - found);
  const missed = `${count} requests were told 200 and nothing of them is stored (${listed(unstored)}), allowed are ${max}`;
  const name = `at most ${max} are told 200 and not stored`;
  return [{ name, figure: `${count}`, ...(count > max && { missed }) }];
}

const BOUND = /^(?:([^:<>]+):)?(mean|p50|p90|p95|p99|p99\.9|max|count|rate|share)([<>])(\d+(?:\.\d+)?)(%?)$/;

/**
 * Parses a bound.
 * @returns undefined when the text is no bound
 */
export function parseBound(text: string): Bound | undefined {
  const [, where, figure, sign, number, percent] = BOUND.exec(text) ?? [];
  if (figure === undefined || (figure === 'share') !== (percent === '%')) return undefined;
  return { text, where, figure, isAbove: sign === '>', value: Number(number) };
}

/**
 * Returns the latencies and the rate of a part of the run. `where` is `wait` or `service` (the
 * parts of the latency), a kind, a status (`429`, `time-out`) or a stage (`stage 2`); undefined
 * means all requests.
 * @returns undefined when the run has no such part
 */
function placeOf(
  result: LoadResult,
  where: string | undefined,
): { of: Percentiles; rate: number } | undefined {
  const { seconds, latencyMs, ratePerSec, byKind, byStatus, stages, waitMs, serviceMs } = result;
  if (where === undefined) return { of: latencyMs, rate: ratePerSec };
  const nth = /^stage (\d+)$/.exec(where)?.[1];
  const stage = nth === undefined ? undefined : stages[Number(nth) - 1];
  if (stage) return { of: stage.latencyMs, rate: stage.ratePerSec };
  const of = { wait: waitMs, service: serviceMs }[where] ?? byKind[where] ?? byStatus[where];
  return of && { of, rate: of.count / Math.max(seconds, 1e-9) };
}

function boundCheck(result: LoadResult, { text, where, figure, isAbove, value }: Bound): Check {
  const place = placeOf(result, where);
  const name = `not ${text}`;
  // A status that never came counts as 0 requests. A kind or a stage that the run does not have is
  // a mistake.
  const isStatus = /^(\d{3}|time-out|no answer)$/.test(where ?? '');
  if (!place && !isStatus) return { name, figure: 'none', missed: `${text}: nothing of "${where}" was sent` };
  const { of, rate } = place ?? { of: undefined, rate: 0 };
  const count = of?.count ?? 0;
  if (of && count === 0 && !['count', 'rate', 'share'].includes(figure))
    return { name, figure: 'none', missed: `${text}: no request was accepted, so it has no ${figure}` };
  const share = (100 * count) / Math.max(1, result.expected + result.failed);
  const figures: Record<string, number | null | undefined> = { ...of, 'p99.9': of?.p999, count, rate, share };
  const found = figures[figure] ?? 0;
  const isMissed = isAbove ? found > value : found < value;
  return { name, figure: `${found}`, ...(isMissed && { missed: `${text}: it is ${found}` }) };
}

export function checksOf(result: LoadResult, thresholds: Thresholds): Check[] {
  const { minRate, bounds = [] } = thresholds;
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
  checks.push(...bounds.map((bound) => boundCheck(result, bound)));
  if (stopped?.failed) checks.push({ name: 'runs to its end', figure: 'aborted', missed: stopped.reason });
  return checks;
}

/** Returns a sentence for each check that failed; none when the run passes. */
export const violations = (result: LoadResult, thresholds: Thresholds): string[] =>
  checksOf(result, thresholds).flatMap(({ missed }) => missed ?? []);
