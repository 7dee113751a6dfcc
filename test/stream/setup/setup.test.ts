import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DiscardPolicy, RetentionPolicy } from '@nats-io/jetstream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createLog } from '../../../src/lib/log.ts';
import { NatsLink } from '../../../src/stream/nats.ts';
import { setupTopology } from '../../../src/stream/setup/setup.ts';
import { SetupError } from '../../../src/stream/setup/setup-error.ts';
import { BUCKETS, isFrameStreamName } from '../../../src/stream/topology.ts';
import { natsServer, type TestServer } from '../../support/servers.ts';
import { MIB } from '../broker.ts';
import { keepAcknowledged } from '../leftovers.ts';

const DAY_NS = 24 * 3600e9;
let server: TestServer;
let link: NatsLink;
beforeEach(async () => {
  server = await natsServer();
  link = await NatsLink.connect({ urls: [server.url], name: 'test', log: createLog('silent') });
});
afterEach(async () => {
  await link.close();
  await server.close();
});

const small = { replicas: 1, shards: 1, maxBytes: 16 * MIB };
const setup = (options: Partial<typeof small> = {}) => setupTopology(link, { ...small, ...options });
const streamNames = async (): Promise<string[]> => {
  const names: string[] = [];
  for await (const { config } of (await link.manager()).streams.list()) names.push(config.name);
  return names.sort();
};

/** Does something once just before setup asks the broker for such a change of this stream. */
async function justBefore(
  change: 'update' | 'delete',
  stream: string,
  act: () => Promise<unknown>,
): Promise<void> {
  const manager = await link.manager();
  const ask = manager.streams[change].bind(manager.streams) as (...args: unknown[]) => Promise<never>;
  let isDone = false;
  vi.spyOn(manager.streams, change).mockImplementation(async (...args: unknown[]) => {
    if (!isDone && args[0] === stream) {
      isDone = true;
      await act();
    }
    return await ask(...args);
  });
  vi.spyOn(link, 'manager').mockResolvedValue(manager);
}

describe('several setups at once, as the pods of an upgrade run them', () => {
  it('make together what one makes, if each tries again when another was in its way', async () => {
    const untilDone = async (): Promise<void> => {
      for (let tries = 1; ; tries++) {
        const failed = await setup().then(
          () => undefined,
          (error: Error) => error,
        );
        if (!failed) return;
        if (tries === 20) throw failed;
      }
    };
    await Promise.all([untilDone(), untilDone(), untilDone(), untilDone()]);
    expect(await setup()).toEqual([]);
    expect(await streamNames()).toHaveLength(9 + BUCKETS.length);
  });
});

