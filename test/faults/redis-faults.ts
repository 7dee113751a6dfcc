/** Redis dies, stands still, has no room, or its clock steps. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { type Fault, frozen, nothing } from './fault.ts';
import { redisForgot } from './redis-empty.ts';
import { RedisMarker } from './redis-marker.ts';

/** So that something is written right before the kill. */
const MARKED_MS = 50;

const redisKilled = (name: string, empty: boolean): Fault => ({
  name,
  holdMs: 1_500,
  strike: async ({ stand: { backing }, excuses }) => {
    const { pid, dir, exited, url } = backing.redis;
    const marker = await RedisMarker.begin(url);
    await pause(MARKED_MS);
    const at = performance.now();
    excuses.redisCuts.push(at);
    process.kill(pid, 'SIGKILL');
    await exited;
    return async () => {
      if (empty) for (const name of readdirSync(dir)) rmSync(join(dir, name), { recursive: true });
      await backing.restartRedis();
      const lost = await marker.lost(url);
      if (lost > 0 && !empty)
        console.log(`        Redis came back without ${lost} writes of a marker that it had acknowledged`);
      if (lost > 0 || empty) excuses.redisLosses.push({ at, endedAt: performance.now() });
    };
  },
});

export const REDIS_FROZEN = frozen('Redis: SIGSTOP 3 s', 3_000, ({ stand }) => stand.backing.redis.pid);
export const REDIS_KILLED = redisKilled('Redis: kill -9, started 1.5 s later with its AOF', false);
export const REDIS_EMPTY: Fault = {
  ...redisKilled('Redis: kill -9, started 1.5 s later, empty', true),
  warmMs: 11_000,
  afterwards: redisForgot,
};

/** Then Redis refuses every write (MISCONF) and tries its file again once a second. */
export const REDIS_DISK_FULL: Fault = {
  name: "Redis's disk full for 5 s",
  holdMs: 5_000,
  needs: 'disks',
  strike: async ({ stand: { backing } }) => {
    backing.disk('redis').fill();
    return async () => backing.disk('redis').free();
  },
};

const FORWARD_MS = 90_000;
const LOST = 'sluice_limiter_state_lost_total';

/** Longer than the window: every booking is forgotten, which the contract excepts, and counts. */
export const REDIS_CLOCK_FORWARD: Fault = {
  name: 'clock of Redis: 90 s forward',
  holdMs: 3_000,
  needs: 'clocks',
  warmMs: 4_000,
  strike: async ({ stand: { backing }, excuses }) => {
    backing.clock('redis')?.step(FORWARD_MS);
    excuses.clockSteps++;
    return nothing;
  },
  afterwards: async (stand) => ((await stand.metric(LOST)) > 0 ? [] : [`${LOST} says nothing`]),
};

export const REDIS_CLOCK_BACK: Fault = {
  name: 'clock of Redis: 90 s back',
  holdMs: 3_000,
  needs: 'clocks',
  warmMs: 4_000,
  strike: async ({ stand: { backing } }) => {
    backing.clock('redis')?.step(-FORWARD_MS);
    return nothing;
  },
};
