/**
 * One run of one scenario in fresh processes:
 *
 *     each project's first event → warm-up → saturation (closed loop)
 *             → open loop at half that rate
 *             → the processor starts and drains what has piled up
 *
 * A project's first event of a month costs more than any later one (the checkpoint is read, and its count begins), once: with ten
 * thousand projects a run of seconds would measure little else.
 *
 * The processor does not run beside the first two: on a machine of few cores their figures would be its, not ingest's.
 *
 * Costs are CPU time of each process over a phase, divided by the envelopes that the worker's own metrics count as accepted in it.
 */
import { runFresh } from '../fresh.ts';
import { Harness, type HarnessOptions, type Usage } from '../harness.ts';
import type { LoadOptions } from '../load/options.ts';
import type { LoadResult } from '../load/result.ts';
import { machineCpuUs } from '../processes.ts';
import { growth, type Samples, total } from '../scrape.ts';
import type { Target } from '../workload.ts';
import type { Scenario } from './scenarios.ts';

export type Durations = { warmupMs: number; saturationMs: number; openMs: number };

type Phase = {
  load: LoadResult;
  /** Envelopes accepted in the phase, by the worker's own count. */
  accepted: number;
  outcomes: Record<string, number>;
  /** CPU microseconds per request that was answered as expected; in a flood most of them are refusals. */
  costUs: Usage;
  redisCalls: Record<string, number>;
  publishes: number;
  /** Shares of one core. */
  busy: Usage;
  /** Cores that programs used which are no part of this: neighbours, and the little that the bench itself needs. */
  foreignCores: number;
};

export type SystemRun = {
  saturation: Phase;
  /** CPU microseconds per envelope: the processor's once it was warm, the broker's those of handing it over. */
  drain: { envelopes: number; seconds: number; processorUs: number; brokerUs: number; complete: boolean };
  open: Phase;
  peakRss: Usage;
  /** What forbids a headline. */
  problems: string[];
};

export type SystemOptions = Omit<HarnessOptions, 'workers' | 'broker' | 'streamMaxBytes'> & {
  scenario: Scenario;
  durations: Durations;
  seed: number;
  /** Open-loop rate; half of what saturation reached when it is not given. */
  openRate?: number | undefined;
};

const DRAIN_MS_MAX = 120_000;
/** Of the items. Until then the processor starts, and V8 compiles: its cost is that of the rest, where much is left. */
const WARM_SHARE = 0.25;
const WARM_REST_MIN = 20_000;
const WARM_POLL_MS = 20;
/** The load process connects and its first requests are cold in every phase. */
const RAMP_MS = 300;
const FIRST_EVENT = '{}\n{"type":"event"}\n{"message":"first"}';
const FIRST_EVENTS_IN_FLIGHT = 32;
const PARTS = ['worker', 'redis', 'broker', 'processor'] as const;

const perPart = (make: (part: (typeof PARTS)[number]) => number): Usage => ({
  worker: make('worker'),
  redis: make('redis'),
  broker: make('broker'),
  processor: make('processor'),
});

const sumOf = (usage: Usage): number => PARTS.reduce((sum, part) => sum + usage[part], 0);

/** Runs `load` and relates what it found to what the processes used meanwhile. */
async function phase(harness: Harness, load: LoadOptions, drain: boolean): Promise<Phase> {
  const before = { cpu: harness.cpu(), machine: machineCpuUs(), metrics: await harness.metrics() };
  const startedAt = performance.now();
  const result = await runFresh('load', load);
  const elapsedUs = (performance.now() - startedAt) * 1000;
  const foreignUs =
    machineCpuUs() -
    before.machine -
    result.generator.busy * elapsedUs -
    sumOf(harness.cpu()) +
    sumOf(before.cpu);
  // The processor's share of these envelopes includes what it does after the last answer.
  if (drain) await harness.drained(DRAIN_MS_MAX);
  const cpu = harness.cpu();
  const metrics = await harness.metrics();
  const outcomes = ingestOutcomes(before.metrics, metrics);
  const used = perPart((part) => cpu[part] - before.cpu[part]);
  const answered = Math.max(1, result.expectedInAll);
  return {
    load: result,
    accepted: outcomes.accepted ?? 0,
    outcomes,
    costUs: perPart((part) => used[part] / answered),
    redisCalls: growth(before.metrics, metrics, { name: 'sluice_redis_calls_total', label: 'script' }),
    publishes: total(metrics, 'sluice_publishes_total') - total(before.metrics, 'sluice_publishes_total'),
    busy: perPart((part) => used[part] / elapsedUs),
    foreignCores: Math.max(0, foreignUs / elapsedUs),
  };
}

