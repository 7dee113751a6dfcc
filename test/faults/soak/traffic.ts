/** What SDKs send: the canonical mix of the benches, over both ports, from a process of its own. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { LoadOptions } from '../../../bench/load/options.ts';
import type { LoadResult } from '../../../bench/load/result.ts';
import { CANONICAL_MIX, type Target } from '../../../bench/workload.ts';

const PROGRAM = new URL('./load-process.js', import.meta.url).pathname;
const CONNECTIONS = 32;
/** Ids of one load: of each part and port its own, so that no event is taken for a resend. */
const IDS = 0x1000_0000;

export type TrafficOptions = {
  ports: readonly number[];
  targets: readonly Target[];
  seed: number;
  durationMs: number;
  /** Requests a second over all ports; without it as fast as answers come. */
  rate?: number;
  /** Which stretch of ids: another for each part of a run. */
  part: number;
};

/** By what was told. `unknown`: 500, or no answer. */
export type Answers = {
  accepted: number;
  refused: number;
  unknown: number;
  byReason: Record<string, number>;
};

const loadsOf = ({ ports, targets, seed, durationMs, rate, part }: TrafficOptions): LoadOptions[] =>
  ports.map((port, n) => ({
    url: `http://127.0.0.1:${port}`,
    targets,
    mix: CANONICAL_MIX,
    encoding: 'sdk',
    rate: rate === undefined ? undefined : rate / ports.length,
    connections: CONNECTIONS,
    warmupMs: 0,
    durationMs,
    seed: seed + n,
    firstId: (part * ports.length + n) * IDS,
  }));

function answersOf(results: readonly LoadResult[]): Answers {
  const byReason: Record<string, number> = {};
  for (const { failures } of results)
    for (const [reason, count] of Object.entries(failures))
      byReason[reason] = (byReason[reason] ?? 0) + count;
  const refused = (byReason['status 429'] ?? 0) + (byReason['status 503'] ?? 0);
  const failed = Object.values(byReason).reduce((sum, count) => sum + count, 0);
  const accepted = results.reduce((sum, { expectedInAll }) => sum + expectedInAll, 0);
  return { accepted, refused, unknown: failed - refused, byReason };
}

/** Sends until `durationMs` is over and every answer is there. */
export async function runTraffic(
  options: TrafficOptions,
): Promise<Answers & { p50Ms: number; p99Ms: number }> {
  const child: ChildProcess = fork(PROGRAM, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const died = once(child, 'exit').then(([code, signal]) => {
    throw new Error(`the load ended: ${signal ?? code}`);
  });
  died.catch(() => undefined);
  await Promise.race([once(child, 'message'), died]);
  child.send(loadsOf(options));
  const [results] = (await Promise.race([once(child, 'message'), died])) as [LoadResult[]];
  child.disconnect();
  const worst = (of: (result: LoadResult) => number): number => Math.max(...results.map(of));
  return {
    ...answersOf(results),
    p50Ms: worst(({ latencyMs }) => latencyMs.p50 ?? 0),
    p99Ms: worst(({ latencyMs }) => latencyMs.p99 ?? 0),
  };
}
