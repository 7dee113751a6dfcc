/**
 * `npm run bench -- rates [RATE …] [--sink NAME] [--servers N] [--sync-always] [--rounds N] [--seconds N] [--seed N] [--smoke] [--out FILE]`: what an event costs
 * from its socket to its store at a few hundred a second, where most users are, and at saturation; and what the processes use at rest.
 * Fails when a request was not answered with 200, or an event is not stored in the end.
 *
 * At a low rate a wake-up costs more than the work that follows it, so wake-ups are counted, too: the voluntary context switches of all
 * threads. Their number, unlike the CPU time, is the same on every machine.
 */
import { appendFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ensureServers } from '../src/commands/dev/install.ts';
import { hostEnvironment } from '../src/config.ts';
import type { NewProject } from '../src/projects/project-store.ts';
import { describeEnvironment } from './environment.ts';
import { runFresh } from './fresh.ts';
import { Harness, OWN_DIST, STREAM_BYTES_FULL, STREAM_BYTES_SMOKE } from './harness.ts';
import { UsageError } from './load/command/values.ts';
import type { LoadOptions } from './load/options.ts';
import { cpuUs, residentBytes, wakeUps } from './processes.ts';
import { total } from './scrape.ts';
import { type Store, startStore } from './sinks/stores.ts';
import { median } from './statistics.ts';
import type { Target } from './workload.ts';

const RATES = [400, 2_000];
const WARM_UP_MS = 8_000;
const CONNECTIONS = 64;
/** The load process connects, and its first requests are cold. */
const RAMP_MS = 1_000;
const DRAIN_MS_MAX = 60_000;
const SECONDS = 10;
const ROUNDS = 3;
const PARTS = ['primary', 'worker', 'redis', 'broker', 'processor', 'store'] as const;
type Part = (typeof PARTS)[number];

/** What the processes did so far: CPU µs and wake-ups. */
type Used = Record<Part, { us: number; wakes: number }>;
/** A phase: figures of an event; of a second where the phase is rest. `name`: its rate. */
type Row = { name: string; used: Used; p50: number; p99: number; problems: string[] };

const MIB = 1024 * 1024;
const sum = (pids: readonly number[], of: (pid: number) => number): number =>
  pids.reduce((all, pid) => all + of(pid), 0);
const say = (line: string): void => void process.stderr.write(`${line}\n`);

class Scene {
  readonly harness: Harness;
  readonly target: Target;
  readonly store: Store;
  readonly seed: number;

  constructor(parts: { harness: Harness; target: Target; store: Store; seed: number }) {
    this.harness = parts.harness;
    this.target = parts.target;
    this.store = parts.store;
    this.seed = parts.seed;
  }

  used(): Used {
    const pids = this.harness.pids();
    const of = (part: Exclude<Part, 'store'>) => ({
      us: sum(pids[part], cpuUs),
      wakes: sum(pids[part], wakeUps),
    });
    return {
      primary: of('primary'),
      worker: of('worker'),
      redis: of('redis'),
      broker: of('broker'),
      processor: of('processor'),
      store: { us: this.store.cpuUs() ?? 0, wakes: 0 },
    };
  }

  /** Resident memory in MiB, by part. */
  memory(): [part: string, mib: number][] {
    return Object.entries(this.harness.pids()).map(([part, pids]) => [part, sum(pids, residentBytes) / MIB]);
  }

