/** What a run of the load generator found, as plain JSON. */
import type { Histogram } from 'hdr-histogram-js';
import type { Segment } from './pace/pace.ts';
import { isHeadline, NO_ANSWER, type Place, type Recorded, type Recording, TIMED_OUT } from './recording.ts';

/** Milliseconds; null where there is nothing to measure, as when every request was refused. */
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
 * The answers that came in one second, those to requests of the warm-up included. `second` counts
 * from 1. The percentiles count requests that had no answer yet, too, at their age: a server that
 * says nothing is not quick. SecondCounts leaves out those that are too young to tell. The
 * percentiles are null where nothing but refusals and broken connections came.
 */
export type Second = {
  second: number;
  /** How long it was: the last one of the measured time may be shorter. */
  ms: number;
  /** It came after the measured time. */
  late?: true;
  /** Place in `stages`. */
  stage: number;
  /** Of the requests that were intended in the measured time. */
  sent: number;
  ok: number;
  failed: number;
  statuses: Record<string, number>;
  /** Due, and without an answer at its end. */
  open: number;
  p50Ms: number | null;
  p90Ms: number | null;
  p95Ms: number | null;
  p99Ms: number | null;
  p999Ms: number | null;
  /** The second's headline latencies, for merging. */
  hdr?: string;
};

/** How a stage went by the clock, whenever its answers' requests were intended. */
export type Throughput = {
  /** How much of the stage there was before the run ended. */
  seconds: number;
  /** Expected answers that came in it. */
  answered: number;
  /** Expected answers to requests that were intended in it, and that came after its end. */
  late: number;
};

/** The requests that were intended in a stage, and its throughput; rates are the intended ones at its ends. */
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

/** How the generator itself fared. */
export type GeneratorFigures = {
  cpuUsPerRequest: number;
  /** Share of one core. */
  busy: number;
  lateP50Ms: number;
  lateP99Ms: number;
  /** Why these are figures of the generator rather than of the server; empty when they are not. */
  bottleneck: readonly string[];
};

/** What is known beside the latencies. */
export type Facts = {
  loop: 'open' | 'closed';
  targetRate: number | undefined;
  connections: number;
  /** RFC 3339: when the measured time began. */
  startedAt: string;
  seconds: number;
  expectedStatuses: readonly number[];
  segments: readonly (Segment & Throughput)[];
  /** Expected answers to requests of the measured time that came after it. */
  late: number;
  /** Requests that found every connection busy when they were due. */
  waited: number;
  /** Microseconds that successes and time-outs waited for a connection, and from being sent to the answer. */
  wait: Histogram;
  service: Histogram;
  /** Expected answers over the whole run, warm-up included. */
  expectedInAll: number;
  /** Why requests got no answer. */
  unanswered: Record<string, number>;
  /** 200s without usage headers, by what they say: nothing of these is stored. */
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
  /** Answered requests that were intended in the measured time. */
  requests: number;
  /** Those of them with a status that was expected. */
  expected: number;
  /** Other statuses, and requests without an answer. */
  failed: number;
  failures: Record<string, number>;
  statuses: Record<string, number>;
  /** Expected answers that came within the measured time, to requests of the warm-up, too. */
  answered: number;
  /** `answered` per second. */
  ratePerSec: number;
  /** The two parts of the latency: until there was a connection, and from then to the answer. */
  waitMs: Percentiles;
  serviceMs: Percentiles;
  /** Successes, and time-outs at the time that they took; refusals are not in it. */
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

/** Everything that follows from the histograms. */
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
