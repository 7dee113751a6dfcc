/** Brokers that allow larger messages than a processor fetches ahead, and consumers with another ack wait than ours. */
import assert from 'node:assert/strict';
import { nanos } from '@nats-io/transport-node';
import { afterEach, expect, it } from 'vitest';
import {
  ACK_WAIT_MS,
  PREFETCH_BYTES_MAX,
  PREFETCH_FRAMES_MAX,
  SUSPECTS_IN_TURN_MAX,
} from '../../src/limits.ts';
import { PullQueue } from '../../src/processor/pull-queue.ts';
import type { Sink, SinkBatch, StreamSink } from '../../src/sink/sink.ts';
import { FailingSink } from './failing-sink.ts';
import { envelope, eventually, Harness, hexId, item, log } from './harness.ts';

const MIB = 1024 * 1024;
let harness: Harness;
afterEach(() => harness.close());

const publish = (n: number): Promise<number> =>
  harness.publish([envelope([item('event', '{}')], { eventId: hexId(n) })]);

it('fetches a message alone that is larger than all that is fetched ahead', async () => {
  harness = await Harness.start({ brokerLines: ['max_payload: 32MB'] });
  for (let n = 1; n <= 5; n++) await publish(n);
  await harness.publishBytes(Buffer.alloc(PREFETCH_BYTES_MAX + MIB, 0xc1));
  for (let n = 6; n <= 10; n++) await publish(n);
  await harness.process();
  await harness.drained();
  expect(harness.stored().map((record) => record.event_id)).toEqual(
    Array.from({ length: 10 }, (_, n) => hexId(n + 1)),
  );
  await eventually(async () => (await harness.messages('SLUICE_DEAD_LETTERS')) > 0);
});

it('lets no pull outlive its process until a frame comes again: nats-server 2.9 would count its deliveries anew', async () => {
  harness = await Harness.start({ ackWaitMs: 1_000 });
  const expirations: number[] = [];
  harness.link.connection.subscribe('$JS.API.CONSUMER.MSG.NEXT.SLUICE_EVENTS.*', {
    callback: (_, msg) => void expirations.push(msg.json<{ expires: number }>().expires),
  });
  await harness.process();
  await eventually(() => expirations.length >= 3);
  expect(expirations.every((ns) => ns <= nanos(500))).toBe(true);
  expect(expirations.slice(1)).toEqual(expirations.slice(1).fill(nanos(500)));
});

it('leaves frames with the broker until a batch is due, and then takes them all', async () => {
  harness = await Harness.start({ ackWaitMs: 60_000 });
  const openPulls = async (): Promise<number> =>
    (await harness.manager.consumers.info('SLUICE_EVENTS', 'processor')).num_waiting;
  const queue = new PullQueue({ link: harness.link, stream: 'SLUICE_EVENTS', bytesMax: 8 * MIB, log });
  await publish(1);
  queue.start();
  await eventually(async () => queue.frames.count === 1 && (await openPulls()) === 0);
  for (let n = 2; n <= 50; n++) await publish(n);
  expect(queue.frames.count).toBe(1);
  await queue.gather();
  expect(queue.frames.count).toBe(50);
  await eventually(async () => (await openPulls()) === 0);
  await queue.gather();
  await eventually(async () => (await openPulls()) === 1);
  await publish(51);
  await eventually(() => queue.frames.count === 51);
  await queue.stop();
  queue.frames.close();
});

it('does not rest while its consumer waits for a frame, though a pull ends late', async () => {
  harness = await Harness.start();
  const queue = new PullQueue({ link: harness.link, stream: 'SLUICE_EVENTS', bytesMax: 8 * MIB, log });
  const { frames } = queue;
  await publish(1);
  queue.start();
  for (let n = 1; n <= 3; n++) {
    const came = frames.untilChange();
    if (n > 1) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      await publish(n);
    }
    await came;
    const taken = frames.take(() => true);
    expect(taken.map(({ sequence }) => sequence)).toEqual([n]);
    for (const delivery of taken) delivery.ack();
    frames.settle(taken);
    // The pull that brought the frame is still open: gather() leaves it alone, and the consumer waits for the next frame.
    await queue.gather();
  }
  await queue.stop();
  frames.close();
});

it('goes on fetching under load, up to a bound of frames in hand', async () => {
  harness = await Harness.start({ ackWaitMs: 60_000 });
  const queue = new PullQueue({ link: harness.link, stream: 'SLUICE_EVENTS', bytesMax: 16 * MIB, log });
  // Twice the bytes below which the queue rests: a slow broker has some of the frames fetched one by one, and those do not count.
  const large = 20;
  for (let n = 1; n <= large; n++) await harness.publishBytes(Buffer.alloc(450_000));
  queue.start();
  await eventually(() => queue.frames.count === large);
  const small = Buffer.alloc(10);
  const count = PREFETCH_FRAMES_MAX + 50;
  await Promise.all(Array.from({ length: count }, () => harness.publishBytes(small)));
  const inHand = async () => {
    const { num_ack_pending, num_pending } = await harness.manager.consumers.info(
      'SLUICE_EVENTS',
      'processor',
    );
    return { num_ack_pending, num_pending };
  };
  await eventually(() => queue.frames.count === PREFETCH_FRAMES_MAX);
  expect(await inHand()).toEqual({ num_ack_pending: PREFETCH_FRAMES_MAX, num_pending: large + 50 });
  await queue.stop();
  queue.frames.close();
});

