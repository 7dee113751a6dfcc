/**
 * Two servers up at once and loaded in turn, burst by burst, now the one first and now the other: what a machine that wavers from minute to
 * minute can still tell is the ratio of two bursts that follow one another. A scenario's own run (system/run.ts) is a minute from the next.
 */
import { freePort } from '../src/commands/dev/servers.ts';
import { runFresh, startFresh } from './fresh.ts';
import { Harness, type HarnessOptions } from './harness.ts';
import type { LoadOptions } from './load/options.ts';
import { cpuUs } from './processes.ts';
import { median } from './statistics.ts';
import { firstEvents } from './system/run.ts';
import type { Scenario } from './system/scenarios.ts';

/** A scenario of the whole system, or its load on the bare handler. `dist`: another build than that of the run. */
export type Side = { scenario: Scenario; bare?: boolean; dist?: string };
export type Pair = { name: string; first: Side; second: Side };

export type PairRun = {
  /** CPU microseconds of a server's workers per answer, burst by burst; those at the same place followed one another. */
  costUs: { first: number[]; second: number[] };
  /** The median of the bursts' `second ÷ first`. */
  ratio: number;
  /** What forbids a headline. */
  problems: string[];
};

export type PairOptions = Pick<HarnessOptions, 'dist' | 'bins'> & {
  pair: Pair;
  seed: number;
  /** Of each side, in two halves. */
  warmupMs: number;
  burstMs: number;
  /** Of each side. */
  bursts: number;
};

type Running = {
  load: Omit<LoadOptions, 'durationMs'>;
  workerUs(): number;
  stop(): Promise<void>;
};

async function startBare({ mix, encoding, connections }: Scenario, seed: number): Promise<Running> {
  const server = startFresh('uws', { port: await freePort() });
  try {
    const url = `http://127.0.0.1:${(await server.result).port}`;
    const load = { url, targets: [{ id: '1', key: 'bare' }], mix, encoding, connections, warmupMs: 0, seed };
    return { load, workerUs: () => cpuUs(server.pid), stop: () => server.end() };
  } catch (error) {
    await server.end();
    throw error;
  }
}

async function startSystem(scenario: Scenario, { seed, dist, bins }: PairOptions): Promise<Running> {
  const harness = await Harness.start({ dist, bins, ...scenario });
  try {
    const targets = await harness.createProjects(scenario.projects);
    await firstEvents(harness.url, targets);
    const { mix, encoding, connections } = scenario;
    const load = { url: harness.url, targets, mix, encoding, connections, warmupMs: 0, seed };
    return { load, workerUs: () => harness.cpu().worker, stop: () => harness.stop() };
  } catch (error) {
    await harness.stop();
    throw error;
  }
}

const start = ({ scenario, bare, dist }: Side, options: PairOptions): Promise<Running> =>
  bare
    ? startBare(scenario, options.seed)
    : startSystem(scenario, { ...options, dist: dist ?? options.dist });

/** @throws when one of the two does not start */
export async function runPair(options: PairOptions): Promise<PairRun> {
  const { first, second } = options.pair;
  const running: Running[] = [];
  try {
    running.push(await start(first, options));
    running.push(await start(second, options));
    return await measure(running as [Running, Running], options);
  } finally {
    await Promise.allSettled(running.map((side) => side.stop()));
  }
}

async function measure(
  [first, second]: readonly [Running, Running],
  { warmupMs, burstMs, bursts }: PairOptions,
): Promise<PairRun> {
  const problems: string[] = [];
  const costOf = async ({ load, workerUs }: Running, durationMs: number): Promise<number> => {
    const before = workerUs();
    let answers = 0;
    // The kernel counts in 10 ms: a short burst on a busy machine may be too little for it.
    while (workerUs() === before) {
      const { expectedInAll, failed, failures } = await runFresh('load', { ...load, durationMs });
      if (failed > 0) problems.push(`${failed} requests failed: ${JSON.stringify(failures)}`);
      if (expectedInAll === 0) throw new Error('no request was answered');
      answers += expectedInAll;
    }
    return (workerUs() - before) / answers;
  };
  if (warmupMs > 0) for (const side of [first, second, second, first]) await costOf(side, warmupMs / 2);
  const costUs: PairRun['costUs'] = { first: [], second: [] };
  for (let burst = 0; burst < bursts; burst++) {
    const order = burst % 2 === 0 ? (['first', 'second'] as const) : (['second', 'first'] as const);
    for (const place of order) costUs[place].push(await costOf(place === 'first' ? first : second, burstMs));
  }
  return {
    costUs,
    ratio: median(costUs.second.map((us, at) => us / (costUs.first[at] as number))),
    problems,
  };
}
