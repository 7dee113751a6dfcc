/** What a run of the load generator found, as plain JSON. */
import type { Histogram } from 'hdr-histogram-js';

/** Milliseconds. `points`: [percentile, ms] from 0 to 100, for plots. */
export type Latency = {
  mean: number;
  p50: number;
  p90: number;
  p99: number;
  p999: number;
  max: number;
  points: readonly (readonly [percentile: number, ms: number])[];
};

export type Second = { second: number; ok: number; failed: number; p50Ms: number; p99Ms: number };

export type LoadResult = {
  loop: 'open' | 'closed';
  targetRate: number | undefined;
  connections: number;
  seconds: number;
  /** Answered requests that were intended in the measured time. */
  requests: number;
  /** Those of them with a status that was expected. */
  expected: number;
  /** The same over the whole run, warm-up included. */
  expectedInAll: number;
  /** Other statuses, and requests without an answer. */
  failed: number;
  failures: Record<string, number>;
  statuses: Record<string, number>;
  /** Expected answers per second of the measured time. */
  ratePerSec: number;
  sentBytes: number;
  latencyMs: Latency;
  perSecond: readonly Second[];
  /** Checksum of what was sent. */
  workload: string;
  generator: {
    cpuUsPerRequest: number;
    /** Share of one core. */
    busy: number;
    lateP50Ms: number;
    lateP99Ms: number;
    /** Why these are figures of the generator rather than of the server; empty when they are not. */
    bottleneck: readonly string[];
  };
};

const PLOTTED = [0, 10, 25, 50, 75, 90, 95, 97.5, 99, 99.5, 99.75, 99.9, 99.95, 99.99, 99.999, 100];

/** @param histogram of microseconds */
export function latencyOf(histogram: Histogram): Latency {
  const at = (percentile: number): number =>
    histogram.totalCount === 0 ? 0 : histogram.getValueAtPercentile(percentile) / 1000;
  return {
    mean: histogram.totalCount === 0 ? 0 : histogram.mean / 1000,
    p50: at(50),
    p90: at(90),
    p99: at(99),
    p999: at(99.9),
    max: at(100),
    points: PLOTTED.map((percentile) => [percentile, at(percentile)] as const),
  };
}

export type Thresholds = {
  minRate?: number | undefined;
  maxP99Ms?: number | undefined;
  maxP999Ms?: number | undefined;
  /** 0 unless said otherwise. */
  maxFailures?: number | undefined;
};

/** Sentences for what is not as it should be; empty: the run passes. */
export function violations(result: LoadResult, thresholds: Thresholds): string[] {
  const { minRate, maxP99Ms, maxP999Ms, maxFailures = 0 } = thresholds;
  const { latencyMs, ratePerSec, failed } = result;
  const said: string[] = [];
  if (result.requests === 0) said.push('no request was answered');
  if (failed > maxFailures)
    said.push(`${failed} requests failed (${listed(result.failures)}), allowed are ${maxFailures}`);
  if (minRate !== undefined && ratePerSec < minRate)
    said.push(`${ratePerSec.toFixed(1)} requests/s, wanted are at least ${minRate}`);
  if (maxP99Ms !== undefined && latencyMs.p99 > maxP99Ms)
    said.push(`p99 is ${latencyMs.p99} ms, allowed are ${maxP99Ms}`);
  if (maxP999Ms !== undefined && latencyMs.p999 > maxP999Ms)
    said.push(`p99.9 is ${latencyMs.p999} ms, allowed are ${maxP999Ms}`);
  return said;
}

const listed = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([reason, count]) => `${count} ${reason}`)
    .join(', ');