it('lets go of the bytes of frames that a sink holds: they are views of blocks that others fill', async () => {
  harness = await Harness.start();
  await publish(1);
  const queue = new PullQueue({ link: harness.link, stream: 'SLUICE_EVENTS', bytesMax: MIB, log });
  queue.start();
  await eventually(() => !queue.frames.isEmpty);
  const [delivery] = queue.frames.take(() => true);
  assert(delivery && delivery.data.length > 0);
  queue.frames.hold([delivery]);
  expect(delivery.data).toHaveLength(0);
  delivery.ack();
  queue.frames.settle([delivery]);
  await harness.drained();
  await queue.stop();
  queue.frames.close();
});

it('has held frames stored when the broker gives out no more: all processors together hold as many as it may', async () => {
  harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
  await harness.manager.consumers.update('SLUICE_EVENTS', 'processor', { max_ack_pending: 2 });
  for (let n = 1; n <= 3; n++) await publish(n);
  const sink = new HoldingSink();
  await harness.process({ sink });
  await eventually(() => sink.stored.length === 2 && sink.held === 1);
  expect(sink.stored).toEqual(['test:1', 'test:2']);
});

it('a processor that stops has held frames stored', async () => {
  harness = await Harness.start();
  const sink = new HoldingSink();
  const processor = await harness.process({ sink });
  await publish(1);
  await eventually(() => sink.held === 1);
  expect(sink.stored).toEqual([]);
  await processor.stop();
  expect(sink.stored).toEqual(['test:1']);
  await harness.drained();
});

/** Holds what it is given until a commit does not wait. */
class HoldingSink implements Sink {
  readonly guarantee = 'repeatable';
  readonly stored: string[] = [];
  #waiting: (() => void)[] = [];

  get held(): number {
    return this.#waiting.length;
  }

  async open(): Promise<StreamSink> {
    return { begin: () => this.#batch() };
  }

  #batch(): SinkBatch {
    const frames: string[] = [];
    return {
      bytes: 0,
      entriesKnown: () => 0,
      beginEntry: ({ frameId }) => void frames.push(frameId),
      add: () => undefined,
      relieve: () => undefined,
      commit: async ({ now, held }) => {
        if (now) for (const store of this.#waiting.splice(0)) store();
        else
          await new Promise<void>((resolve) => {
            this.#waiting.push(resolve);
            held([]);
          });
        this.stored.push(...frames);
        return [];
      },
      abandon: async () => undefined,
    };
  }

  async close(): Promise<void> {}
}

it('a processor that stops stores what it has in hand: frames that are given back thrice pass for poison', async () => {
  harness = await Harness.start({ ackWaitMs: 10_000 });
  const inHand = async (): Promise<number> =>
    (await harness.manager.consumers.info('SLUICE_EVENTS', 'processor')).num_ack_pending;
  const sink = await FailingSink.wrap(harness.dir);
  let goOn = (): void => undefined;
  const mayGoOn = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  sink.beforeBatch = () => mayGoOn;
  await Promise.all(Array.from({ length: 50 }, (_, n) => publish(n + 1)));
  const processor = await harness.process({ sink });
  await eventually(async () => (await inHand()) === 50);
  const stopped = processor.stop();
  goOn();
  await stopped;
  expect(harness.stored()).toHaveLength(50);
  expect(await inHand()).toBe(0);
});

it('a processor that stops while nothing can be stored gives back what it has in hand', async () => {
  harness = await Harness.start({ ackWaitMs: 10_000 });
  const sink = await FailingSink.wrap(harness.dir);
  sink.failing = 'commit';
  const processor = await harness.process({ sink });
  await Promise.all(Array.from({ length: 50 }, (_, n) => publish(n + 1)));
  await eventually(() => sink.failures > 0);
  await processor.stop();
  await harness.process();
  // Long before the ack wait is over, but for one, which nats-server 2.9 takes for the pull of the stopped processor.
  await eventually(() => harness.stored().length >= 49, 5_000);
  await eventually(() => harness.stored().length === 50);
});

it('takes frames that may share a batch, or a hundred that may not, in their order', async () => {
  harness = await Harness.start();
  for (let n = 1; n <= SUSPECTS_IN_TURN_MAX + 5; n++) await publish(n);
  const queue = new PullQueue({ link: harness.link, stream: 'SLUICE_EVENTS', bytesMax: MIB, log });
  const last = SUSPECTS_IN_TURN_MAX + 2;
  queue.start();
  const taken: number[][] = [];
  await eventually(() => {
    if (queue.frames.isEmpty) return false;
    const frames = queue.frames.take(({ sequence }) => sequence > last);
    for (const frame of frames) frame.ack();
    queue.frames.settle(frames);
    taken.push(frames.map(({ sequence }) => sequence));
    return taken.flat().length === last + 3;
  });
  expect(taken.flat()).toEqual(Array.from({ length: last + 3 }, (_, n) => n + 1));
  expect(taken.every((frames) => frames.length <= SUSPECTS_IN_TURN_MAX)).toBe(true);
  expect(taken.some((frames) => frames.includes(last) && frames.includes(last + 1))).toBe(false);
  await queue.stop();
  queue.frames.close();
});
