import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readUsage, setUsage } from '../../../src/ingest/limit/month-count.ts';
import { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { ANSWER_MS_MAX } from '../../../src/limits.ts';
import { DeadLetters } from '../../../src/processor/dead-letters/dead-letters.ts';
import { type NewProject, ProjectStore } from '../../../src/projects/project-store.ts';
import { CheckpointBucket } from '../../../src/projects/usage/checkpoint-bucket.ts';
import { saveTallyFile } from '../../../src/sink/ndjson/tally.ts';
import { PostgresSink } from '../../../src/sink/postgres/postgres.ts';
import { Tally } from '../../../src/sink/tally.ts';
import { setupTopology } from '../../../src/stream/setup/setup.ts';
import { streamSubject } from '../../../src/stream/topology.ts';
import { link as connect, log, type NatsLink } from '../../projects/broker.ts';
import { keepAcknowledged } from '../../stream/leftovers.ts';
import { TestPostgres } from '../../support/postgres.ts';
import { natsServer, redisServer, type TestServer, temporaryFolder } from '../../support/servers.ts';
import { type Ran, runCommand } from '../run-command.ts';

const plain: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
const sink = temporaryFolder('sink');
let servers: [redis: TestServer, nats: TestServer];
let link: NatsLink;
let redis: LimitRedis;
let id: string;
let month: string;

beforeAll(async () => {
  servers = await Promise.all([redisServer(), natsServer()]);
  link = await connect(servers[1].url);
  await setupTopology(link, { replicas: 1, shards: 1, maxBytes: 16 * 1024 * 1024 });
  redis = new LimitRedis({ urls: [servers[0].url], log, clock });
  await redis.connect();
  month = (await readUsage(redis, 'any')).month;
});
beforeEach(async () => {
  await (await link.manager()).streams.purge('SLUICE_EVENTS');
  ({ id } = await (await ProjectStore.open(link)).create(plain));
});
afterAll(async () => {
  await redis?.close();
  await link?.close();
  await Promise.all(servers.map((server) => server.close()));
  rmSync(sink, { recursive: true, force: true });
});

async function processed(stream: string, count: number): Promise<void> {
  const journal = join(sink, stream, 'journal');
  mkdirSync(journal, { recursive: true });
  const tally = new Tally();
  for (let position = 1; position <= count; position++) tally.add({ projectId: id, month, position });
  await saveTallyFile(journal, 0, tally);
}
const counted = async (): Promise<number | undefined> => (await readUsage(redis, id)).count;
const count = (to: number): Promise<unknown> =>
  setUsage(redis, { projectId: id, month, count: to, seen: undefined });
/** A bucket of its own each time: one keeps what it read for a moment. */
const checkpoint = (): Promise<number | undefined> => new CheckpointBucket({ link, log }).read(id, month);
const checkpointed = (to: number): Promise<void> =>
  new CheckpointBucket({ link, log }).replace(id, month, to);
const sluiceOn = (setting: string, ...args: string[]): Promise<Ran> =>
  runCommand(['usage', 'reconcile', ...args], {
    SLUICE_REDIS_URL: servers[0].url,
    SLUICE_NATS_URL: servers[1].url,
    SLUICE_SINK: setting,
  });
const sluice = (...args: string[]): Promise<Ran> => sluiceOn(`ndjson:${sink}`, ...args);
const json = async (...args: string[]): Promise<unknown> => {
  const ran = await sluice(...args, '--json');
  expect(ran).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out);
};

