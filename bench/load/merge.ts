/**
 * Merges results: of generators that ran at the same time, or of steps that followed each other.
 */
import type { Histogram } from 'hdr-histogram-js';
import { rateText } from './pace/pace.ts';
import { decodeHistogram, encodeHistogram, newHistogram, Recording } from './recording.ts';
import {
  type Facts,
  type GeneratorFigures,
  type LoadResult,
  percentilesOf,
  resultOf,
  type Second,
  type StageResult,
} from './result.ts';

/** Thrown when results cannot be merged. */
export class MergeError extends Error {
  override name = 'MergeError';
}

const sumBy = (results: readonly LoadResult[], of: (result: LoadResult) => number): number =>
  results.reduce((sum, result) => sum + of(result), 0);

function addedUp(counts: readonly Record<string, number>[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const one of counts)
    for (const [name, count] of Object.entries(one)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

const startOf = ({ startedAt }: LoadResult): number => Date.parse(startedAt);

/** Counts requests without an answer by reason: the failures that have no status. */
const unansweredOf = ({ failures }: LoadResult): Record<string, number> =>
  Object.fromEntries(Object.entries(failures).filter(([reason]) => !reason.startsWith('status ')));

function kindsOf(results: readonly LoadResult[]): string[] {
  return [...new Set(results.flatMap(({ histograms = [] }) => histograms.map(({ kind }) => kind)))];
}

function figuresOf(results: readonly LoadResult[]): GeneratorFigures {
  const worst = (of: (figures: GeneratorFigures) => number): number =>
    Math.max(...results.map(({ generator }) => of(generator)));
  const cpuUs = sumBy(results, (one) => one.generator.cpuUsPerRequest * one.requests);
  return {
    cpuUsPerRequest:
      cpuUs /
      Math.max(
        1,
        sumBy(results, ({ requests }) => requests),
      ),
    busy: worst(({ busy }) => busy),
    lateP50Ms: worst(({ lateP50Ms }) => lateP50Ms),
    lateP99Ms: worst(({ lateP99Ms }) => lateP99Ms),
    bottleneck: [...new Set(results.flatMap(({ generator }) => generator.bottleneck))],
  };
}

/** Merges the same second of several generators. */
function secondOf(parts: readonly Second[], second: number): Second {
  const latency = newHistogram();
  for (const { hdr } of parts) if (hdr !== undefined) latency.add(decodeHistogram(hdr));
  const { p50, p90, p95, p99, p999 } = percentilesOf(latency);
  const sum = (of: (part: Second) => number): number => parts.reduce((all, part) => all + of(part), 0);
  return {
    second,
    ms: Math.max(...parts.map(({ ms }) => ms)),
    ...(parts.every(({ late }) => late) && { late: true }),
    stage: Math.min(...parts.map(({ stage }) => stage)),
    sent: sum(({ sent }) => sent),
    ok: sum(({ ok }) => ok),
    failed: sum(({ failed }) => failed),
    statuses: addedUp(parts.map(({ statuses }) => statuses)),
    open: sum(({ open }) => open),
    ...{ p50Ms: p50, p90Ms: p90, p95Ms: p95, p99Ms: p99, p999Ms: p999 },
    hdr: encodeHistogram(latency),
  };
}

/**
 * Merges the seconds of several results. Seconds are matched by the wall clock, because generators
 * seldom start at the same moment.
 */
function secondsOf(results: readonly LoadResult[]): Second[] {
  const start = Math.min(...results.map(startOf));
  const parts = new Map<number, Second[]>();
  for (const result of results) {
    const offset = Math.round((startOf(result) - start) / 1000);
    for (const second of result.perSecond) {
      const at = second.second + offset;
      parts.set(at, [...(parts.get(at) ?? []), second]);
    }
  }
  return [...parts].sort(([a], [b]) => a - b).map(([at, of]) => secondOf(of, at));
}

function factsOf(
  results: readonly LoadResult[],
): Omit<Facts, 'segments' | 'seconds' | 'targetRate' | 'connections' | 'perSecond'> {
  const [first] = results as [LoadResult];
  return {
    loop: first.loop,
    startedAt: new Date(Math.min(...results.map(startOf))).toISOString(),
    expectedStatuses: first.expectedStatuses,
    expectedInAll: sumBy(results, ({ expectedInAll }) => expectedInAll),
    unanswered: addedUp(results.map(unansweredOf)),
    late: sumBy(results, ({ late }) => late),
    waited: sumBy(results, ({ waited }) => waited),
    wait: histogramOf(results, 'wait'),
    service: histogramOf(results, 'service'),
    unstored: addedUp(results.map(({ unstored }) => unstored)),
    sentBytes: sumBy(results, ({ sentBytes }) => sentBytes),
    workload: [...new Set(results.map(({ workload }) => workload))].join('+'),
    stopped: (results.find(({ stopped }) => stopped?.failed) ?? results.find(({ stopped }) => stopped))
      ?.stopped,
    generator: figuresOf(results),
  };
}

function histogramOf(results: readonly LoadResult[], part: 'wait' | 'service'): Histogram {
  const sum = newHistogram();
  for (const { parts } of results) if (parts) sum.add(decodeHistogram(parts[part]));
  return sum;
}

function combined(results: readonly LoadResult[], stageOffsets: readonly number[]): Recording {
  const kinds = kindsOf(results);
  const recording = new Recording(kinds);
  for (const [at, { histograms = [] }] of results.entries())
    recording.add(Recording.from(kinds, histograms, stageOffsets[at]));
  return recording;
}

const withHistograms = (recording: Recording, facts: Facts): LoadResult => ({
  ...resultOf(recording, facts),
  histograms: recording.toRecorded(),
  parts: { wait: encodeHistogram(facts.wait), service: encodeHistogram(facts.service) },
});

/**
 * Merges results of generators that shared one load: each ran the same plan at a part of the rate.
 * @throws MergeError when a result has no histograms, or another plan
 */
export function mergeParallel(results: readonly LoadResult[]): LoadResult {
  const [first] = results;
  if (!first) throw new MergeError('there is nothing to merge');
  for (const { histograms, stages, loop, expectedStatuses } of results) {
    if (!histograms) throw new MergeError('a result has no histograms: it is not of sluice load');
    const isSame = stages.every(
      ({ fromMs, toMs }, at) => first.stages[at]?.fromMs === fromMs && first.stages[at]?.toMs === toMs,
    );
    if (`${expectedStatuses}` !== `${first.expectedStatuses}`)
      throw new MergeError('the results expect different statuses: give every generator the same --expect');
    if (loop !== first.loop || stages.length !== first.stages.length || !isSame)
      throw new MergeError('the results are of different plans: give every generator the same stages');
  }
  const rateOf = (at: number, end: 'fromRate' | 'toRate'): number =>
    sumBy(results, ({ stages }) => stages[at]?.[end] ?? 0);
  const segments = first.stages.map(({ fromMs, toMs }, at) => {
    const ofAll = results.map(({ stages }) => stages[at] as StageResult);
    const [fromRate, toRate] = [rateOf(at, 'fromRate'), rateOf(at, 'toRate')];
    const spike = first.stages[at]?.name.startsWith('spike ') ? 'spike ' : '';
    const name = first.loop === 'closed' ? 'closed loop' : `${spike}${rateText(fromRate, toRate)}`;
    return {
      ...{ name, fromMs, toMs, fromRate, toRate },
      seconds: Math.max(...ofAll.map(({ seconds }) => seconds)),
      answered: ofAll.reduce((sum, { answered }) => sum + answered, 0),
      late: ofAll.reduce((sum, { late }) => sum + late, 0),
    };
  });
  return withHistograms(combined(results, []), {
    ...factsOf(results),
    segments,
    seconds: Math.max(...results.map(({ seconds }) => seconds)),
    targetRate: first.loop === 'open' ? sumBy(results, ({ targetRate }) => targetRate ?? 0) : undefined,
    connections: sumBy(results, ({ connections }) => connections),
    perSecond: secondsOf(results),
  });
}

/**
 * Joins results of runs that followed each other. The stages of each run come after those of
 * earlier runs.
 */
export function joinSteps(results: readonly LoadResult[]): LoadResult {
  let stages = 0;
  const offsets = results.map((result) => {
    const offset = stages;
    stages += result.stages.length;
    return offset;
  });
  const start = Math.min(...results.map(startOf));
  const segments = results.flatMap((result) =>
    result.stages.map((stage) => {
      const shift = startOf(result) - start;
      return { ...stage, fromMs: stage.fromMs + shift, toMs: stage.toMs + shift };
    }),
  );
  const perSecond = results.map((result, at) => ({
    ...result,
    perSecond: result.perSecond.map((second) => ({ ...second, stage: second.stage + (offsets[at] ?? 0) })),
  }));
  return withHistograms(combined(results, offsets), {
    ...factsOf(results),
    segments,
    seconds: sumBy(results, ({ seconds }) => seconds),
    targetRate: Math.max(...results.map(({ targetRate }) => targetRate ?? 0)),
    connections: Math.max(...results.map(({ connections }) => connections)),
    perSecond: secondsOf(perSecond),
  });
}
