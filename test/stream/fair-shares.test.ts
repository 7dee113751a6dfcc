/** What projects share on the way into the streams: the chunks stream, the bytes in flight, and the way itself. */
import { randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { createLog } from '../../src/lib/log.ts';
import { Slotted } from '../../src/lib/slots.ts';
import { FRAME_BYTES_MAX, PARTS_IN_FLIGHT_MAX } from '../../src/limits.ts';
import type { EnvelopeEntry } from '../../src/stream/frame.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { removeParts } from '../../src/stream/parts.ts';
import { Publisher, type PublishResult } from '../../src/stream/publish/publisher.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { Broker, envelopeOf, MIB, numbersTo } from './broker.ts';

let broker: Broker;
afterEach(() => broker?.close());

const large = (number: number, projectId: string): EnvelopeEntry => ({
  ...envelopeOf(number, new Uint8Array(randomBytes(2 * MIB))),
  projectId,
});

/** Resolves when a publisher has asked twice how full the chunks stream is: parts that ended during the first look counted twice in it. */
async function lookedTwice(): Promise<void> {
  const looks = broker.link.connection.subscribe('$JS.API.STREAM.INFO.SLUICE_CHUNKS', { max: 3 });
  for await (const _look of looks);
}

/** Publishes one after the other until one is refused, also after a fresh look. @returns how many were stored */
async function untilRefused(projectId: string, publisher = broker.publisher): Promise<number> {
  let refused = 0;
  for (let stored = 0; ; ) {
    const deadline = performance.now() + 30_000;
    const result = await new Promise<PublishResult>((resolve) =>
      publisher.publish(large(stored, projectId), { deadline }, resolve),
    );
    refused = result === 'stored' ? 0 : refused + 1;
    if (refused === 2) return stored;
    if (refused === 1) await lookedTwice();
    else stored++;
  }
}
const looked = (what: () => boolean): Promise<void> => expect.poll(what).toBe(true) as Promise<void>;

describe('the chunks stream', () => {
  it('is never filled by one project: others go on, and it does again when its parts are gone', async () => {
    broker = await Broker.start({ maxBytes: 32 * MIB });
    const { publisher, manager } = broker;
    const taken = await untilRefused('1');
    expect(taken).toBeGreaterThanOrEqual(8);
    expect(taken).toBeLessThanOrEqual(9);
    const project = new Slotted();
    const bytes = 2 * FRAME_BYTES_MAX;
    expect([publisher.hasRoomFor('1', project, bytes), publisher.hasRoomFor('1', project, 1_000)]).toEqual([
      false,
      true,
    ]);
    expect(await broker.publish(large(100, '2'))).toBe('stored');
    expect(await broker.publish(large(101, '3'))).toBe('stored');
    const { state } = await manager.streams.info('SLUICE_CHUNKS');
    await removeParts(broker.link, numbersTo(state.last_seq + 1).slice(1));
    await looked(() => publisher.hasRoomFor('1', project, bytes));
    expect(await broker.publish(large(102, '1'))).toBe('stored');
  });

  it('is shared over all workers: each learns what the others wrote', async () => {
    broker = await Broker.start({ maxBytes: 32 * MIB });
    const other = new Publisher({ link: broker.link, shards: 1, clock, log: createLog('silent') });
    await untilRefused('1', other);
    // The first entry of a worker begins its looks.
    expect(await broker.publish(large(100, '2'))).toBe('stored');
    const project = new Slotted();
    await looked(() => !broker.publisher.hasRoomFor('1', project, MIB));
    expect(broker.publisher.hasRoomFor('2', project, MIB)).toBe(true);
    expect(await broker.publish(large(101, '1'))).toBe('refused');
    expect(await broker.publish(large(102, '2'))).toBe('stored');
  });
});

describe('the bytes in flight', () => {
  it('of a broker that stands still are shared: who has more than its share is refused at the door', async () => {
    broker = await Broker.start();
    const { publisher } = broker;
    const [greedy, modest] = [new Slotted(), new Slotted()];
    await broker.freeze();
    const deadline = performance.now() + 30_000;
    const results: Promise<PublishResult>[] = [];
    const publish = (project: Slotted, projectId: string): void => {
      const entry = { ...envelopeOf(results.length, randomBytes(100_000)), projectId };
      results.push(new Promise((resolve) => publisher.publish(entry, { deadline, project }, resolve)));
    };
    while (publisher.hasRoomFor('1', greedy, 100_000)) publish(greedy, '1');
    expect(results.length * 100_000).toBeGreaterThan(15 * MIB);
    expect(results.length * 100_000).toBeLessThan(17 * MIB);
    expect(publisher.hasRoomFor('2', modest, 100_000)).toBe(true);
    publish(modest, '2');
    broker.thaw();
    expect(new Set(await Promise.all(results))).toEqual(new Set(['stored']));
    expect([greedy.isInUse, modest.isInUse, publisher.hasRoomFor('1', greedy, 1)]).toEqual([
      false,
      false,
      true,
    ]);
  });

  it('of a broker that stands still are shared by requests that passed the door together', async () => {
    broker = await Broker.start();
    const { publisher } = broker;
    const [greedy, modest] = [new Slotted(), new Slotted()];
    await broker.freeze();
    const deadline = performance.now() + 30_000;
    const publish = (project: Slotted, projectId: string): Promise<PublishResult> => {
      const entry = { ...envelopeOf(1, randomBytes(100_000)), projectId };
      return new Promise((resolve) => publisher.publish(entry, { deadline, project }, resolve));
    };
    const results = Array.from({ length: 400 }, () => publish(greedy, '1'));
    const other = publish(modest, '2');
    broker.thaw();
    expect(await other).toBe('stored');
    expect(new Set(await Promise.all(results))).toEqual(new Set(['stored', 'refused']));
    expect([greedy.isInUse, modest.isInUse]).toEqual([false, false]);
  });
});

it('a small envelope does not wait behind the parts of a large one', async () => {
  broker = await Broker.start();
  const proxy = await TcpProxy.start(broker.server.port);
  const log = createLog('silent');
  const connect = (): Promise<NatsLink> =>
    NatsLink.connect({ urls: [`nats://127.0.0.1:${proxy.port}`], name: 'far', log });
  const [link, partsLink] = [await connect(), await connect()];
  const publisher = new Publisher({ link, partsLink, shards: 1, clock, log });
  proxy.weather = { bytesPerSec: 2 * MIB };
  const deadline = performance.now() + 30_000;
  const publish = (entry: EnvelopeEntry): Promise<PublishResult> =>
    new Promise((resolve) => publisher.publish(entry, { deadline }, resolve));
  const slow = publish(large(1, '1'));
  await looked(() => publisher.stats.publishes.SLUICE_CHUNKS === PARTS_IN_FLIGHT_MAX);
  expect(await publish(envelopeOf(2))).toBe('stored');
  expect(await broker.messageCount('SLUICE_CHUNKS')).toBeLessThan(PARTS_IN_FLIGHT_MAX);
  expect(await slow).toBe('stored');
  expect(publisher.stats.publishes).toEqual({ SLUICE_CHUNKS: 5, SLUICE_EVENTS: 2 });
  await Promise.all([link.close(), partsLink.close()]);
  await proxy.close();
});
