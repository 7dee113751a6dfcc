/** How a consumer handles frames that came often: one by one, whatever the broker and a stop do to it. */
import { expect, it } from 'vitest';
import { systemClock } from '../../src/lib/clock.ts';
import { OutageLog } from '../../src/lib/outage-log.ts';
import { DELIVERIES_BEFORE_ALONE, FRAME_CRASHES_MAX, STOP_STORE_MS_MAX } from '../../src/limits.ts';
import { StreamConsumer, type StreamConsumerOptions } from '../../src/processor/consumer.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import type { WriteReport } from '../../src/processor/frame-writer.ts';
import { Gate } from '../../src/processor/gate.ts';
import { UnavailableError } from '../../src/sink/unavailable.ts';
import { log } from './harness.ts';

/**
 * A consumer of so many frames. `write` is told of each frame before it is written, and may throw;
 * while `isAway` the counts of crashes can be raised and not put back.
 */
function consumerOf(frames: number, write: (sequence: number) => void | Promise<void>) {
  const did: string[] = [];
  const suspects = Array.from(
    { length: frames },
    (_, n) =>
      ({
        sequence: n + 1,
        count: DELIVERIES_BEFORE_ALONE,
        giveBack: () => did.push(`given back ${n + 1}`),
      }) as unknown as Delivery,
  );
  const queued = [...suspects];
  let isStopped = false;
  let wake = (): void => undefined;
  const counts = new Map<Delivery, number>();
  let now = 0;
  const parts = {
    queue: {
      start: () => undefined,
      gather: async () => undefined,
      stop: async () => {
        isStopped = true;
        wake();
      },
      frames: {
        get isEmpty() {
          return queued.length === 0;
        },
        get isOver() {
          return isStopped && queued.length === 0;
        },
        full: true,
        heldCount: 0,
        close: () => undefined,
        take: () => queued.splice(0),
        settle: (done: Delivery[]) => did.push(...done.map(({ sequence }) => `settled ${sequence}`)),
        untilChange: () =>
          new Promise<void>((resolve) => {
            wake = resolve;
          }),
      },
    },
    outage: new OutageLog({ log, clock: systemClock }),
    crashCounts: {
      read: async (frame: Delivery) => counts.get(frame) ?? 0,
      write: async (frame: Delivery, crashes: number) => {
        if (crashes < (counts.get(frame) ?? 0)) throw new UnavailableError('away');
        counts.set(frame, crashes);
      },
      clear: async () => undefined,
    },
    writer: {
      acknowledgeStored: async () => false,
      setAside: async ({ sequence }: Delivery) => did.push(`set aside ${sequence}`),
      write: async ([frame]: [Delivery], { entering }: WriteReport) => {
        await entering?.('decoding');
        await write(frame.sequence);
        did.push(`written ${frame.sequence}`);
      },
    },
    gate: new Gate(),
    clock: { monotonic: () => now },
    log,
  };
  const consumer = new StreamConsumer(parts as unknown as StreamConsumerOptions);
  consumer.start((error) => did.push(String(error)));
  const pass = (ms: number): void => {
    now += ms;
  };
  return { consumer, did, pass };
}

it('takes no outage of its broker for an end of a process, though the count stays raised', async () => {
  let outages = FRAME_CRASHES_MAX + 1;
  const { consumer, did } = consumerOf(1, () => {
    if (outages-- > 0) throw new UnavailableError('away');
  });
  await expect.poll(() => did.length, { timeout: 20_000 }).toBeGreaterThan(1);
  await consumer.stop();
  expect(did).toEqual(['written 1', 'settled 1']);
});

it('goes on where an outage ended its turn', async () => {
  let outages = 1;
  const { consumer, did } = consumerOf(3, (sequence) => {
    if (sequence === 2 && outages-- > 0) throw new UnavailableError('away');
  });
  await expect.poll(() => did.length, { timeout: 20_000 }).toBeGreaterThan(5);
  await consumer.stop();
  expect(did).toEqual([1, 2, 3].flatMap((n) => [`written ${n}`, `settled ${n}`]));
});

it('gives back the rest of its turn when a stop takes too long', async () => {
  let goOn: (() => void) | undefined;
  const { consumer, did, pass } = consumerOf(
    3,
    () =>
      new Promise((resolve) => {
        goOn = resolve;
      }),
  );
  await expect.poll(() => goOn).toBeDefined();
  const ended = consumer.stop();
  pass(STOP_STORE_MS_MAX);
  goOn?.();
  await ended;
  expect(did).toEqual(['written 1', 'settled 1', 'given back 2', 'given back 3', 'settled 2', 'settled 3']);
});
