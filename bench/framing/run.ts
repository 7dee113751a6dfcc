/**
 * What frames give: the same load with frames and with one message per item, at several numbers of connections. Each step is a closed
 * loop while the processor is stopped, then the processor alone drains what has piled up: so the costs of both are apart, and both are warm.
 */
import { runFresh } from '../fresh.ts';
import { Harness, type HarnessOptions } from '../harness.ts';
import { type Phase, phase, problemsOf } from '../system/run.ts';
import { scenarioNamed } from '../system/scenarios.ts';
import type { Target } from '../workload.ts';

export type FramingOptions = Omit<HarnessOptions, 'workers'> & {
  connections: readonly number[];
  warmupMs: number;
  durationMs: number;
  seed: number;
};

/** An item is an envelope here: each has one. CPU in microseconds per item. */
export type FramingRow = {
  connections: number;
  itemsPerSec: number;
  itemsPerPublish: number;
  publishesPerSec: number;
  /** Of the closed loop. */
  p50Ms: number;
  workerUs: number;
  /** Of the broker: while items come in, and while they go out. */
  brokerUs: number;
  brokerDrainUs: number;
  processorUs: number;
  /** Cores that other programs used meanwhile. */
  foreignCores: number;
};
export type FramingRun = { rows: FramingRow[]; problems: string[] };

const DRAIN_MS_MAX = 60_000;
/** Connects, and sends what is cold. */
const RAMP_MS = 300;
/** Error events of 1.9 KB: one item per envelope, so that items, envelopes and entries are the same number. */
const SCENARIO = scenarioNamed('single-event');

class FramingBench {
  readonly #harness: Harness;
  readonly #targets: readonly Target[];
  readonly #seed: number;
  readonly problems: string[] = [];

  constructor(harness: Harness, targets: readonly Target[], seed: number) {
    this.#harness = harness;
    this.#targets = targets;
    this.#seed = seed;
  }

  async warmUp(connections: number, durationMs: number): Promise<void> {
    await runFresh('load', { ...this.#load(connections), durationMs });
    await this.#harness.startProcessor();
    await this.#drain();
  }

  async measure(connections: number, durationMs: number): Promise<FramingRow> {
    this.#harness.signalProcessor('SIGSTOP');
    const found = await phase(this.#harness, { ...this.#load(connections), durationMs }, false);
    this.problems.push(...problemsOf(`${connections} connections`, found, SCENARIO));
    const before = this.#harness.cpu();
    this.#harness.signalProcessor('SIGCONT');
    await this.#drain();
    const after = this.#harness.cpu();
    const items = Math.max(1, found.accepted);
    return {
      ...rowOf(connections, found),
      brokerDrainUs: (after.broker - before.broker) / items,
      processorUs: (after.processor - before.processor) / items,
    };
  }

  #load(connections: number) {
    const { mix, encoding } = SCENARIO;
    const common = { url: this.#harness.url, targets: this.#targets, mix, encoding, seed: this.#seed };
    return { ...common, connections, warmupMs: RAMP_MS };
  }

  async #drain(): Promise<void> {
    if (!(await this.#harness.drained(DRAIN_MS_MAX)))
      this.problems.push('the processor did not drain the streams in time');
  }
}

function rowOf(connections: number, { load, accepted, publishes, costUs, foreignCores }: Phase) {
  const itemsPerPublish = accepted / Math.max(1, publishes);
  return {
    connections,
    itemsPerSec: load.ratePerSec,
    itemsPerPublish,
    publishesPerSec: load.ratePerSec / itemsPerPublish,
    p50Ms: load.latencyMs.p50,
    workerUs: costUs.worker,
    brokerUs: costUs.broker,
    foreignCores,
  };
}

/** @throws when a part of the system does not start */
export async function runFraming(options: FramingOptions): Promise<FramingRun> {
  const { connections, warmupMs, durationMs, seed } = options;
  const harness = await Harness.start(options);
  try {
    const bench = new FramingBench(harness, await harness.createProjects(SCENARIO.projects), seed);
    await bench.warmUp(connections.at(-1) ?? 1, warmupMs);
    const rows: FramingRow[] = [];
    for (const count of connections) rows.push(await bench.measure(count, durationMs));
    return { rows, problems: bench.problems };
  } finally {
    await harness.stop();
  }
}