describe('setup', () => {
  it('creates what the contract names, and says so', async () => {
    const said = await setup();
    const names = [
      'EVENTS',
      'TRANSACTIONS',
      'LOGS',
      'REPLAYS',
      'HEARTBEATS',
      'EXTRAS',
      'CHUNKS',
      'DEAD_LETTERS',
      'AUDIT',
    ];
    expect(await streamNames()).toEqual(
      [...names.map((name) => `SLUICE_${name}`), ...BUCKETS.map((bucket) => `KV_${bucket}`)].sort(),
    );
    expect(said).toHaveLength(9 + 6 + 3);
    expect(said[0]).toBe('created bucket sluice_projects, replicas 1');
    expect(said[3]).toBe('created stream SLUICE_EVENTS, 16 MiB, replicas 1');
    expect(said[4]).toBe('created consumer processor of SLUICE_EVENTS');
  });

  it('makes no empty bucket of projects or tokens beside streams that are there, unless it is told to', async () => {
    await setup();
    const { streams } = await link.manager();
    for (const bucket of ['sluice_projects', 'sluice_heartbeats']) {
      await streams.delete(`KV_${bucket}`);
      await expect(setup()).rejects.toThrow(`the bucket ${bucket} is missing, though streams are there`);
      expect(await streamNames()).not.toContain(`KV_${bucket}`);
      expect(await setupTopology(link, small, { emptyBuckets: true })).toEqual([
        `created bucket ${bucket}, replicas 1`,
      ]);
    }
    await streams.delete('KV_sluice_counters');
    expect(await setup()).toEqual(['created bucket sluice_counters, replicas 1']);
  });

  it('tries again where the server cannot make the folder of a stream at this moment', async () => {
    const account = join(server.dir, 'jetstream', '$G');
    rmSync(account, { recursive: true, force: true });
    writeFileSync(account, 'a file where a folder should be');
    setTimeout(() => rmSync(account, { force: true }), 700);
    expect(await setup()).toHaveLength(9 + 6 + 3);
  });

  it('gives frame streams a work queue that forgets nothing, and one consumer', async () => {
    await setup();
    const manager = await link.manager();
    const { config } = await manager.streams.info('SLUICE_LOGS');
    expect(config).toMatchObject({
      retention: 'workqueue',
      discard: 'new',
      storage: 'file',
      max_age: 0,
      max_msgs: -1,
      max_bytes: 16 * MIB,
      duplicate_window: 120e9,
      subjects: ['sluice.logs.0'],
    });
    const consumer = await manager.consumers.info('SLUICE_LOGS', 'processor');
    expect(consumer.config).toMatchObject({ ack_policy: 'explicit', max_deliver: -1, ack_wait: 10e9 });
    const chunks = await manager.streams.info('SLUICE_CHUNKS');
    expect(chunks.config).toMatchObject({ retention: 'limits', discard: 'new', max_age: 0 });
    const dead = await manager.streams.info('SLUICE_DEAD_LETTERS');
    expect(dead.config).toMatchObject({ retention: 'limits', discard: 'old', max_age: 30 * DAY_NS });
    const audit = await manager.streams.info('SLUICE_AUDIT');
    expect(audit.config).toMatchObject({ retention: 'limits', max_bytes: 16 * MIB, max_age: 365 * DAY_NS });
    for await (const { config: one } of manager.streams.list())
      expect(one.discard, one.name).toBe(one.name === 'SLUICE_DEAD_LETTERS' ? 'old' : 'new');
  });

  it('brings streams of an earlier build up to date, and keeps what is there', async () => {
    await setup();
    const { streams, direct } = await link.manager();
    await streams.update('SLUICE_DEAD_LETTERS', { discard: DiscardPolicy.New } as object);
    await streams.update('SLUICE_CHUNKS', { allow_direct: false });
    await link.js.publish('sluice.dead_letters.00', 'a letter');
    await link.js.publish('sluice.chunks.1', 'a part');
    expect((await setup()).sort()).toEqual([
      'stream SLUICE_CHUNKS: allow_direct false → true',
      'stream SLUICE_DEAD_LETTERS: discard new → old',
    ]);
    expect((await streams.info('SLUICE_DEAD_LETTERS')).state.messages).toBe(1);
    expect((await direct.getMessage('SLUICE_CHUNKS', { seq: 1 }))?.string()).toBe('a part');
  });

  it('corrects what differs and names both figures', async () => {
    await setup();
    const manager = await link.manager();
    await manager.streams.update('SLUICE_EVENTS', { duplicate_window: 60e9 });
    await manager.consumers.update('SLUICE_EVENTS', 'processor', { ack_wait: 5e9 });
    await manager.consumers.delete('SLUICE_LOGS', 'processor');
    const said = await setup({ maxBytes: 32 * MIB });
    expect(said).toContain('stream SLUICE_EVENTS: max_bytes 16 MiB → 32 MiB');
    expect(said).toContain('stream SLUICE_EVENTS: duplicate_window 60 s → 120 s');
    expect(said).toContain('consumer processor of SLUICE_EVENTS: ack_wait 5 s → 10 s');
    expect(said).toContain('created consumer processor of SLUICE_LOGS');
    expect(said).toHaveLength(9 + 3);
    expect(await setup({ maxBytes: 32 * MIB })).toEqual([]);
  });

  it('makes streams smaller when what they hold still fits, and else changes nothing', async () => {
    await setup();
    await link.js.publish('sluice.logs.0', Buffer.alloc(900_000));
    await link.js.publish('sluice.logs.0', Buffer.alloc(900_000));
    await expect(setup({ maxBytes: MIB })).rejects.toThrow(
      new SetupError('stream SLUICE_LOGS holds 1.7 MiB, more than the new bound of 1 MiB'),
    );
    const { config } = await (await link.manager()).streams.info('SLUICE_EVENTS');
    expect(config.max_bytes).toBe(16 * MIB);
    expect(await setup({ maxBytes: 2 * MIB })).toHaveLength(9);
  });

  it('refuses another retention, which the server cannot change', async () => {
    const manager = await link.manager();
    await manager.streams.add({
      name: 'SLUICE_EVENTS',
      subjects: ['sluice.events.0'],
      retention: RetentionPolicy.Limits,
    });
    await expect(setup()).rejects.toThrow(/SLUICE_EVENTS: retention limits → workqueue cannot be changed/);
    expect(await streamNames()).toEqual(['SLUICE_EVENTS']);
  });

  it('refuses subjects that another stream takes, and a second consumer', async () => {
    const manager = await link.manager();
    await manager.streams.add({ name: 'OTHER', subjects: ['sluice.>'] });
    await expect(setup()).rejects.toThrow(
      /stream SLUICE_EVENTS of 16 MiB: another stream takes its subjects/,
    );
    await manager.streams.delete('OTHER');
    await setup();
    await manager.consumers.delete('SLUICE_EVENTS', 'processor');
    await manager.consumers.add('SLUICE_EVENTS', { durable_name: 'stranger', ack_policy: 'explicit' });
    await expect(setup()).rejects.toThrow(/consumer processor of SLUICE_EVENTS: a work queue has one/);
  });

  it('refuses replicas that a single server does not have', async () => {
    await expect(setup({ replicas: 3 })).rejects.toThrow(/3 replicas need a NATS cluster/);
    expect(await streamNames()).toEqual([]);
  });

  it('refuses more than the server can hold, with the bytes wanted and its error', async () => {
    const failure = await setup({ maxBytes: 2 ** 46 }).catch((error) => error);
    expect(failure).toBeInstanceOf(SetupError);
    expect(failure.message).toMatch(
      /^the streams need 576 TiB of storage in all, and stream SLUICE_EVENTS of 64 TiB: no server has the storage for it \(.*insufficient storage/,
    );
    expect(await streamNames()).toEqual([]);
  });

  /** A bound for each of the nine streams with which the server has room for some of them, and not for all. */
  const forSome = async (): Promise<number> => {
    const { streams } = await link.manager();
    const holds = async (bytes: number): Promise<boolean> => {
      const config = { name: 'OTHER', max_bytes: bytes, storage: 'file' as const };
      const made = await streams.add(config).then(
        () => true,
        () => false,
      );
      if (made) await streams.delete('OTHER');
      return made;
    };
    let bytes = 2 ** 50;
    while (!(await holds(bytes))) bytes /= 2;
    return Math.floor((bytes * 2) / 9);
  };

  it('takes back the streams that it had made before the server had no room for more', async () => {
    const maxBytes = await forSome();
    await expect(setup({ maxBytes })).rejects.toThrow(/no server has the storage.*Nothing was changed/);
    expect(await streamNames()).toEqual([]);
  });

  it('takes back what it had changed before the server had no room for more', async () => {
    await setup();
    const maxBytes = await forSome();
    await link.js.publish('sluice.events.0', 'a frame');
    await expect(setup({ maxBytes })).rejects.toThrow(/Nothing was changed/);
    expect(await setup()).toEqual([]);
    expect((await (await link.manager()).streams.info('SLUICE_EVENTS')).state.messages).toBe(1);
  });

  it('brings back the streams of another number of shards, when there is no room for the new ones', async () => {
    await setup();
    await expect(setup({ shards: 2, maxBytes: await forSome() })).rejects.toThrow(/Nothing was changed/);
    await link.js.publish('sluice.events.0', 'a frame');
    expect(await setup()).toEqual([]);
  });
});

describe('another number of shards', () => {
  it('replaces streams that are empty', async () => {
    await setup();
    const said = await setup({ shards: 2 });
    expect(said[0]).toBe(
      'deleted stream SLUICE_EVENTS, which was empty and belongs to another number of shards',
    );
    expect((await streamNames()).filter(isFrameStreamName)).toHaveLength(12);
    await setup({ shards: 3 });
    await setup({ shards: 1 });
    expect((await streamNames()).filter(isFrameStreamName)).toHaveLength(6);
    expect(await setup()).toEqual([]);
  });

  it('is not refused for what was acknowledged and is still there', async () => {
    await setup();
    const manager = await link.manager();
    await keepAcknowledged(manager, 'SLUICE_EVENTS');
    await link.js.publish('sluice.events.0', Buffer.from('a frame'));
    await expect(setup({ shards: 2 })).rejects.toThrow(/SLUICE_EVENTS \(messages: 1\): stop ingest/);
    const consumer = await link.js.consumers.get('SLUICE_EVENTS', 'processor');
    await (await consumer.next())?.ackAck();
    expect((await manager.streams.info('SLUICE_EVENTS')).state.messages).toBe(1);
    expect((await setup({ shards: 2 }))[0]).toContain('deleted stream SLUICE_EVENTS');
  });

  it('is refused while a stream that would go still holds messages', async () => {
    await setup({ shards: 2 });
    await link.js.publish('sluice.logs.1', Buffer.from('unread'));
    await expect(setup()).rejects.toThrow(/SLUICE_LOGS_1 \(messages: 1\): stop ingest/);
    expect(await setup({ shards: 2 })).toEqual([]);
    expect(await setup({ shards: 3 })).toHaveLength(12);
  });

  it('leaves all streams as they were when one of them has taken a frame at the last moment', async () => {
    await setup();
    await justBefore('update', 'SLUICE_EVENTS', () => link.js.publish('sluice.transactions.0', 'late'));
    await expect(setup({ shards: 2 })).rejects.toThrow(/SLUICE_TRANSACTIONS \(messages: 1\): stop ingest/);
    expect((await streamNames()).filter(isFrameStreamName)).toHaveLength(6);
    await link.js.publish('sluice.events.0', 'a frame');
    await link.js.publish('sluice.transactions.0', 'a frame');
    expect(await setup()).toEqual([]);
  });

  it('deletes no stream that another setup has opened again meanwhile', async () => {
    await setup();
    const { streams } = await link.manager();
    await justBefore('delete', 'SLUICE_EVENTS', async () => {
      await streams.update('SLUICE_LOGS', { max_msg_size: -1 });
      await link.js.publish('sluice.logs.0', 'a frame');
    });
    await expect(setup({ shards: 2 })).rejects.toThrow(/SLUICE_LOGS: another setup/);
    expect((await streams.info('SLUICE_LOGS')).state.messages).toBe(1);
  });
});

describe('a setup for another number of shards that ended half-way', () => {
  const publish = () => link.js.publish('sluice.events.0', 'a frame');
  /** What a killed one leaves: some streams refuse what comes. */
  async function killHalfWay(): Promise<void> {
    await setup();
    await (await link.manager()).streams.update('SLUICE_EVENTS', { max_msg_size: 1 });
    await expect(publish()).rejects.toThrow(/exceeds maximum/);
  }

  it('is undone by one for the earlier number', async () => {
    await killHalfWay();
    expect(await setup()).toEqual(['stream SLUICE_EVENTS: max_msg_size 1 B → unlimited']);
    await publish();
    expect(await setup()).toEqual([]);
  });

  it('is undone by one that finds frames, so that workers go on', async () => {
    await killHalfWay();
    await link.js.publish('sluice.logs.0', 'a frame');
    await expect(setup({ shards: 2 })).rejects.toThrow(/SLUICE_LOGS \(messages: 1\): stop ingest/);
    await publish();
  });

  it('is undone by one in whose way a frame comes, so that workers go on', async () => {
    await killHalfWay();
    await justBefore('update', 'SLUICE_LOGS', () => link.js.publish('sluice.logs.0', 'late'));
    await expect(setup({ shards: 2 })).rejects.toThrow(/SLUICE_LOGS \(messages: 1\): stop ingest/);
    await publish();
  });

  it('is brought to its end by the same again', async () => {
    await killHalfWay();
    expect((await setup({ shards: 2 }))[0]).toContain('deleted stream SLUICE_EVENTS');
    expect(await setup({ shards: 2 })).toEqual([]);
  });

  it('undoes what it can by itself when the broker does not answer', async () => {
    await setup();
    await justBefore('update', 'SLUICE_LOGS', () => Promise.reject(new Error('timeout')));
    await expect(setup({ shards: 2 })).rejects.toThrow('timeout');
    await publish();
    expect(await setup()).toEqual([]);
  });
});
