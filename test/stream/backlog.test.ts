import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { JetStreamManager } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Delivery } from '../../src/processor/delivery.ts';
import { PullQueue } from '../../src/processor/pull-queue.ts';
import { acknowledgeGone, readBacklog } from '../../src/stream/backlog.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { link as connect, log, type NatsLink } from '../projects/broker.ts';
import { natsServer, type TestServer } from '../support/servers.ts';
import { MIB, until } from '../support/system.ts';
import { keepAcknowledged } from './leftovers.ts';

const STREAM = 'SLUICE_EVENTS';
/** A few of these are more than a pull asks for. */
const FILLS_A_PULL = Buffer.alloc(400_000);
let server: TestServer;
let link: NatsLink;
let manager: JetStreamManager;
beforeEach(async () => {
  server = await natsServer();
  link = await connect(server.url);
  await setupTopology(link, { replicas: 1, shards: 1, maxBytes: 1024 * 1024 });
  manager = await link.manager();
});
afterEach(async () => {
  await link.close();
  await server.close();
});

const backlog = () => readBacklog(manager, { stream: STREAM, consumer: 'processor' });
async function publish(count: number): Promise<void> {
  for (let n = 0; n < count; n++) await link.js.publish('sluice.events.0', 'a frame');
}
/** Takes that many, and acknowledges those at which `acked` says so. */
async function take(count: number, acked: (at: number) => boolean = () => true): Promise<void> {
  const consumer = await link.js.consumers.get(STREAM, 'processor');
  for (let at = 0; at < count; at++) {
    const msg = await consumer.next();
    if (acked(at)) await msg?.ackAck();
  }
}

/** What a power cut does. @returns what brings a folder of the stream's storage back to what it is now */
async function remember(folder: 'msgs' | 'obs'): Promise<() => Promise<void>> {
  const now = join(server.dir, 'jetstream', '$G', 'streams', STREAM, folder);
  const earlier = `${now}-earlier`;
  await restarted(() => cpSync(now, earlier, { recursive: true }));
  return () =>
    restarted(() => {
      rmSync(now, { recursive: true });
      cpSync(earlier, now, { recursive: true });
    });
}

async function restarted(meanwhile: () => void): Promise<void> {
  await server.stop();
  await until(() => !link.connected);
  meanwhile();
  server = await natsServer({ port: server.port, dir: server.dir });
  await until(() => link.connected);
  await until(() => backlog().then(Boolean, () => false));
}

describe('the backlog of a stream', () => {
  it('is what stands in it while the broker removes what is acknowledged', async () => {
    expect(await backlog()).toEqual({ first: 1, last: 0 });
    await publish(3);
    expect(await backlog()).toEqual({ first: 1, last: 3 });
    await take(2);
    expect(await backlog()).toEqual({ first: 3, last: 3 });
    await take(1);
    expect(await backlog()).toEqual({ first: 4, last: 3 });
  });

  it('is all of it where there is no consumer', async () => {
    await publish(3);
    await manager.consumers.delete(STREAM, 'processor');
    expect(await backlog()).toEqual({ first: 1, last: 3 });
  });

  it('leaves out what was acknowledged and is still there', async () => {
    await keepAcknowledged(manager, STREAM);
    await publish(5);
    await take(3);
    expect((await manager.streams.info(STREAM)).state).toMatchObject({ messages: 5, first_seq: 1 });
    expect(await backlog()).toEqual({ first: 4, last: 5 });
    await take(2);
    expect(await backlog()).toEqual({ first: 6, last: 5 });
  });

  it('begins with what was handed out and not acknowledged', async () => {
    await keepAcknowledged(manager, STREAM);
    await publish(5);
    await take(4, (at) => at !== 1);
    expect(await backlog()).toEqual({ first: 2, last: 5 });
  });

  it('does not wait for the acknowledgement of what is gone', async () => {
    await keepAcknowledged(manager, STREAM);
    await publish(4);
    await take(3, (at) => at !== 1);
    const restore = await remember('obs');
    await manager.streams.deleteMessage(STREAM, 2);
    await manager.streams.deleteMessage(STREAM, 3);
    await restore();
    expect(await backlog()).toEqual({ first: 4, last: 4 });
  });

  it('is empty where all that waits to be acknowledged is gone', async () => {
    await keepAcknowledged(manager, STREAM);
    await publish(6);
    await take(6, (at) => at < 2);
    const restore = await remember('obs');
    for (let seq = 3; seq <= 6; seq++) await manager.streams.deleteMessage(STREAM, seq);
    await restore();
    expect((await manager.streams.info(STREAM)).state.messages).toBe(2);
    expect(await backlog()).toEqual({ first: 7, last: 6 });
  });

  it('takes nothing for processed that got its number after the broker had lost what was', async () => {
    await publish(5);
    await take(3);
    const restore = await remember('msgs');
    await publish(5);
    await take(7);
    await restore();
    await publish(3);
    const { first, last } = await backlog();
    expect(last).toBe(8);
    expect(first).toBeLessThanOrEqual(6);
  });
});

