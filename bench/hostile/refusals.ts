/** Attacks beside honest traffic: every attack gets its refusal, and the others hardly notice. */
import { setPriority } from 'node:os';
import { startFresh } from '../fresh.ts';
import { cpuUs } from '../processes.ts';
import { total } from '../scrape.ts';
import { CANONICAL_MIX } from '../workload.ts';
import { attacks, slowConnections, sustain } from './attacks.ts';
import type { Scene, Show } from './main.ts';
import { pathOf } from './worker.ts';

const RATE = 300;
const CONNECTIONS = 16;
const ATTACK_MS = 10_000;
const SLOW_MS = 60_000;
const SLOW_COUNT = 2_000;
const PER_SECOND = 5;
const LOWEST_PRIORITY = 19;
const NORMAL_PRIORITY = 0;

/** `late`: by how much the generator itself was late, p99; its latencies hold that too. */
type Beside<T> = { p50: number; p99: number; late: number; failed: number; cpu: number; result: T };

/** Honest traffic from a process of its own while `attack` runs, and the worker's share of a core. */
async function beside<T>(
  { harness, worker, targets }: Scene,
  ms: number,
  attack: () => Promise<T>,
): Promise<Beside<T>> {
  const honest = startFresh('load', {
    url: harness.url,
    targets: [targets[1] as (typeof targets)[0]],
    mix: CANONICAL_MIX,
    encoding: 'sdk',
    rate: RATE,
    connections: CONNECTIONS,
    warmupMs: 1_500,
    durationMs: ms,
    seed: 7,
  });
  // It was started by a process of the lowest priority; who is not root cannot mend that, and reads `late`.
  try {
    setPriority(honest.pid, NORMAL_PRIORITY);
  } catch {}
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  const before = cpuUs(worker.pid);
  const startedAt = performance.now();
  const result = await attack();
  const cpu = (cpuUs(worker.pid) - before) / 1000 / (performance.now() - startedAt);
  const { latencyMs, failed, generator } = await honest.result;
  await honest.end();
  return { p50: latencyMs.p50, p99: latencyMs.p99, late: generator.lateP99Ms, failed, cpu, result };
}

const row = (name: string, { p50, p99, late, failed, cpu }: Beside<unknown>, said: string): string =>
  `${name.padEnd(32)} p50 ${p50.toFixed(2).padStart(6)} ms   p99 ${p99.toFixed(2).padStart(7)} ms   late ${late.toFixed(2).padStart(6)} ms   worker ${(cpu * 100).toFixed(0).padStart(3)} %   ${failed} failed   ${said}`;

export const refusals: Show = async (scene) => {
  // Whoever attacks brings a machine along; here it must not take the worker's.
  setPriority(LOWEST_PRIORITY);
  const { worker, targets } = scene;
  const path = pathOf(targets[0] as (typeof targets)[0]);
  const rest = (ms: number) => () => new Promise<void>((resolve) => setTimeout(resolve, ms));
  await beside(scene, 4_000, rest(4_000));
  const quiet = await beside(scene, ATTACK_MS, rest(ATTACK_MS));
  const lines = [
    `honest traffic: ${RATE} requests a second over ${CONNECTIONS} connections; attacks: ${PER_SECOND} a second`,
    row('quiet', quiet, ''),
  ];
  let holds = true;
  const judge = (name: string, result: Beside<unknown>, said: string, refused: boolean): void => {
    const calm = result.p99 < 2 * quiet.p99 && result.failed === 0;
    holds &&= calm && refused;
    lines.push(
      row(
        name,
        result,
        `${said}${calm ? '' : '   P99 OVER TWICE THE QUIET ONE'}${refused ? '' : '   NOT REFUSED'}`,
      ),
    );
  };
  for (const attack of attacks()) {
    const result = await beside(scene, ATTACK_MS, () =>
      sustain(attack, { port: worker.port, path, perSecond: PER_SECOND, ms: ATTACK_MS }),
    );
    const kinds = [...result.result.counts.keys()].map((kind) => Number(kind.split(' ')[0]));
    judge(
      attack.name,
      result,
      `${result.result}`,
      kinds.every((kind) => attack.expected.includes(kind)),
    );
  }
  const slow = await beside(scene, 30_000, () =>
    slowConnections(worker.port, { path, count: SLOW_COUNT, ms: SLOW_MS }),
  );
  const { ended, left, longest } = slow.result;
  judge(
    `${SLOW_COUNT} slow connections`,
    slow,
    `${ended} ended, the last after ${longest.toFixed(0)} s; ${left} left`,
    left === 0,
  );
  lines.push(row('quiet again', await beside(scene, ATTACK_MS, rest(ATTACK_MS)), ''));
  await worker.idle();
  const restarts = total(await worker.metrics(), 'sluice_worker_restarts_total');
  lines.push(`restarts   ${restarts}`);
  return { lines, holds: holds && restarts === 0 };
};
