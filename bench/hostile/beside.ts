/**
 * Honest traffic beside an attack. Whoever attacks brings a machine along, and honest clients have theirs; here all share one. So the
 * attacker gets a core only when nobody else wants it (SCHED_IDLE), and the honest generator, which stands for many machines and needs
 * little, runs before everybody else. Quiet windows and windows under attack take turns, and what is compared are medians.
 *
 * Tried and lost: a core for the attacker and one for all others. The worker's threads for inflating and for garbage then stand in the way of
 * its event loop, which they do not on the two cores that it has in earnest, and quiet windows differed by a factor of two.
 */
import { spawnSync } from 'node:child_process';
import { setPriority } from 'node:os';
import { startFresh } from '../fresh.ts';
import { cpuUs } from '../processes.ts';
import { median } from '../statistics.ts';
import { CANONICAL_MIX } from '../workload.ts';
import type { Scene } from './scene.ts';

const RATE = 300;
const CONNECTIONS = 16;
const ROUNDS = 3;
const WINDOW_MS = 5_000;
const WARM_UP_MS = 700;
/** From before the honest process has started until after its window. */
const ATTACK_MS = WARM_UP_MS + WINDOW_MS + 800;
const REST_MS = 300;
const RATIO_MAX = 2;
const BEFORE_OTHERS = -10;

/** What an attack came to: in words, and whether each got what it must get. */
export type Fought = { said: string; refused: boolean };
export type Siege = {
  name: string;
  /** Attacks for at least `ms`, and resolves when all of it has ended. */
  run(ms: number): Promise<Fought>;
};

/** `late`: by how much the generator itself was late, p99; its latencies hold that too. All in ms, `cpu` as a share of a core. */
type Window = { p50: number; p99: number; late: number; failed: number; cpu: number };

/** All threads of a process. @returns false where that cannot be done */
const schedule = (pid: number, policy: '--idle' | '--other'): boolean =>
  spawnSync('chrt', [policy, '--all-tasks', '--pid', '0', `${pid}`], { stdio: 'ignore' }).status === 0;

/** From now on a process and its later children run only when nobody else wants a core. @returns false where that cannot be done */
export const stepsBack = (pid: number): boolean => schedule(pid, '--idle');

/** The attacker is this process. @returns a line that says what runs before what */
export function takePlaces(): string {
  return `attacker   ${stepsBack(process.pid) ? 'runs when nobody else wants a core' : 'competes for the cores'}; honest traffic: ${RATE} requests a second over ${CONNECTIONS} connections`;
}

/** Honest clients run before everybody else. A child inherits what its parent is; only root may raise it, anybody else is late. */
export function runsFirst(pid: number): void {
  schedule(pid, '--other');
  try {
    setPriority(pid, BEFORE_OTHERS);
  } catch {}
}

/** Honest traffic from a process of its own for one window, and the worker's share of a core. */
async function honestWindow({ harness, worker, targets }: Scene): Promise<Window> {
  const honest = startFresh('load', {
    url: harness.url,
    targets: [targets[1] as (typeof targets)[0]],
    mix: CANONICAL_MIX,
    encoding: 'sdk',
    rate: RATE,
    connections: CONNECTIONS,
    warmupMs: WARM_UP_MS,
    durationMs: WINDOW_MS,
    seed: 7,
  });
  runsFirst(honest.pid);
  const before = cpuUs(worker.pid);
  const startedAt = performance.now();
  const { latencyMs, failed, generator } = await honest.result;
  const cpu = (cpuUs(worker.pid) - before) / 1000 / (performance.now() - startedAt);
  await honest.end();
  const { p50, p99 } = latencyMs;
  return { p50: p50 ?? Number.NaN, p99: p99 ?? Number.NaN, late: generator.lateP99Ms, failed, cpu };
}

/** What is compiled and loaded once is no cost of an attack. */
export async function warmUp(scene: Scene): Promise<void> {
  await honestWindow(scene);
}

export type Beside = {
  quiet: readonly Window[];
  attacked: readonly Window[];
  /** Of the medians of the p99s. */
  ratio: number;
  fought: Fought;
};

/** Windows in turn; the attack has begun when its window begins and goes on until after its end. */
export async function beside(scene: Scene, siege: Siege): Promise<Beside> {
  const quiet: Window[] = [];
  const attacked: Window[] = [];
  let fought: Fought = { said: '', refused: true };
  for (let round = 0; round < ROUNDS; round++) {
    quiet.push(await honestWindow(scene));
    const under = siege.run(ATTACK_MS);
    attacked.push(await honestWindow(scene));
    const result = await under;
    fought = { said: result.said, refused: fought.refused && result.refused };
    await scene.worker.idle();
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
  }
  const p99 = (windows: readonly Window[]): number => median(windows.map((window) => window.p99));
  return { quiet, attacked, ratio: p99(attacked) / p99(quiet), fought };
}

/** No honest request fails, and the p99 stays under twice the quiet one. */
export const isCalm = ({ ratio, quiet, attacked }: Beside): boolean =>
  ratio < RATIO_MAX && [...quiet, ...attacked].every(({ failed }) => failed === 0);

export function rowOf(name: string, result: Beside): string {
  const { quiet, attacked, ratio, fought } = result;
  const list = (windows: readonly Window[], figure: (window: Window) => number, digits = 1): string =>
    windows.map((window) => figure(window).toFixed(digits)).join(' ');
  const failed = [...quiet, ...attacked].reduce((sum, window) => sum + window.failed, 0);
  const verdict = `${isCalm(result) ? '' : '   OTHERS SUFFER'}${fought.refused ? '' : '   NOT REFUSED'}`;
  return [
    `${name.padEnd(30)} p99 quiet ${list(quiet, (w) => w.p99)}, attacked ${list(attacked, (w) => w.p99)} ms: × ${ratio.toFixed(2)}${verdict}`,
    `${''.padEnd(30)} p50 ${list(quiet, (w) => w.p50, 2)}, ${list(attacked, (w) => w.p50, 2)}; late ${list(quiet, (w) => w.late)}, ${list(attacked, (w) => w.late)}; worker ${list(attacked, (w) => w.cpu * 100, 0)} %; ${failed} failed; ${fought.said}`,
  ].join('\n');
}
