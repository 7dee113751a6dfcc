import { Kvm } from '@nats-io/kv';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findServer, type RunningServer, startNats } from '../../src/commands/dev/servers.ts';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { HeartbeatStore } from '../../src/projects/heartbeat-store.ts';
import { type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import { Replica } from '../../src/projects/replica.ts';
import { natsServer, type TestServer } from '../support/servers.ts';
import { link as connect, eventually, log, makeBuckets, type NatsLink } from './broker.ts';

const CUID = 'cjld2cjxh0000qzrmn831i7rn';
const plain: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };

describe('Replica', () => {
  let server: TestServer;
  let again: RunningServer | undefined;
  let link: NatsLink;
  let replica: Replica;
  let store: ProjectStore;

  beforeEach(async () => {
    server = await natsServer();
    link = await connect(server.url);
    replica = new Replica({ link, planLimits: 'table', log, clock });
    store = await ProjectStore.open(link);
  });
  afterEach(async () => {
    await replica?.stop();
    await link?.close();
    await again?.stop();
    await server?.close();
  });

  const restart = async (): Promise<void> => {
    const bins = process.env.NATS_SERVER_BIN ? { nats: process.env.NATS_SERVER_BIN } : {};
    const bin = findServer('nats-server', bins, process.env.PATH ?? '');
    again = await startNats(`${bin}`, server.dir, server.port);
  };

  it('shows what is created, changed and deleted within a second', async () => {
    await makeBuckets(link);
    const before = await store.create({ ...plain, id: CUID, alias: '42' });
    await replica.start();
    expect(replica.findProject('42')?.record).toEqual(before);
    await store.create({ ...plain, id: '7' });
    await eventually(1_000, () => replica.findProject('7') !== undefined);
    await store.set('42', (project) => ({ ...project, rateLimit: 5 }));
    await eventually(1_000, () => replica.findProject(CUID)?.limit === 5);
    await store.delete(CUID);
    await eventually(1_000, () => !replica.findProject(CUID) && !replica.findProject('42'));
  });

  it('knows heartbeat tokens as soon', async () => {
    await makeBuckets(link);
    const tokens = await HeartbeatStore.open(link);
    const { token: early } = await tokens.create(new Date());
    await replica.start();
    expect(replica.hasHeartbeat(early)).toBe(true);
    const { token } = await tokens.create(new Date());
    await eventually(1_000, () => replica.hasHeartbeat(token));
    await tokens.delete(token);
    await eventually(1_000, () => !replica.hasHeartbeat(token));
    expect((await tokens.list()).map((known) => known.token)).toEqual([early]);
  });

  it('stays usable while the broker is away, and sees changes within five seconds of reconnecting', async () => {
    await makeBuckets(link);
    await store.create({ ...plain, id: '1' });
    await replica.start();
    const before = replica.findProject('1');
    await server.stop();
    await eventually(5_000, () => !link.connected);
    expect(replica.findProject('1')).toBe(before);
    await restart();
    // Written by somebody else before this link is back, so that no watch of ours delivers it.
    const other = await connect(server.url);
    await (await ProjectStore.open(other)).create({ ...plain, id: '2' });
    await other.close();
    await eventually(10_000, () => link.connected);
    await eventually(5_000, () => replica.findProject('2') !== undefined);
    expect(replica.findProject('1')).toBe(before);
    await store.create({ ...plain, id: '3' });
    await eventually(1_000, () => replica.findProject('3') !== undefined);
  });

  it('heals when the bucket is deleted and made again', async () => {
    await makeBuckets(link);
    for (const id of ['1', '2', '3']) await store.create({ ...plain, id });
    await replica.start();
    const revision = replica.findProject('1')?.revision ?? 0;
    await (await new Kvm(link.js).open('sluice_projects')).destroy();
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(replica.findProject('2')).toBeDefined();
    await new Kvm(link.js).create('sluice_projects');
    await store.create({ ...plain, id: '1', quota: 5 });
    // What is read comes over the old content, and what is not there any more goes when all is read.
    const isNew = () => replica.findProject('1')?.record.quota === 5 && !replica.findProject('2');
    await eventually(5_000, isNew);
    expect(replica.findProject('1')?.revision).toBeGreaterThan(revision);
    await store.create({ ...plain, id: '4' });
    await eventually(1_000, () => replica.findProject('4') !== undefined);
  });

  it('heals when the server forgets the consumer of its watch', async () => {
    await makeBuckets(link);
    await store.create({ ...plain, id: '1' });
    await replica.start();
    const manager = await link.manager();
    for await (const consumer of manager.consumers.list('KV_sluice_projects'))
      await manager.consumers.delete('KV_sluice_projects', consumer.name);
    await store.create({ ...plain, id: '2' });
    await eventually(5_000, () => replica.findProject('2') !== undefined);
  });

  it('notices keys that were purged without a marker', async () => {
    await makeBuckets(link);
    for (const id of ['1', '2']) await store.create({ ...plain, id });
    await replica.start();
    const manager = await link.manager();
    await manager.streams.purge('KV_sluice_projects', { filter: `$KV.sluice_projects.1` });
    await eventually(5_000, () => replica.findProject('1') === undefined);
    expect(replica.findProject('2')).toBeDefined();
  });
});
