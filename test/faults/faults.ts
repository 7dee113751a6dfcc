/** Everything that can go wrong, one entry each: how it begins, how long it lasts, how it ends. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { pick, type Random } from '../../bench/random.ts';
import { natsServer, redisServer, type TestServer } from '../support/servers.ts';
import { until } from '../support/system.ts';
import type { TcpProxy, Weather } from '../support/tcp-proxy.ts';
import type { RedisLoss } from './ledger.ts';
import type { Load } from './load.ts';
import type { Stand } from './stand.ts';
import type { Supervised } from './supervised.ts';

/** What a fault may reach for. */
export type Scene = {
  stand: Stand;
  random: Random;
  /** Further clients, to be stopped by the fault; what they are told counts like the rest. */
  flood(payloadBytes: number): Load;
  redisLosses: RedisLoss[];
};

export type Fault = {
  name: string;
  holdMs: number;
  /** Begins it. @returns how to end it */
  strike(scene: Scene): Promise<() => Promise<void>>;
  /** Kills a process that holds connections of clients: some requests get no answer. */
  cuts?: true;
  /** Only on a stand with this. */
  needs?: 'broker' | 'cluster' | 'postgres' | 'disks';
};

const EVENTS = 'SLUICE_EVENTS';
const FULL_ANSWERS = 20;
const FULL_MS_MAX = 60_000;

const nothing = async (): Promise<void> => undefined;

/** Stops the process of this id for a while. */
const frozen = (name: string, holdMs: number, pidOf: (scene: Scene) => number | Promise<number>): Fault => ({
  name,
  holdMs,
  strike: async (scene) => {
    const pid = await pidOf(scene);
    process.kill(pid, 'SIGSTOP');
    return async () => {
      try {
        process.kill(pid, 'SIGCONT');
      } catch {
        // Whoever watches it has ended it meanwhile.
      }
    };
  },
});

const anyIngest = ({ stand, random }: Scene): Supervised => pick(random, stand.ingest);
const anyWorker = (scene: Scene): number => pick(scene.random, anyIngest(scene).children);

async function leader({ stand }: Scene): Promise<number> {
  let node: number | undefined;
  await until(async () => {
    node = await stand.cluster?.leaderOf(stand.link, EVENTS).catch(() => undefined);
    return node !== undefined;
  });
  return node as number;
}

/** Bad weather on the way to one of the servers. */
const weather = (
  name: string,
  way: 'redis' | 'nats',
  { holdMs, ...what }: Weather & { holdMs: number },
): Fault => ({
  name,
  holdMs,
  ...(way === 'nats' && { needs: 'broker' }),
  strike: async ({ stand }) => {
    const proxy = (way === 'redis' ? stand.redisProxy : stand.natsProxy) as TcpProxy;
    proxy.weather = what;
    return async () => {
      proxy.weather = {};
    };
  },
});

const cutConnections = (name: string, way: 'redis' | 'nats'): Fault => ({
  name,
  holdMs: 0,
  ...(way === 'nats' && { needs: 'broker' }),
  strike: async ({ stand }) => {
    for (let n = 0; n < 5; n++) {
      (way === 'redis' ? stand.redisProxy : stand.natsProxy)?.reset();
      await pause(200);
    }
    return nothing;
  },
});

async function restartRedis(stand: Stand, empty: boolean): Promise<void> {
  const { port, dir } = stand.redis;
  if (empty) for (const name of readdirSync(dir)) rmSync(join(dir, name), { recursive: true });
  stand.redis = await redisServer({ port, dir });
}

const redisKilled = (name: string, empty: boolean): Fault => ({
  name,
  holdMs: 1_500,
  strike: async ({ stand, redisLosses }) => {
    const at = performance.now();
    process.kill(stand.redis.pid, 'SIGKILL');
    await stand.redis.exited;
    return async () => {
      await restartRedis(stand, empty);
      if (empty) redisLosses.push({ at, endedAt: performance.now() });
    };
  },
});

const brokerKilled: Fault = {
  name: 'broker: kill -9, started 2 s later',
  holdMs: 2_000,
  needs: 'broker',
  strike: async ({ stand }) => {
    const server = stand.nats;
    if (!server) throw new Error('no single broker on this stand');
    process.kill(server.pid, 'SIGKILL');
    await server.exited;
    return async () => {
      stand.nats = await natsServer({ port: server.port, dir: server.dir });
    };
  },
};

const leaderKilled: Fault = {
  name: 'cluster leader: kill -9, started 5 s later',
  holdMs: 5_000,
  needs: 'cluster',
  strike: async (scene) => {
    const node = await leader(scene);
    await scene.stand.cluster?.kill(node);
    return async () => {
      await scene.stand.cluster?.restart(node);
    };
  },
};

const streamFull: Fault = {
  name: 'stream full, processor stopped',
  holdMs: 1_000,
  strike: async ({ stand, flood }) => {
    await stand.processor.stop();
    const load = flood(100_000);
    load.start();
    const refused = (): number => load.told.filter(({ status }) => status === 503).length;
    await until(() => refused() >= FULL_ANSWERS, FULL_MS_MAX);
    return async () => {
      await load.stop();
      stand.processor.again();
    };
  },
};

/** nats-server gives JetStream up when a write fails for want of room, and takes it up again only at its next start. */
const brokerDiskFull: Fault = {
  name: "broker's disk full, then freed and the broker started anew",
  holdMs: 3_000,
  needs: 'disks',
  strike: async ({ stand }) => {
    stand.natsDisk?.fill();
    return async () => {
      stand.natsDisk?.free();
      const server = stand.nats as TestServer;
      await server.stop();
      stand.nats = await natsServer({ port: server.port, dir: server.dir });
    };
  },
};

