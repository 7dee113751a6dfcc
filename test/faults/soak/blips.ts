/** The small faults of a soak: what a month brings, in minutes. */
import { setTimeout as pause } from 'node:timers/promises';
import { integer, pick } from '../../../bench/random.ts';
import { cutConnections, type Fault, frozen, nothing, type Scene, weather } from '../fault.ts';
import { WORKER_KILLED } from '../process-faults.ts';

const processorRestarted: Fault = {
  name: 'processor: SIGTERM, started again',
  holdMs: 0,
  strike: async ({ stand }) => {
    await stand.processors[0]?.endOnce();
    return nothing;
  },
};

/** They end a process: what comes after it is another series of samples. */
const DEATHS: readonly Fault[] = [WORKER_KILLED, processorRestarted];
const BLIPS: readonly Fault[] = [
  frozen('broker: SIGSTOP 1 s', 1_000, ({ stand }) => stand.backing.singleBroker.pid),
  frozen('Redis: SIGSTOP 0.5 s', 500, ({ stand }) => stand.backing.redis.pid),
  weather('way to Redis: 40 ms late', 'redis', { latencyMs: 20, holdMs: 3_000 }),
  weather('way to NATS: 100 ms late', 'nats', { latencyMs: 50, holdMs: 3_000 }),
  cutConnections('way to Redis: reset five times', 'redis'),
  cutConnections('processors to NATS: reset five times', 'processor to nats'),
];
/** One in so many ends a process. */
const DEATH_ONE_IN = 3;
const BETWEEN_MS = [8_000, 16_000] as const;

/**
 * One after the other until `until`, on the clock of performance.now(); deaths only until `deathsUntil`, so that every process then has a life
 * that is long enough to be looked at.
 * @returns how often each struck
 */
export async function strikeBlips(
  scene: Scene,
  { until, deathsUntil }: { until: number; deathsUntil: number },
): Promise<Record<string, number>> {
  const struck: Record<string, number> = {};
  for (;;) {
    await pause(integer(scene.random, ...BETWEEN_MS));
    if (performance.now() >= until) return struck;
    const mayDie = performance.now() < deathsUntil && scene.random() * DEATH_ONE_IN < 1;
    const fault = pick(scene.random, mayDie ? DEATHS : BLIPS);
    struck[fault.name] = (struck[fault.name] ?? 0) + 1;
    const end = await fault.strike(scene);
    await pause(fault.holdMs);
    await end();
  }
}