describe('a consumer that waits for what is gone', () => {
  it('gives out what waits behind: nats-server 2.9.10 by itself would not', async () => {
    await manager.consumers.update(STREAM, 'processor', { ack_wait: nanos(1_000) });
    await keepAcknowledged(manager, STREAM);
    await publish(60);
    await take(50, () => false);
    const restore = await remember('obs');
    for (let seq = 2; seq <= 50; seq++) await manager.streams.deleteMessage(STREAM, seq);
    await publish(5);
    await restore();
    const queue = new PullQueue({ link, stream: STREAM, bytesMax: MIB, log });
    queue.start();
    const taken = new Set<number>();
    await until(async () => {
      await queue.gather();
      const deliveries = queue.frames.take(() => true);
      for (const delivery of deliveries) {
        taken.add(delivery.sequence);
        delivery.ack();
      }
      queue.frames.settle(deliveries);
      return taken.size === 16;
    });
    expect([...taken].sort((a, b) => a - b)).toEqual([1, ...Array.from({ length: 15 }, (_, n) => 51 + n)]);
    await until(async () => (await manager.consumers.info(STREAM, 'processor')).num_ack_pending === 0);
    await queue.stop();
    queue.frames.close();
  });

  it('is told of what is gone under load too, when every pull is filled', async () => {
    await manager.consumers.update(STREAM, 'processor', { ack_wait: nanos(1_000) });
    await keepAcknowledged(manager, STREAM);
    await publish(10);
    await take(10, () => false);
    const restore = await remember('obs');
    for (let seq = 2; seq <= 10; seq++) await manager.streams.deleteMessage(STREAM, seq);
    await restore();
    await manager.streams.update(STREAM, { max_bytes: 1024 * MIB });
    const queue = new PullQueue({ link, stream: STREAM, bytesMax: 2 * MIB, log, goneLookMs: 1_500 });
    queue.start();
    let isOver = false;
    const whileLoaded = async (work: () => Promise<unknown>): Promise<void> => {
      while (!isOver) await work();
    };
    const load = whileLoaded(() => link.js.publish('sluice.events.0', FILLS_A_PULL).then(() => pause(5)));
    // The newest is always in hand, so the consumer never has nothing to wait for.
    const inHand: Delivery[] = [];
    const work = whileLoaded(async () => {
      await queue.gather();
      inHand.push(...queue.frames.take(() => true));
      const done = inHand.splice(0, inHand.length - 1);
      for (const delivery of done) delivery.ack();
      queue.frames.settle(done);
      await queue.frames.untilChange(10);
    });
    const floor = async () => (await manager.consumers.info(STREAM, 'processor')).ack_floor.stream_seq;
    await until(async () => (await floor()) > 10).finally(() => {
      isOver = true;
    });
    await Promise.all([load, work]);
    await queue.stop();
    queue.frames.close();
  });

  /** Of ten messages the first five are gone, and the server has forgotten that it waited for them. */
  async function loseFirst(): Promise<void> {
    await manager.consumers.update(STREAM, 'processor', { ack_wait: nanos(1_000) });
    await publish(10);
    await take(10, () => false);
    const restore = await remember('obs');
    for (let seq = 1; seq <= 5; seq++) await manager.streams.deleteMessage(STREAM, seq);
    await restore();
    await until(async () => (await manager.consumers.info(STREAM, 'processor')).num_ack_pending === 5);
  }
  const floorOf = async () => (await manager.consumers.info(STREAM, 'processor')).ack_floor.stream_seq;

  /** The same of ten that were given out twice, behind one that was acknowledged and is still there. */
  async function loseBehindLeftover(): Promise<void> {
    await manager.consumers.update(STREAM, 'processor', { ack_wait: nanos(1_000) });
    await keepAcknowledged(manager, STREAM);
    await publish(11);
    await take(1);
    await take(20, () => false);
    const restore = await remember('obs');
    for (let seq = 2; seq <= 6; seq++) await manager.streams.deleteMessage(STREAM, seq);
    await restore();
    await manager.streams.update(STREAM, { max_bytes: 1024 * MIB });
    expect(await floorOf()).toBe(1);
  }

  it.each([
    ['the server has forgotten what is gone', loseFirst],
    ['an older message is still there', loseBehindLeftover],
  ])('gets its floor back while it never has nothing to wait for, where %s', async (_, lose) => {
    await lose();
    const queue = new PullQueue({ link, stream: STREAM, bytesMax: 2 * MIB, log, goneLookMs: 1_500 });
    queue.start();
    // The newest is always in hand.
    const inHand: Delivery[] = [];
    await until(async () => {
      await Promise.all(Array.from({ length: 200 }, () => link.js.publish('sluice.events.0', 'a frame')));
      await queue.gather();
      inHand.push(...queue.frames.take(() => true));
      const done = inHand.splice(0, inHand.length - 1);
      for (const delivery of done) delivery.ack();
      queue.frames.settle(done);
      return (await floorOf()) > 10;
    });
    await queue.stop();
    queue.frames.close();
  });

  it('is told so of what is gone alone', async () => {
    await keepAcknowledged(manager, STREAM);
    await publish(6);
    await take(4, () => false);
    const restore = await remember('obs');
    await manager.streams.deleteMessage(STREAM, 2);
    await manager.streams.deleteMessage(STREAM, 4);
    await restore();
    expect(await acknowledgeGone(link, { stream: STREAM, consumer: 'processor' })).toBe(2);
    // The server has the two acknowledgements, and handles them in its own time.
    await until(async () => (await manager.consumers.info(STREAM, 'processor')).num_ack_pending < 3);
    const { num_ack_pending, num_pending, delivered } = await manager.consumers.info(STREAM, 'processor');
    expect({ num_ack_pending, num_pending, last: delivered.stream_seq }).toEqual({
      num_ack_pending: 2,
      num_pending: 2,
      last: 4,
    });
    expect((await manager.streams.info(STREAM)).state.messages).toBe(4);
  });

  it('does not pass over what is still to be acknowledged', async () => {
    // From here on the consumer counts more deliveries than the stream messages, as after any redelivery.
    await publish(1);
    const consumer = await link.js.consumers.get(STREAM, 'processor');
    for (let n = 0; n < 4; n++) (await consumer.next())?.nak();
    await take(1);
    await publish(10);
    await take(10, (at) => at >= 4);
    await publish(1);
    expect(await acknowledgeGone(link, { stream: STREAM, consumer: 'processor' })).toBe(6);
    await take(1); // acknowledgements are handled in order
    expect(await backlog()).toEqual({ first: 2, last: 12 });
    expect((await manager.consumers.info(STREAM, 'processor')).num_ack_pending).toBe(4);
  });
});
