/** Counts that Redis lost are raised to the sink's tally by themselves: raised only, and once. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readUsage, setUsage } from '../../src/ingest/limit/month-count.ts';
import { LimitRedis } from '../../src/ingest/limit/redis.ts';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { LOSS_LOOKS_MIN } from '../../src/limits.ts';
import { LostCounts } from '../../src/management/lost-counts.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { streamSubject } from '../../src/stream/topology.ts';
import { operator } from '../ingest/limit/redis-cluster.ts';
import { link as connect, log, type NatsLink } from '../projects/broker.ts';
import { natsServer, redisServer, type TestServer } from '../support/servers.ts';
import { connectionsTo } from './admin-port.ts';

let servers: [redis: TestServer, nats: TestServer];
let link: NatsLink;
let redis: LimitRedis;
let bucket: CheckpointBucket;
let month: string;
let tally: Map<string, number>;

beforeAll(async () => {
  servers = await Promise.all([redisServer(), natsServer()]);
  link = await connect(servers[1].url);
  await setupTopology(link, { replicas: 1, shards: 1, maxBytes: 16 * 1024 * 1024 });
  redis = new LimitRedis({ urls: [servers[0].url], log, clock });
  await redis.connect();
  bucket = new CheckpointBucket({ link, log });
  month = (await readUsage(redis, 'any')).month;
});
beforeEach(async () => {
  await operator(servers[0].port, 'FLUSHALL');
  tally = new Map();
});
afterAll(async () => {
  await redis?.close();
  await link?.close();
  await Promise.all(servers.map((server) => server.close()));
});

/** One as a processor has it, which looks when it is told. */
function lostCounts(): LostCounts {
  return new LostCounts({
    link,
    connect: () => connectionsTo(servers[1].url, servers[0].url),
    tallies: async () => tally,
    streams: ['SLUICE_EVENTS'],
    log,
    lookMs: 3_600_000,
  });
}
const raised = (one: LostCounts): unknown => one.expose()[0]?.values[0]?.value;
const count = (projectId: string, to: number): Promise<unknown> =>
  setUsage(redis, { projectId, month, count: to, seen: undefined });
const counted = async (id: string): Promise<number | undefined> => (await readUsage(redis, id)).count;
async function look(one: LostCounts, times: number): Promise<void> {
  for (let n = 0; n < times; n++) await one.look();
}

describe('counts that Redis lost', () => {
  it('are left alone while no loss is noted', async () => {
    const one = lostCounts();
    await count('1', 5);
    tally.set('1', 9);
    await one.look();
    expect(await counted('1')).toBe(5);
    await one.stop();
  });

  it('are raised to the tally and never lowered; none is made, and deleted projects are left out', async () => {
    const one = lostCounts();
    await Promise.all([count('1', 5), count('2', 50), count('3', 5)]);
    for (const id of ['1', '2', '3', '4']) tally.set(id, 9);
    await bucket.addDeleted('3', month, 7);
    await bucket.noteLoss();
    await one.look();
    expect(await Promise.all(['1', '2', '3', '4'].map(counted))).toEqual([9, 50, 5, undefined]);
    expect(raised(one)).toBe(1);
    await one.stop();
  });

  it('are raised once by two processors, and looked at until the streams have moved on', async () => {
    const [one, other] = [lostCounts(), lostCounts()];
    await count('1', 5);
    tally.set('1', 9);
    await bucket.noteLoss();
    await Promise.all([one.look(), other.look()]);
    expect(await counted('1')).toBe(9);
    expect([raised(one), raised(other)].sort()).toEqual([0, 1]);

    await link.js.publish(streamSubject('events', 0), 'a frame');
    await look(one, LOSS_LOOKS_MIN + 2);
    expect(await bucket.readLoss()).toBeDefined();
    const consumer = await link.js.consumers.get('SLUICE_EVENTS', 'processor');
    await (await consumer.next())?.ackAck();
    tally.set('1', 10);
    await one.look();
    expect(await counted('1')).toBe(10);
    expect(await bucket.readLoss()).toBeUndefined();
    await Promise.all([one.stop(), other.stop()]);
  });

  it('of a second loss are not forgotten with the first', async () => {
    const one = lostCounts();
    await bucket.noteLoss();
    const first = await bucket.readLoss();
    await bucket.noteLoss();
    if (first) await bucket.forgetLoss(first);
    expect(await bucket.readLoss()).toBeDefined();
    await look(one, LOSS_LOOKS_MIN + 1);
    expect(await bucket.readLoss()).toBeUndefined();
    await one.stop();
  });

  it('are raised at a later look where Redis or the sink did not answer', async () => {
    const one = lostCounts();
    await count('1', 5);
    await bucket.noteLoss();
    const away = new LostCounts({
      link,
      connect: () => {
        throw new Error('Redis is away');
      },
      tallies: async () => tally,
      streams: ['SLUICE_EVENTS'],
      log,
    });
    tally.set('1', 9);
    await look(away, LOSS_LOOKS_MIN + 1);
    expect(await bucket.readLoss()).toBeDefined();
    await look(one, LOSS_LOOKS_MIN + 1);
    expect(await counted('1')).toBe(9);
    await Promise.all([one.stop(), away.stop()]);
  });
});
