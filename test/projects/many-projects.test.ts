/** What a worker's copy of the registry costs when it is large, and when the broker comes and goes. */
import { cpSync, renameSync, rmSync } from 'node:fs';
import { Writable } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { Replica } from '../../src/projects/replica.ts';
import { natsServer, type TestServer } from '../support/servers.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import {
  link as connect,
  eventually,
  eventuallyHolds,
  makeBuckets,
  type NatsLink,
  seedProjects,
} from './broker.ts';

const BYTES_MAX = 700;
const BUCKETS = ['sluice_projects', 'sluice_heartbeats'];

describe('a registry of many projects', () => {
  let server: TestServer;
  let proxy: TcpProxy;
  let admin: NatsLink;
  let links: NatsLink[];
  let replicas: Replica[];
  let lines: string[];

  beforeEach(async () => {
    [links, replicas, lines] = [[], [], []];
    server = await natsServer();
    proxy = await TcpProxy.start(server.port);
    admin = await connect(server.url);
    await makeBuckets(admin);
  });
  afterEach(async () => {
    for (const replica of replicas) await replica.stop();
    for (const link of [admin, ...links]) await link?.close();
    await proxy?.close();
    await server?.close();
  });

  /** One worker's, behind the proxy. */
  async function newReplica(): Promise<{ replica: Replica; link: NatsLink }> {
    const link = await connect(`nats://127.0.0.1:${proxy.port}`);
    links.push(link);
    const write = (chunk: Buffer, _: unknown, done: () => void): void => {
      lines.push(`${chunk}`);
      done();
    };
    const log = pino({ level: 'error' }, new Writable({ write }));
    const replica = new Replica({ link, planLimits: 'table', log, clock });
    replicas.push(replica);
    return { replica, link };
  }
  const consumers = async (bucket: string): Promise<number> =>
    (await (await admin.manager()).streams.info(`KV_${bucket}`)).state.consumer_count;

  it('is loaded in many turns of the loop', async () => {
    const count = 20_000;
    await seedProjects(admin, { count });
    const { replica } = await newReplica();
    let loaded = false;
    const loading = replica.start().then(() => {
      loaded = true;
    });
    const probes = Array.from({ length: 20 }, (_, n) => `${1 + (n * count) / 20}`);
    let found = 0;
    let most = 0;
    while (!loaded) {
      await new Promise((resolve) => setImmediate(resolve));
      const now = probes.filter((id) => replica.findProject(id)).length;
      most = Math.max(most, now - found);
      found = now;
    }
    await loading;
    expect(probes.filter((id) => replica.findProject(id))).toEqual(probes);
    expect(most).toBeLessThanOrEqual(2);
  });

  it('reads a record at its first request, and complains once when that cannot be read', async () => {
    await seedProjects(admin, { count: 10 });
    admin.connection.publish(`$KV.sluice_projects.7`, '{"id":"7"}');
    await admin.connection.flush();
    const { replica } = await newReplica();
    await replica.start();
    expect(lines).toEqual([]);
    expect(replica.findProject('8')?.limit).toBe(1_000);
    expect(replica.findProject('7')).toBeUndefined();
    expect(replica.findProject('7')).toBeUndefined();
    expect(lines).toEqual([expect.stringContaining('record skipped')]);
  });

  it(`takes at most ${BYTES_MAX} bytes of memory for an idle project with an alias`, async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const memory = async (): Promise<number> => {
      for (let n = 0; n < 3; n++) {
        await new Promise((resolve) => setImmediate(resolve));
        collect();
      }
      const { heapUsed, external } = process.memoryUsage();
      return heapUsed + external;
    };
    const count = 20_000;
    await seedProjects(admin, { count, named: true });
    const { replica } = await newReplica();
    const before = await memory();
    await replica.start();
    expect(((await memory()) - before) / count).toBeLessThan(BYTES_MAX);
    expect(replica.findProject(`${count}`)).toBeDefined();
  });

  it('is followed by one consumer for each worker and bucket, however often the connection breaks', async () => {
    await seedProjects(admin, { count: 100 });
    const both = [await newReplica(), await newReplica()];
    await Promise.all(both.map(({ replica }) => replica.start()));
    for (let id = 101; id <= 105; id++) {
      proxy.reset();
      await seedProjects(admin, { first: id, count: 1 });
      await eventually(10_000, () => both.every(({ replica }) => replica.findProject(`${id}`) !== undefined));
    }
    for (const bucket of BUCKETS) expect(await consumers(bucket)).toBe(2);
  });

  it('is followed by as many after restarts of the broker', async () => {
    await seedProjects(admin, { count: 100 });
    const { replica, link } = await newReplica();
    await replica.start();
    for (let id = 101; id <= 103; id++) {
      await server.stop();
      await eventually(10_000, () => !link.connected);
      server = await natsServer(server);
      await eventually(10_000, () => admin.connected && link.connected);
      await seedProjects(admin, { first: id, count: 1 });
      await eventually(5_000, () => replica.findProject(`${id}`) !== undefined);
    }
    for (const bucket of BUCKETS) expect(await consumers(bucket)).toBe(1);
  });

  it('is followed by none when the worker was killed', async () => {
    const { replica } = await newReplica();
    await replica.start();
    expect(await consumers('sluice_projects')).toBe(1);
    await proxy.close(); // nothing of it is heard any more
    await eventuallyHolds(async () => (await consumers('sluice_projects')) === 0, 15_000);
  });

  it('is read anew when the broker lost its newest entries, and gave their revisions to others', async () => {
    await seedProjects(admin, { count: 5 });
    await server.stop();
    cpSync(server.dir, `${server.dir}-before`, { recursive: true });
    server = await natsServer(server);
    await eventually(10_000, () => admin.connected);
    const { replica, link } = await newReplica();
    await replica.start();
    await seedProjects(admin, { first: 5, count: 1, plan: 'Free' });
    await eventually(5_000, () => replica.findProject('5')?.limit === 60);
    proxy.weather = { blackhole: true };
    proxy.reset();
    await server.stop();
    rmSync(server.dir, { recursive: true });
    renameSync(`${server.dir}-before`, server.dir);
    server = await natsServer(server);
    await eventually(10_000, () => admin.connected && !link.connected);
    await seedProjects(admin, { first: 4, count: 1, plan: 'Free' });
    proxy.weather = {};
    proxy.reset();
    await eventually(30_000, () => link.connected);
    await eventually(5_000, () => replica.findProject('4')?.limit === 60);
    await eventually(5_000, () => replica.findProject('5')?.limit === 1_000);
  });

  it('is loaded from a broker that answers late, too', async () => {
    await seedProjects(admin, { count: 100 });
    const { replica } = await newReplica();
    proxy.weather = { latencyMs: 800 };
    const started = replica.start();
    await Promise.race([started, eventually(60_000, () => false)]);
    proxy.weather = {};
    expect(replica.findProject('100')).toBeDefined();
  });
});