describe('usage reconcile', () => {
  it('corrects a counter that Redis forgot, from the sum of all streams, and its checkpoint with it', async () => {
    await processed('SLUICE_EVENTS', 30);
    await processed('SLUICE_LOGS', 12);
    expect(await json(id)).toEqual({ id, month, before: 0, tally: 42, after: 42, complete: true });
    expect(await counted()).toBe(42);
    expect(await checkpoint()).toBe(42);
  });

  it('lowers a counter that counted too much, saying both figures', async () => {
    await processed('SLUICE_EVENTS', 30);
    await processed('SLUICE_LOGS', 0);
    await count(35);
    const { status, out } = await sluice(id);
    expect(status).toBe(0);
    expect(out).toBe(
      `Project ${id}, ${month}: the counter said 35, the sink's tally says 30. The counter is now 30.\n`,
    );
    expect(await counted()).toBe(30);
  });

  it('leaves out what a deleted project of the id counted', async () => {
    await new CheckpointBucket({ link, log }).addDeleted(id, month, 40);
    await processed('SLUICE_EVENTS', 43);
    await processed('SLUICE_LOGS', 0);
    await count(3);
    expect(await json(id)).toMatchObject({ before: 3, tally: 3, after: 3, deleted: true });
    await processed('SLUICE_EVENTS', 45);
    expect(await json(id)).toMatchObject({ before: 3, tally: 5, after: 5, deleted: true });
  });

  it('is not misled by a deleted project of which more was counted than stored', async () => {
    await new CheckpointBucket({ link, log }).addDeleted(id, month, 100);
    await processed('SLUICE_EVENTS', 99);
    await processed('SLUICE_LOGS', 0);
    await count(5);
    expect(await json(id)).toMatchObject({ before: 5, tally: 0, after: 5, complete: false });
    await processed('SLUICE_EVENTS', 103);
    const { out } = await sluice(id);
    expect(out).toContain('The counter stays as it is. A project of this id was deleted this month');
    expect(await counted()).toBe(5);
  });

  it('does not wait for what was acknowledged and is still there', async () => {
    const manager = await link.manager();
    await keepAcknowledged(manager, 'SLUICE_LOGS');
    await link.js.publish(streamSubject('logs', 0), 'a frame');
    const consumer = await link.js.consumers.get('SLUICE_LOGS', 'processor');
    await (await consumer.next())?.ackAck();
    await processed('SLUICE_LOGS', 0);
    await processed('SLUICE_EVENTS', 30);
    await count(35);
    expect(await json(id, '--wait', '0')).toMatchObject({ tally: 30, after: 30, complete: true });
  });

  it('does not lower it while something waits to be processed', async () => {
    await processed('SLUICE_EVENTS', 30);
    await count(35);
    await link.js.publish(streamSubject('events', 0), 'a frame');
    expect(await json(id, '--wait', '0')).toMatchObject({
      before: 35,
      tally: 30,
      after: 35,
      complete: false,
    });
    expect(await counted()).toBe(35);
    await processed('SLUICE_EVENTS', 40);
    expect(await json(id, '--wait', '0')).toMatchObject({
      before: 35,
      tally: 40,
      after: 40,
      complete: false,
    });
    await (await link.manager()).streams.purge('SLUICE_EVENTS');
  });

  it('does not lower it while a frame or an entry of the month is a dead letter that nobody could read', async () => {
    await processed('SLUICE_EVENTS', 30);
    await count(35);
    const letters = new DeadLetters({ link, log });
    const letter = { reason: 'no frame', subject: streamSubject('events', 0), body: Buffer.from('bytes') };
    const manager = await link.manager();
    for (const unread of [{ kind: 'frame' }, { kind: 'entry', entryIndex: 1 }] as const) {
      await letters.publish([{ ...letter, ...unread, frameId: 'unread' }]);
      const told = await json(id);
      expect(told).toMatchObject({ before: 35, tally: 30, after: 35, complete: false, unread: true });
      expect(await counted()).toBe(35);
      await manager.streams.purge('SLUICE_DEAD_LETTERS');
    }
    await letters.publish([{ ...letter, kind: 'entry', projectId: '7', frameId: 'read' }]);
    await letters.publish([{ ...letter, kind: 'item', projectId: '7', frameId: 'read' }]);
    const pings = { subject: streamSubject('heartbeats', 0), frameId: 'pings' };
    await letters.publish([{ ...letter, ...pings, kind: 'frame' }]);
    expect(await json(id)).toEqual({ id, month, before: 35, tally: 30, after: 30, complete: true });
    await manager.streams.purge('SLUICE_DEAD_LETTERS');
  });

  it('waits for the processor to get past what was queued', async () => {
    await processed('SLUICE_EVENTS', 30);
    await count(31);
    await link.js.publish(streamSubject('events', 0), 'a frame');
    const running = json(id);
    await sleep(ANSWER_MS_MAX + 300);
    await processed('SLUICE_EVENTS', 31);
    await (await link.manager()).streams.purge('SLUICE_EVENTS');
    expect(await running).toMatchObject({ before: 31, tally: 31, after: 31, complete: true });
  });

  it('waits for a request that was counted when it began and is queued when its answer is due', async () => {
    await processed('SLUICE_EVENTS', 30);
    await count(31);
    const running = json(id);
    await sleep(ANSWER_MS_MAX * 0.25);
    await link.js.publish(streamSubject('events', 0), 'a frame');
    await sleep(ANSWER_MS_MAX * 1.25);
    await processed('SLUICE_EVENTS', 31);
    await (await link.manager()).streams.purge('SLUICE_EVENTS');
    expect(await running).toMatchObject({ before: 31, tally: 31, after: 31, complete: true });
    expect(await counted()).toBe(31);
  });

  it('takes the checkpoint for the counter where Redis has none, and does not lower that either', async () => {
    await processed('SLUICE_EVENTS', 30);
    await checkpointed(5_000);
    await link.js.publish(streamSubject('events', 0), 'a frame');
    const { out } = await sluice(id, '--wait', '0');
    expect(out).toMatch(/the counter said 5000, the sink's tally says 30. The counter stays as it is\./);
    expect(out).toMatch(/so the counter was not lowered/);
    expect([await counted(), await checkpoint()]).toEqual([5_000, 5_000]);
  });

  it('raises the counter above a checkpoint, and never the checkpoint down to the counter, while something waits', async () => {
    await processed('SLUICE_EVENTS', 40);
    await checkpointed(35);
    await link.js.publish(streamSubject('events', 0), 'a frame');
    const raised = { before: 35, tally: 40, after: 40, complete: false };
    expect(await json(id, '--wait', '0')).toMatchObject(raised);
    expect([await counted(), await checkpoint()]).toEqual([40, 40]);
    await checkpointed(5_000);
    await processed('SLUICE_EVENTS', 41);
    expect(await json(id, '--wait', '0')).toMatchObject({ before: 40, after: 41, complete: false });
    expect([await counted(), await checkpoint()]).toEqual([41, 5_000]);
  });

  it('lowers a checkpoint that stands for the counter when all is processed', async () => {
    await processed('SLUICE_EVENTS', 30);
    await checkpointed(33);
    expect(await json(id)).toMatchObject({ before: 33, tally: 30, after: 30, complete: true });
    expect([await counted(), await checkpoint()]).toEqual([30, 30]);
  });

  it('reads the sink of the sluice dev that --data-dir names, and none of the environment', async () => {
    const folder = temporaryFolder('data-dir');
    const dev = {
      url: 'http://127.0.0.1:1',
      adminUrl: 'http://127.0.0.1:1',
      redisUrl: servers[0].url,
      natsUrl: servers[1].url,
      sinkDir: sink,
      project: { id, key: 'k', dsn: 'http://k@127.0.0.1/1' },
      pid: process.pid,
    };
    writeFileSync(join(folder, 'dev.json'), JSON.stringify(dev));
    await processed('SLUICE_EVENTS', 4);
    const other = join(folder, 'another-sink');
    const ran = await sluiceOn(`ndjson:${other}`, id, '--wait', '0', '--json', '--data-dir', folder);
    expect(ran, ran.err).toMatchObject({ status: 0, err: '' });
    expect(JSON.parse(ran.out)).toMatchObject({ id, tally: 4, after: 4 });
    rmSync(folder, { recursive: true });
  });

  it('reads the tally of a postgres sink', async () => {
    const server = await TestPostgres.start();
    try {
      await (await PostgresSink.connect(server.url, { log })).close();
      await server.query(
        `INSERT INTO sluice.tally VALUES ($1, $2, 'a', 30, 41), ($1, $2, 'b', 12, 42), ('1', $2, 'a', 5, 5)`,
        [id, month],
      );
      const { out } = await sluiceOn(server.url, id, '--json');
      expect(JSON.parse(out)).toEqual({ id, month, before: 0, tally: 42, after: 42, complete: true });
      expect(await counted()).toBe(42);
    } finally {
      await server.close();
    }
  });

  it('sets nothing when that cannot be read', async () => {
    await count(35);
    const { status, err } = await sluiceOn('postgres://nobody@127.0.0.1:1/none', id);
    expect(status).toBe(1);
    expect(err).toMatch(/tally cannot be read.*ECONNREFUSED/);
    expect(await counted()).toBe(35);
  });

  it('prints JSON also where the flag stands before its name', async () => {
    const ran = await runCommand(['usage', '--json', 'reconcile', id, '--wait', '0'], {
      SLUICE_REDIS_URL: servers[0].url,
      SLUICE_NATS_URL: servers[1].url,
      SLUICE_SINK: `ndjson:${sink}`,
    });
    expect(JSON.parse(ran.out)).toMatchObject({ id, month });
  });
});
