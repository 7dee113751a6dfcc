import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { quotaKey } from '../../../src/ingest/limit/scripts.ts';
import { freeze, thaw } from '../../support/freeze.ts';
import { temporaryFolder } from '../../support/servers.ts';
import {
  admissionOn,
  clock,
  connected,
  countedBy,
  log,
  pause,
  projectOf,
  take,
  until,
} from './limit-fixture.ts';
import { answers, type ClusterNode, operator, redisCluster, type TestCluster } from './redis-cluster.ts';

let cluster: TestCluster;
let redis: LimitRedis;

beforeAll(async () => {
  cluster = await redisCluster(3);
  redis = await connected(...cluster.urls);
});
afterAll(async () => {
  await redis?.close();
  await cluster.close();
});

const month = (): string => new Date().toISOString().slice(0, 7);

describe('several URLs', () => {
  it('are a cluster: each project is counted on its own node, many in one turn', async () => {
    await until('available', () => redis.available);
    const ids = Array.from({ length: 100 }, (_, i) => `project-${i}`);
    const replies = await Promise.all(ids.map((id) => countedBy(redis, id, 2)));
    expect(replies).toEqual(ids.map(() => [month(), 0, 2]));
    const sizes = await Promise.all(cluster.nodes.map(({ port }) => operator(port, 'DBSIZE')));
    const counts = sizes.map((text) => Number(text.slice(1)));
    expect(counts.reduce((a, b) => a + b)).toBe(100);
    expect(Math.min(...counts)).toBeGreaterThan(15);
  });

  it('limit exactly, as one server does', async () => {
    const limiter = admissionOn(redis);
    const scope = projectOf({ id: 'exact', limit: 60 });
    const decisions = await Promise.all(Array.from({ length: 80 }, () => take(limiter, scope)));
    limiter.close();
    expect(decisions.filter(({ kind }) => kind === 'admitted')).toHaveLength(60);
  });

  it('survive SCRIPT FLUSH on every node', async () => {
    for (const { port } of cluster.nodes) await operator(port, 'SCRIPT FLUSH');
    const ids = Array.from({ length: 20 }, (_, i) => `project-${i}`);
    const replies = await Promise.all(ids.map((id) => countedBy(redis, id, 1)));
    expect(replies).toEqual(ids.map(() => [month(), 2, 1]));
  });

  it('go on with the projects of the other nodes while one hangs, and take its projects up again after', async () => {
    const [hanging] = cluster.nodes as [ClusterNode];
    const count = (id: string) => countedBy(redis, id, 1);
    const { there, away } = await split(hanging);
    await freeze(hanging.process.pid);
    const before = performance.now();
    const replies = await Promise.all([...there, ...away].map(count));
    expect(performance.now() - before).toBeLessThan(1000);
    expect(replies.map((reply) => reply !== undefined)).toEqual([
      ...there.map(() => true),
      ...away.map(() => false),
    ]);
    expect(await Promise.all(there.map(count))).not.toContain(undefined);
    thaw(hanging.process.pid);
    const recovered = async (): Promise<boolean> => (await count(away[0] as string)) !== undefined;
    for (let tries = 0; !(await recovered()); tries++) {
      expect(tries).toBeLessThan(200);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(redis.available).toBe(true);
  });

  it('refuse while a slot belongs to nobody (CLUSTERDOWN), and go on once it does', async () => {
    const [node] = cluster.nodes as [ClusterNode];
    const slot = node.slots[0];
    const id = await projectIn(slot, node.slots[1]);
    const count = () => countedBy(redis, id, 1);
    expect(await count()).toEqual([month(), 0, 1]);
    for (const { port } of cluster.nodes) await operator(port, `CLUSTER DELSLOTS ${slot}`);
    await answers(node.port, `GET ${quotaKey(id)}`, 'CLUSTERDOWN');
    const before = performance.now();
    expect(await count()).toBeUndefined();
    expect(performance.now() - before).toBeLessThan(1_000);
    await operator(node.port, `CLUSTER ADDSLOTS ${slot}`);
    for (const { port } of cluster.nodes) await answers(port, 'CLUSTER INFO', 'cluster_state:ok');
    for (let tries = 0; (await count()) === undefined; tries++) {
      expect(tries).toBeLessThan(200);
      await pause(50);
    }
  });
});

describe('a password in a file', () => {
  it('is read again by each node that is connected to anew', async () => {
    const dir = temporaryFolder('password');
    const passwordFile = join(dir, 'password');
    const everywhere = (command: string) =>
      Promise.all(cluster.nodes.map(({ port }) => operator(port, command)));
    await everywhere('ACL SETUSER sluice on >one ~sluice:* +@all');
    writeFileSync(passwordFile, 'one\n');
    const urls = cluster.urls.map((url) => url.replace('//', '//sluice@'));
    const guest = new LimitRedis({ urls, passwordFile, log, clock });
    const ids = Array.from({ length: 20 }, (_, i) => `guest-${i}`);
    const allCounted = async (): Promise<boolean> =>
      (await Promise.all(ids.map((id) => countedBy(guest, id, 1)))).every(Array.isArray);
    try {
      await guest.connect();
      for (const word of ['two', 'three']) {
        for (let tries = 0; !(await allCounted()) && tries < 200; tries++) await pause(50);
        expect(await allCounted()).toBe(true);
        await everywhere(`ACL SETUSER sluice resetpass >${word}`);
        await everywhere('CLIENT KILL USER sluice');
        writeFileSync(passwordFile, word);
      }
      for (let tries = 0; !(await allCounted()) && tries < 200; tries++) await pause(50);
      expect(await allCounted()).toBe(true);
    } finally {
      await guest.close();
      await everywhere('ACL DELUSER sluice');
      rmSync(dir, { recursive: true });
    }
  });
});

/** Projects of the node, and of the others. */
async function split({ slots: [from, to] }: ClusterNode): Promise<{ there: string[]; away: string[] }> {
  const [there, away]: [string[], string[]] = [[], []];
  const other = cluster.nodes[1] as ClusterNode;
  for (let i = 0; i < 30; i++) {
    const slot = Number((await operator(other.port, `CLUSTER KEYSLOT ${quotaKey(`hang-${i}`)}`)).slice(1));
    (slot >= from && slot <= to ? away : there).push(`hang-${i}`);
  }
  return { there, away };
}

/** A project whose keys lie in these slots, but not in the first of them. */
async function projectIn(from: number, to: number): Promise<string> {
  const [{ port }] = cluster.nodes as [ClusterNode];
  for (let i = 0; ; i++) {
    const slot = Number((await operator(port, `CLUSTER KEYSLOT ${quotaKey(`down-${i}`)}`)).slice(1));
    if (slot > from && slot <= to) return `down-${i}`;
  }
}
