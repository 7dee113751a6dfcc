import { Kvm } from '@nats-io/kv';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readUsage, setUsage } from '../../../src/ingest/limit/month-count.ts';
import { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { quotaKey, rateKey } from '../../../src/ingest/limit/scripts.ts';
import { OutcomeLedger } from '../../../src/ingest/usage/outcomes.ts';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { deleteProject } from '../../../src/management/delete-project.ts';
import { RevisionError } from '../../../src/projects/names.ts';
import { ProjectState } from '../../../src/projects/project-state.ts';
import { ProjectStore } from '../../../src/projects/project-store.ts';
import { CheckpointBucket } from '../../../src/projects/usage/checkpoint-bucket.ts';
import { readOutcomes } from '../../../src/projects/usage/outcome-day.ts';
import { connectionsTo } from '../../management/admin-port.ts';
import { link as connect, eventuallyHolds, log, makeBuckets, type NatsLink } from '../../projects/broker.ts';
import { natsServer, redisServer, type TestServer } from '../../support/servers.ts';
import { type Ran, runCommand } from '../run-command.ts';

let nats: TestServer;
let server: TestServer;
let link: NatsLink;
let redis: LimitRedis;
let client: Redis;
let month: string;
let id: string;
beforeAll(async () => {
  [nats, server] = await Promise.all([natsServer(), redisServer()]);
  link = await connect(nats.url);
  await makeBuckets(link);
  redis = new LimitRedis({ urls: [server.url], log, clock });
  await redis.connect();
  client = new Redis(server.url);
  month = (await readUsage(redis, 'any')).month;
});
/** A project that has counted 10, in this month and an earlier one, everywhere. */
beforeEach(async () => {
  const store = await ProjectStore.open(link);
  const project = await store.create({
    plan: 'Pro',
    overage: false,
    filters: [],
    allowedOrigins: [],
    quota: 100,
  });
  ({ id } = project);
  for (const of of [month, '2020-01'])
    await setUsage(redis, { projectId: id, month: of, count: 10, seen: undefined });
  await client.hset(rateKey(id), 'any', 1);
  await counters().replace(id, month, 10);
  const ledger = new OutcomeLedger({ link, log });
  ledger.note(new ProjectState(project, 1, undefined), 'accepted');
  await ledger.close();
});
afterAll(async () => {
  client?.disconnect();
  await redis?.close();
  await link?.close();
  await Promise.all([nats?.close(), server?.close()]);
});

/** One of its own each time: it keeps what it read for a moment. */
const counters = (): CheckpointBucket => new CheckpointBucket({ link, log });
const remove = (flags: string[] = [], redisUrl = server.url): Promise<Ran> =>
  runCommand(['project', 'delete', id, '--yes', '--json', ...flags], {
    SLUICE_NATS_URL: nats.url,
    SLUICE_REDIS_URL: redisUrl,
  });
const exists = async (): Promise<boolean> =>
  (await ProjectStore.open(link)).get(id).then(
    () => true,
    () => false,
  );
const left = async () => ({
  keys: (await client.exists(quotaKey(id))) + (await client.exists(rateKey(id))),
  checkpoint: await counters().read(id, month),
  hours: (await readOutcomes(link, id, { now: Date.now(), hours: 2 })).length,
});
const NOTHING = { keys: 0, checkpoint: undefined, hours: 0 };
const ALL = { keys: 2, checkpoint: 10, hours: 1 };

describe('project delete', () => {
  it('deletes what was counted: counter, rate window, checkpoint and outcomes; others keep theirs', async () => {
    await counters().replace('1', month, 5);
    expect(await left()).toEqual(ALL);
    const ran = await remove();
    expect(ran).toMatchObject({ status: 0, err: '' });
    expect(JSON.parse(ran.out)).toMatchObject({ id, quota: 100 });
    expect(await left()).toEqual(NOTHING);
    expect(await counters().read('1', month)).toBe(5);
    expect(await counters().readDeleted(id, month)).toBe(10);
    expect(await remove()).toMatchObject({ status: 1, err: `sluice: There is no project ${id}\n` });
  });

  it('keeps it with --keep-usage, for which Redis is not needed', async () => {
    expect(await remove(['--keep-usage'], 'redis://127.0.0.1:1')).toMatchObject({ status: 0, err: '' });
    expect(await exists()).toBe(false);
    expect(await left()).toEqual(ALL);
    expect(await counters().readDeleted(id, month)).toBe(0);
  });

  it('deletes nothing while Redis is away, and says so', async () => {
    const ran = await remove([], 'redis://127.0.0.1:1');
    expect(ran).toMatchObject({ status: 1, out: '' });
    expect(ran.err).toMatch(/^sluice: Nothing is deleted\. Redis cannot be reached .*--keep-usage/);
    expect(await exists()).toBe(true);
    expect(await left()).toEqual(ALL);
  });

  it('deletes what an attempt left that failed behind the record', async () => {
    expect(await remove(['--keep-usage'])).toMatchObject({ status: 0 });
    const ran = await remove();
    expect(ran).toMatchObject({ status: 0, err: '' });
    expect(JSON.parse(ran.out)).toEqual({ id });
    expect(await left()).toEqual(NOTHING);
    expect(await remove()).toMatchObject({ status: 1, err: `sluice: There is no project ${id}\n` });
  });

  it('deletes nothing of what is left where a revision is wanted', async () => {
    const store = await ProjectStore.open(link);
    const { revision } = await store.find(id);
    await store.delete(id);
    const connections = connectionsTo(nats.url, server.url);
    const deleted = deleteProject({ connections, log, store }, id, { keepUsage: false, revision });
    await expect(deleted).rejects.toThrow(RevisionError);
    await connections.close();
    expect(await left()).toEqual(ALL);
  });

  it('leaves the usage to a project of this id that is made meanwhile, and says so', async () => {
    const store = await ProjectStore.open(link);
    const fields = await store.get(id);
    const deletion = remove();
    await eventuallyHolds(async () => !(await exists()));
    await store.create({ ...fields, key: 'another' });
    expect(await deletion).toEqual({
      status: 1,
      out: '',
      err: `sluice: Project ${id} is deleted, and was created again meanwhile: its usage was left as it is\n`,
    });
    expect(await store.get(id)).toMatchObject({ key: 'another' });
    expect(await left()).toEqual(ALL);
  });

  it('touches nothing of a project whose record it cannot read', async () => {
    const bucket = await new Kvm(link.js).open('sluice_projects');
    await bucket.put(id, '{"of":"a later build"}');
    const ran = await remove();
    expect(ran).toMatchObject({ status: 1, out: '' });
    expect(ran.err).toMatch(`The record of project ${id} cannot be read`);
    expect((await bucket.get(id))?.operation).toBe('PUT');
    expect(await left()).toEqual(ALL);
  });
});
