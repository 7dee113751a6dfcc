/** What a run of the load generator found, as plain JSON. */
import type { Histogram } from 'hdr-histogram-js';
import type { Segment } from './pace/pace.ts';
import { isHeadline, NO_ANSWER, type Place, type Recorded, type Recording, TIMED_OUT } from './recording.ts';

/**
 * Latencies in milliseconds; null when there was nothing to measure, for example when every request
 * was refused.
 */
export type Percentiles = {
  count: number;
  mean: number | null;
  p50: number | null;
  p90: number | null;
  p95: number | null;
  p99: number | null;
  p999: number | null;
  max: number | null;
};
/** `points`: [percentile, ms] from 0 to 100, for plots. */
export type Latency = Percentiles & { points: readonly (readonly [percentile: number, ms: number])[] };

/**
 * The answers that came in one second, including those to requests of the warm-up. `second` counts
 * from 1. The percentiles include requests without an answer, at their age, so that a server that
 * does not answer does not look quick. SecondCounts says which of these are left out. The
 * percentiles are null when the second had only refusals and broken connections.
 */
export type Second = {
  second: number;
  /** Length of the second. The last one of the measured time may be shorter. */
  ms: number;
  /** Set when the second came after the measured time. */
  late?: true;
  /** Index in `stages`. */
  stage: number;
  /** Requests of the measured time that were sent in this second. */
  sent: number;
  ok: number;
  failed: number;
  statuses: Record<string, number>;
  /** Requests that were due but had no answer at the end of the second. */
  open: number;
  p50Ms: number | null;
  p90Ms: number | null;
  p95Ms: number | null;
  p99Ms: number | null;
  p999Ms: number | null;
  /** Histogram of the second's headline latencies, for `sluice load merge`. */
  hdr?: string;
};

/** Counts the answers of a stage by the clock, no matter when their requests were due. */
export type Throughput = {
  /** Length of the stage, which the end of the run may have cut. */
  seconds: number;
  /** Expected answers that came during the stage. */
  answered: number;
  /** Expected answers to requests of the stage that came after its end. */
  late: number;
};

/**
 * The requests that were due in a stage, and its throughput. `fromRate` and `toRate` are the
 * intended rates at its start and end.
 */
export type StageResult = Segment &
  Throughput & {
    /** `answered` per second. */
    ratePerSec: number;
    requests: number;
    ok: number;
    failed: number;
    latencyMs: Percentiles;
    statuses: Record<string, number>;
  };

/** The generator's own figures. */
export type GeneratorFigures = {
  cpuUsPerRequest: number;
  /** Share of one core that the generator used. */
  busy: number;
  lateP50Ms: number;
  lateP99Ms: number;
  /**
   * Why the run measured the generator rather than the server; empty when it measured the server.
   */
  bottleneck: readonly string[];
};

/** Everything in a result that does not follow from the histograms of latencies. */
export type Facts = {
  loop: 'open' | 'closed';
  targetRate: number | undefined;
  connections: number;
  /** RFC 3339: when the measured time began. */
  startedAt: string;
  seconds: number;
  expectedStatuses: readonly number[];
  segments: readonly (Segment & Throughput)[];
  /** Expected answers that came after the measured time, to requests of the measured time. */
  late: number;
  /** Requests that found every connection busy when they were due. */
  waited: number;
  /**
   * The two parts of the headline latencies, in microseconds: `wait` until there was a connection,
   * and `service` from then to the answer.
   */
  wait: Histogram;
  service: Histogram;
  /** Expected answers of the whole run, including the warm-up. */
  expectedInAll: number;
  /** Counts of requests without an answer, by reason. */
  unanswered: Record<string, number>;
  /**
   * Counts of 200s without usage headers, by the reason that the answer gives. Nothing of these
   * requests is stored.
   */
  unstored: Record<string, number>;
  sentBytes: number;
  perSecond: readonly Second[];
  /** Checksum of what was sent. */
  workload: string;
  /** Why the run ended before its time. */
  stopped?: { reason: string; failed: boolean } | undefined;
  generator: GeneratorFigures;
};

export type LoadResult = Omit<Facts, 'segments' | 'unanswered' | 'wait' | 'service'> & {
  /** Requests of the measured time that were answered. */
  requests: number;
  /** Requests of the measured time that were answered with an expected status. */
  expected: number;
  /** Requests of the measured time that had another status or no answer. */
  failed: number;
  failures: Record<string, number>;
  statuses: Record<string, number>;
  /**
   * Expected answers that came within the measured time. Answers to requests of the warm-up are
   * included.
   */
  answered: number;
  /** `answered` per second. */
  ratePerSec: number;
  /**
   * The two parts of the latency: `waitMs` until there was a connection, and `serviceMs` from then
   * to the answer.
   */
  waitMs: Percentiles;
  serviceMs: Percentiles;
  /**
   * The headline latency: of successes, and of time-outs at the time that they took. Refusals and
   * broken connections are left out.
   */
  latencyMs: Latency;
  byStatus: Record<string, Percentiles>;
  byKind: Record<string, Percentiles>;
  stages: readonly StageResult[];
  /** For `sluice load merge`. */
  histograms?: readonly Recorded[] | undefined;
  parts?: { wait: string; service: string } | undefined;
};