const sinkDiskFull: Fault = {
  name: "sink's disk full for 6 s",
  holdMs: 6_000,
  needs: 'disks',
  strike: async ({ stand }) => {
    stand.sinkDisk?.fill();
    return async () => stand.sinkDisk?.free();
  },
};

/** Runs for a tenth of the time. */
const processorSlow: Fault = {
  name: 'processor slowed to a tenth',
  holdMs: 6_000,
  strike: async ({ stand }) => {
    const { pid } = stand.processor;
    let running = true;
    const turns = (async () => {
      while (running) {
        process.kill(pid, 'SIGSTOP');
        await pause(450);
        process.kill(pid, 'SIGCONT');
        await pause(50);
      }
    })();
    return async () => {
      running = false;
      await turns;
    };
  },
};

const killed = (name: string, of: (scene: Scene) => Supervised): Fault => ({
  name,
  holdMs: 0,
  strike: async (scene) => {
    of(scene).signal('SIGKILL');
    return nothing;
  },
});

const rolling: Fault = {
  name: 'rolling SIGTERM of both primaries and the processor',
  holdMs: 0,
  strike: async ({ stand }) => {
    for (const part of [...stand.ingest, stand.processor]) {
      const status = await part.endOnce();
      if (status !== 0) throw new Error(`ended with ${status} on SIGTERM`);
      await pause(500);
      await stand.ready();
    }
    return nothing;
  },
};

const sinkWeather = (name: string, { holdMs, ...what }: Weather & { holdMs: number }): Fault => ({
  name,
  holdMs,
  needs: 'postgres',
  strike: async ({ stand }) => {
    const proxy = stand.sinkProxy as TcpProxy;
    proxy.weather = what;
    return async () => {
      proxy.weather = {};
    };
  },
});

export const BROKER_FROZEN = {
  ...frozen('broker: SIGSTOP 8 s', 8_000, ({ stand }) => stand.nats?.pid ?? 0),
  needs: 'broker',
} satisfies Fault;
export const BROKER_KILLED = brokerKilled;
export const STREAM_FULL = streamFull;
export const LEADER_KILLED = leaderKilled;
export const LEADER_FROZEN: Fault = {
  ...frozen('cluster leader: SIGSTOP 8 s', 8_000, async (scene) => {
    const node = await leader(scene);
    return scene.stand.cluster?.pid(node) ?? 0;
  }),
  needs: 'cluster',
};
export const REDIS_KILLED = redisKilled('Redis: kill -9, started 1.5 s later with its AOF', false);
export const REDIS_EMPTY = redisKilled('Redis: kill -9, started 1.5 s later, empty', true);
export const PRIMARY_FROZEN = frozen('primary: SIGSTOP 7 s', 7_000, (scene) => anyIngest(scene).pid);
export const ROLLING = rolling;
export const PRIMARY_KILLED = killed('primary: kill -9', anyIngest);
export const PROCESSOR_KILLED = killed('processor: kill -9', ({ stand }) => stand.processor);

/** In the order in which a run goes through them. */
export const FAULTS: readonly Fault[] = [
  BROKER_FROZEN,
  BROKER_KILLED,
  STREAM_FULL,
  LEADER_KILLED,
  LEADER_FROZEN,
  {
    name: 'worker: kill -9',
    holdMs: 0,
    cuts: true,
    strike: async (scene) => {
      process.kill(anyWorker(scene), 'SIGKILL');
      return nothing;
    },
  },
  frozen('worker: SIGSTOP 3 s', 3_000, anyWorker),
  {
    name: 'worker: SIGSTOP for good, until the primary kills it',
    holdMs: 0,
    cuts: true,
    strike: async (scene) => {
      process.kill(anyWorker(scene), 'SIGSTOP');
      return nothing;
    },
  },
  PRIMARY_KILLED,
  PRIMARY_FROZEN,
  ROLLING,
  PROCESSOR_KILLED,
  frozen('processor: SIGSTOP 8 s, beyond the ack wait', 8_000, ({ stand }) => stand.processor.pid),
  processorSlow,
  sinkWeather('sink: 300 ms late, 400 kB/s', { latencyMs: 300, bytesPerSec: 400_000, holdMs: 6_000 }),
  sinkWeather('sink: nothing passes for 8 s', { blackhole: true, holdMs: 8_000 }),
  brokerDiskFull,
  sinkDiskFull,
  frozen('Redis: SIGSTOP 3 s', 3_000, ({ stand }) => stand.redis.pid),
  REDIS_KILLED,
  weather('way to Redis: 100 ms late', 'redis', { latencyMs: 50, holdMs: 3_000 }),
  weather('way to Redis: 600 ms late', 'redis', { latencyMs: 300, holdMs: 3_000 }),
  weather('way to Redis: 20 kB/s', 'redis', { bytesPerSec: 20_000, holdMs: 4_000 }),
  weather('way to Redis: nothing passes for 4 s', 'redis', { blackhole: true, holdMs: 4_000 }),
  weather('way to Redis: slivers of 3 bytes', 'redis', { sliceBytes: 3, holdMs: 3_000 }),
  cutConnections('way to Redis: reset five times', 'redis'),
  weather('way to NATS: 200 ms late', 'nats', { latencyMs: 100, holdMs: 3_000 }),
  weather('way to NATS: 50 kB/s', 'nats', { bytesPerSec: 50_000, holdMs: 5_000 }),
  weather('way to NATS: nothing passes for 6 s', 'nats', { blackhole: true, holdMs: 6_000 }),
  weather('way to NATS: slivers of 7 bytes', 'nats', { sliceBytes: 7, holdMs: 3_000 }),
  cutConnections('way to NATS: reset five times', 'nats'),
];
