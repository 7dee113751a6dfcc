/**
 * What the scripts and the limiters are tested against: one Redis, in the long run a cluster of three masters, and Valkey where
 * VALKEY_SERVER_BIN names its program.
 */

import { rmSync } from 'node:fs';
import { afterAll, beforeAll } from 'vitest';
import { startRedis } from '../../../src/commands/dev/servers.ts';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { rounds } from '../../support/rounds.ts';
import { redisServer, temporaryFolder } from '../../support/servers.ts';
import { connected } from './limit-fixture.ts';
import { operator, redisCluster } from './redis-cluster.ts';

export type Store = {
  urls: string[];
  /** Loses everything. */
  flush(): Promise<void>;
  /** Fields of a hash. */
  fields(key: string): Promise<number>;
  /** A command of the operator; in a cluster only the node that has its key does as it is told. */
  tell(command: string): Promise<void>;
  /** A text where one of our scripts expects something else. */
  set(key: string, word: string): Promise<void>;
  close(): Promise<void>;
};
export type StoreKind = { name: string; start(): Promise<Store> };

/** Each node is told; in a cluster only that which has the key does as it is told. */
const tampering = (ports: readonly number[]): Pick<Store, 'flush' | 'set' | 'fields' | 'tell'> => ({
  flush: async () => {
    for (const port of ports) await operator(port, 'FLUSHALL');
  },
  fields: async (key) => {
    const replies = await Promise.all(ports.map((port) => operator(port, `HLEN ${key}`)));
    return Math.max(...replies.map((reply) => (reply.startsWith(':') ? Number(reply.slice(1)) : 0)));
  },
  tell: async (command) => {
    for (const port of ports) await operator(port, command);
  },
  set: async (key, word) => {
    for (const port of ports) await operator(port, `SET ${key} ${word}`);
  },
});

async function oneRedis(): Promise<Store> {
  const server = await redisServer();
  return { urls: [server.url], ...tampering([server.port]), close: () => server.close() };
}

async function cluster(): Promise<Store> {
  const { nodes, urls, close } = await redisCluster(3);
  return { urls, ...tampering(nodes.map(({ port }) => port)), close };
}

async function valkey(bin: string): Promise<Store> {
  const dir = temporaryFolder('valkey');
  const server = await startRedis(bin, dir);
  const close = async (): Promise<void> => {
    await server.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  return { urls: [server.url], ...tampering([server.port]), close };
}

const valkeyBin = process.env.VALKEY_SERVER_BIN;
export const STORES: readonly StoreKind[] = [
  { name: 'one Redis', start: oneRedis },
  ...rounds([{ name: 'a cluster of three masters', start: cluster }], []),
  ...(valkeyBin ? [{ name: 'Valkey', start: () => valkey(valkeyBin) }] : []),
];

/** A store for the tests of a block, with a connection for each of so many workers. */
export function useStore({ start }: StoreKind, connections = 1) {
  let server: Store;
  let workers: LimitRedis[] = [];
  beforeAll(async () => {
    server = await start();
    workers = await Promise.all(Array.from({ length: connections }, () => connected(...server.urls)));
  });
  afterAll(async () => {
    await Promise.all(workers.map((redis) => redis.close()));
    await server?.close();
  });
  return { server: () => server, workers: () => workers, redis: () => workers[0] as LimitRedis };
}