const PLOTTED = [0, 10, 25, 50, 75, 90, 95, 97.5, 99, 99.5, 99.75, 99.9, 99.95, 99.99, 99.999, 100];

const percentileOf = (histogram: Histogram, percentile: number): number | null =>
  histogram.totalCount === 0 ? null : histogram.getValueAtPercentile(percentile) / 1000;

/** @param histogram of microseconds */
export function percentilesOf(histogram: Histogram): Percentiles {
  const at = (percentile: number): number | null => percentileOf(histogram, percentile);
  return {
    count: histogram.totalCount,
    mean: histogram.totalCount === 0 ? null : histogram.mean / 1000,
    p50: at(50),
    p90: at(90),
    p95: at(95),
    p99: at(99),
    p999: at(99.9),
    max: at(100),
  };
}

/** @param histogram of microseconds */
export const latencyOf = (histogram: Histogram): Latency => ({
  ...percentilesOf(histogram),
  points: PLOTTED.flatMap((percentile) => {
    const ms = percentileOf(histogram, percentile);
    return ms === null ? [] : [[percentile, ms] as const];
  }),
});

export const statusName = (status: number): string =>
  ({ [NO_ANSWER]: 'no answer', [TIMED_OUT]: 'time-out' })[status] ?? `${status}`;

const byName = (counts: ReadonlyMap<number, number>): Record<string, number> =>
  Object.fromEntries([...counts].map(([status, count]) => [statusName(status), count]));

function countsOf(counts: ReadonlyMap<number, number>, expectedStatuses: readonly number[]) {
  const sum = (matches: (status: number) => boolean): number =>
    [...counts].reduce((all, [status, count]) => (matches(status) ? all + count : all), 0);
  const expected = sum((status) => expectedStatuses.includes(status));
  return {
    requests: sum((status) => status > TIMED_OUT),
    expected,
    failed: sum(() => true) - expected,
  };
}

function stageOf(recording: Recording, stage: number, { segments, expectedStatuses }: Facts): StageResult {
  const statuses = recording.statuses(stage);
  const { requests, expected: ok, failed } = countsOf(statuses, expectedStatuses);
  const latencies = recording.sum((place) => place.stage === stage && isHeadline(place.status));
  const latencyMs = percentilesOf(latencies);
  const segment = segments[stage] as Segment & Throughput;
  const ratePerSec = segment.seconds > 0 ? segment.answered / segment.seconds : 0;
  return { ...segment, ratePerSec, requests, ok, failed, latencyMs, statuses: byName(statuses) };
}

/** Makes the result from the histograms and the other facts. */
export function resultOf(recording: Recording, facts: Facts): LoadResult {
  const { segments, unanswered, wait, service, ...told } = facts;
  const answeredInTime = segments.reduce((sum, segment) => sum + segment.answered, 0);
  const statuses = recording.statuses();
  const answered = new Map([...statuses].filter(([status]) => status > TIMED_OUT));
  const { requests, expected, failed } = countsOf(statuses, facts.expectedStatuses);
  const unexpected = [...answered].filter(([status]) => !facts.expectedStatuses.includes(status));
  const percentiles = (matches: (place: Place & { status: number }) => boolean): Percentiles =>
    percentilesOf(recording.sum(matches));
  return {
    ...told,
    requests,
    expected,
    failed,
    failures: {
      ...unanswered,
      ...Object.fromEntries(unexpected.map(([status, count]) => [`status ${status}`, count])),
    },
    statuses: byName(answered),
    answered: answeredInTime,
    ratePerSec: facts.seconds === 0 ? 0 : answeredInTime / facts.seconds,
    waitMs: percentilesOf(wait),
    serviceMs: percentilesOf(service),
    latencyMs: latencyOf(recording.sum(({ status }) => isHeadline(status))),
    byStatus: Object.fromEntries(
      [...statuses.keys()].map((status) => [statusName(status), percentiles((at) => at.status === status)]),
    ),
    byKind: Object.fromEntries(
      recording
        .kindsSeen()
        .map((kind) => [
          recording.kinds[kind] as string,
          percentiles((at) => at.kind === kind && isHeadline(at.status)),
        ]),
    ),
    stages: segments.map((_, stage) => stageOf(recording, stage, facts)),
  };
}