  async #stored(): Promise<number> {
    return total(await this.harness.processorMetrics(), 'sluice_processed_total', 'result="stored"');
  }

  #load(rate: number | undefined, durationMs: number): LoadOptions {
    return {
      url: this.harness.url,
      targets: [this.target],
      mix: { event: 1 },
      encoding: 'none',
      connections: CONNECTIONS,
      rate,
      warmupMs: RAMP_MS,
      durationMs,
      seed: this.seed,
    };
  }

  /** @param rate undefined: a closed loop, as fast as it goes */
  async phase(rate: number | undefined, durationMs: number): Promise<Row> {
    const storedBefore = await this.#stored();
    const before = this.used();
    const load = await runFresh('load', this.#load(rate, durationMs));
    const isDrained = await this.harness.drained(DRAIN_MS_MAX);
    const after = this.used();
    const missing = storedBefore + load.expectedInAll - (await this.#stored());
    const problems: string[] = [];
    if (load.failed > 0) problems.push(`${load.failed} requests failed: ${JSON.stringify(load.failures)}`);
    if (!isDrained) problems.push('the streams were not emptied');
    if (missing !== 0) problems.push(`${missing} of ${load.expectedInAll} events are not stored`);
    const name = rate === undefined ? `${load.ratePerSec.toFixed(0)}/s, full` : `${rate}/s`;
    const { p50, p99 } = load.latencyMs;
    const used = per(load.expectedInAll, before, after);
    return { name, used, p50: p50 ?? Number.NaN, p99: p99 ?? Number.NaN, problems };
  }

  async rest(durationMs: number): Promise<Row> {
    const before = this.used();
    await pause(durationMs);
    const used = per(durationMs / 1000, before, this.used());
    return { name: 'at rest', used, p50: Number.NaN, p99: Number.NaN, problems: [] };
  }
}

function per(count: number, before: Used, after: Used): Used {
  const part = (name: Part) => ({
    us: (after[name].us - before[name].us) / count,
    wakes: (after[name].wakes - before[name].wakes) / count,
  });
  return Object.fromEntries(PARTS.map((name) => [name, part(name)])) as Used;
}

// ---- the table ----

const WIDTH = 11;
const HEAD = [
  'µs (wake-ups)'.padEnd(16),
  ...[...PARTS, 'all', 'p50 ms', 'p99 ms'].map((word) => word.padStart(WIDTH)),
].join('');

/** The medians of the rounds of one phase. */
function line(rows: readonly Row[]): string {
  const cell = (part: Part): string => {
    const us = median(rows.map(({ used }) => used[part].us));
    const wakes = median(rows.map(({ used }) => used[part].wakes));
    return wakes === 0 ? us.toFixed(0) : `${us.toFixed(0)} (${wakes.toFixed(1)})`;
  };
  const all = median(rows.map(({ used }) => PARTS.reduce((sofar, part) => sofar + used[part].us, 0)));
  const ms = (of: (row: Row) => number): string => {
    const value = median(rows.map(of));
    return Number.isNaN(value) ? '' : value.toFixed(1);
  };
  const cells = [...PARTS.map(cell), all.toFixed(0), ms(({ p50 }) => p50), ms(({ p99 }) => p99)];
  const name = rows[0]?.name ?? '';
  return [name.padEnd(16), ...cells.map((text) => text.padStart(WIDTH))].join('');
}

const memoryLine = (when: string, memory: readonly [string, number][]): string => {
  const all = memory.reduce((before, [, mib]) => before + mib, 0);
  const parts = memory.map(([part, mib]) => `${part} ${mib.toFixed(0)}`);
  return `MiB ${when}: ${all.toFixed(0)} (${parts.join(', ')})`;
};

// ---- the command ----

/** One project without a limit, far from its quota. */
const PROJECT: NewProject = { plan: 'Pro', quota: 1e9, overage: false, filters: [], allowedOrigins: [] };

type Options = { rates: readonly number[]; rounds: number; seconds: number };
async function measure(scene: Scene, { rates, rounds, seconds }: Options): Promise<[string[], Row[]]> {
  const ms = seconds * 1000;
  const lines = [HEAD];
  const atRest = memoryLine('at rest, fresh', scene.memory());
  await scene.phase(undefined, Math.min(WARM_UP_MS, ms));
  const phases = new Map<string, Row[]>();
  const keep = (name: string, row: Row): void => {
    phases.set(name, [...(phases.get(name) ?? []), row]);
    say(line([row]));
  };
  for (let round = 0; round < rounds; round++) {
    say(`round ${round + 1}`);
    keep('rest', await scene.rest(ms));
    for (const rate of rates) keep(`${rate}`, await scene.phase(rate, ms));
    keep('full', await scene.phase(undefined, ms));
  }
  for (const rows of phases.values()) lines.push(line(rows));
  lines.push(atRest, memoryLine('after saturation', scene.memory()));
  return [lines, [...phases.values()].flat()];
}

function whole(name: string, text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new UsageError(`${name}: a whole number from 1`);
  return Number(text);
}

/** @returns exit status */
export async function ratesCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      sink: { type: 'string', default: 'ndjson' },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      seed: { type: 'string', default: '1' },
      smoke: { type: 'boolean', default: false },
      servers: { type: 'string', default: '1' },
      'sync-always': { type: 'boolean', default: false },
      out: { type: 'string' },
    },
  });
  const { smoke } = values;
  const options = {
    rates: positionals.length > 0 ? positionals.map((text) => whole('RATE', text)) : RATES,
    rounds: whole('--rounds', values.rounds ?? `${smoke ? 1 : ROUNDS}`),
    seconds: whole('--seconds', values.seconds ?? `${smoke ? 1 : SECONDS}`),
  };
  const broker = { servers: whole('--servers', values.servers), syncAlways: values['sync-always'] };
  const bins = ensureServers(hostEnvironment(), say);
  const store = await startStore(values.sink);
  if (!store) throw new UsageError(`${values.sink}: no store here; npm run test:sinks installs it`);
  const harness = await Harness.start({
    dist: OWN_DIST,
    bins,
    streamMaxBytes: smoke ? STREAM_BYTES_SMOKE : STREAM_BYTES_FULL,
    sink: store.setting,
    broker,
  }).catch(async (error) => {
    await store.stop();
    throw error;
  });
  try {
    await harness.startProcessor();
    const [target] = await harness.createProjects([PROJECT]);
    const scene = new Scene({ harness, target: target as Target, store, seed: Number(values.seed) });
    const [lines, rows] = await measure(scene, options);
    const problems = rows.flatMap(({ name, problems }) => problems.map((problem) => `${name}: ${problem}`));
    const { cpu, cores, commit, natsServer } = describeEnvironment(bins);
    const machine = `${cpu}, ${cores} cores, Node ${process.version}, nats-server ${natsServer}, ${commit}`;
    const syncs = broker.syncAlways ? ', sync_interval always' : '';
    const parts = `${values.sink.replace(/:.*/, '')}, ${broker.servers} nats-server${syncs}`;
    const title = `rates, ${parts} (${machine}; ${options.rounds} rounds of ${options.seconds} s)`;
    const text = [title, ...lines, ...problems, ''].join('\n');
    process.stdout.write(text);
    if (values.out !== undefined) appendFileSync(values.out, text);
    return problems.length > 0 ? 1 : 0;
  } finally {
    await harness.stop();
    await store.stop();
  }
}