function ingestOutcomes(before: Samples, after: Samples): Record<string, number> {
  const ingestOnly = (samples: Samples): Samples =>
    new Map([...samples].filter(([sample]) => sample.includes('endpoint="ingest"')));
  return growth(ingestOnly(before), ingestOnly(after), { name: 'sluice_requests_total', label: 'outcome' });
}

/** Sentences for everything that makes the figures of a phase worthless. */
function problemsOf(name: string, { load, outcomes, accepted }: Phase, scenario: Scenario): string[] {
  const problems: string[] = [];
  if (load.requests === 0) problems.push(`${name}: no request was answered`);
  if (load.failed > 0)
    problems.push(`${name}: ${load.failed} requests failed: ${JSON.stringify(load.failures)}`);
  const wanted = new Set(['accepted', ...(scenario.expected.includes(429) ? ['rate_limited'] : [])]);
  const odd = Object.entries(outcomes).filter(([outcome]) => !wanted.has(outcome));
  if (odd.length > 0) problems.push(`${name}: outcomes ${JSON.stringify(Object.fromEntries(odd))}`);
  const counted = accepted + (outcomes.rate_limited ?? 0);
  if (counted !== load.expectedInAll)
    problems.push(`${name}: the server counted ${counted} requests, the generator ${load.expectedInAll}`);
  return problems;
}

/** @throws when a part of the system does not start */
export async function runSystem(options: SystemOptions): Promise<SystemRun> {
  const { scenario } = options;
  const harness = await Harness.start({ ...options, ...scenario });
  try {
    const targets = await harness.createProjects(scenario.projects);
    await firstEvents(harness.url, targets);
    return await measure(harness, options, targets);
  } finally {
    await harness.stop();
  }
}

/** One event of each project, so that its month has begun. @throws when one is not answered with success */
export async function firstEvents(url: string, targets: readonly Target[]): Promise<void> {
  const queue = targets.values();
  const sendAll = async (): Promise<void> => {
    for (const { id, key } of queue) {
      const answer = await fetch(`${url}/api/${id}/envelope/?sentry_key=${key}`, {
        method: 'POST',
        body: FIRST_EVENT,
      });
      await answer.text();
      if (!answer.ok) throw new Error(`the first event of project ${id}: ${answer.status}`);
    }
  };
  await Promise.all(Array.from({ length: FIRST_EVENTS_IN_FLIGHT }, sendAll));
}

async function measure(
  harness: Harness,
  options: SystemOptions,
  targets: readonly Target[],
): Promise<SystemRun> {
  const { scenario, durations, seed } = options;
  const common = {
    url: harness.url,
    targets,
    mix: scenario.mix,
    sizes: scenario.sizes,
    encoding: scenario.encoding,
    connections: scenario.connections,
    warmupMs: RAMP_MS,
    seed,
    expected: [200, ...scenario.expected],
  };
  const warmupMs = Math.min(durations.warmupMs, scenario.warmupMsMax);
  if (warmupMs > 0) await runFresh('load', { ...common, durationMs: warmupMs });
  const saturation = await phase(harness, { ...common, durationMs: durations.saturationMs }, false);
  const rate = options.openRate ?? Math.max(1, Math.round(saturation.load.ratePerSec / 2));
  const open = await phase(harness, { ...common, rate, durationMs: durations.openMs }, false);
  const drain = await startAndDrain(harness);
  const problems = [
    ...problemsOf('saturation', saturation, scenario),
    ...problemsOf('open loop', open, scenario),
  ];
  if (!drain.complete) problems.push('the processor did not drain the streams in time');
  return { saturation, drain, open, peakRss: harness.peakRss(), problems };
}

async function startAndDrain(harness: Harness): Promise<SystemRun['drain']> {
  const ingest = await harness.metrics();
  const envelopes = total(ingest, 'sluice_requests_total', 'outcome="accepted"');
  const items = total(ingest, 'sluice_items_total');
  const start = { at: performance.now(), cpu: harness.cpu() };
  let warm = { done: 0, processor: 0 };
  await harness.startProcessor();
  for (let done = 0; done < items * WARM_SHARE && performance.now() - start.at < DRAIN_MS_MAX; ) {
    await new Promise((resolve) => setTimeout(resolve, WARM_POLL_MS));
    done = total(await harness.processorMetrics(), 'sluice_processed_total');
    if (done >= items * WARM_SHARE && items - done >= WARM_REST_MIN)
      warm = { done, processor: harness.cpu().processor };
  }
  const complete = await harness.drained(DRAIN_MS_MAX);
  const seconds = (performance.now() - start.at) / 1000;
  const { processor, broker } = harness.cpu();
  return {
    envelopes,
    seconds,
    processorUs: (processor - warm.processor) / Math.max(1, envelopes * (1 - warm.done / Math.max(1, items))),
    brokerUs: (broker - start.cpu.broker) / Math.max(1, envelopes),
    complete,
  };
}
