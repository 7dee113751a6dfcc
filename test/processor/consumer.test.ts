import { expect, it } from 'vitest';
import { DELIVERIES_BEFORE_ALONE, FRAME_CRASHES_MAX } from '../../src/limits.ts';
import { StreamConsumer, type StreamConsumerOptions } from '../../src/processor/consumer.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import type { WriteReport } from '../../src/processor/frame-writer.ts';
import { Gate } from '../../src/processor/gate.ts';
import { UnavailableError } from '../../src/sink/unavailable.ts';
import { log } from './harness.ts';

it('takes no outage of its broker for an end of a process, though the count stays raised', async () => {
  const frame = { count: DELIVERIES_BEFORE_ALONE } as Delivery;
  const frames = [frame];
  let count = 0;
  let outages = FRAME_CRASHES_MAX + 1;
  const did: string[] = [];
  let wake = (): void => undefined;
  let isOver = false;
  const parts = {
    queue: {
      get isEmpty() {
        return frames.length === 0;
      },
      full: true,
      start: () => undefined,
      get isOver() {
        return isOver;
      },
      stop: async () => {
        isOver = true;
        wake();
      },
      close: () => undefined,
      take: () => frames.splice(0),
      settle: (done: Delivery[]) => did.push(...done.map(() => 'settled')),
      untilChange: () =>
        new Promise<void>((resolve) => {
          wake = resolve;
        }),
    },
    crashCounts: {
      read: async () => count,
      // The broker is away when the count is to be put back.
      write: async (_: Delivery, crashes: number) => {
        if (crashes < count) throw new UnavailableError('away');
        count = crashes;
      },
      clear: async () => undefined,
    },
    writer: {
      acknowledgeStored: async () => false,
      setAside: async () => did.push('set aside'),
      write: async (_: Delivery[], { entering }: WriteReport) => {
        await entering?.('decoding');
        if (outages-- > 0) throw new UnavailableError('away');
        did.push('written');
      },
    },
    gate: new Gate(),
    clock: { monotonic: () => 0 },
    log,
  };
  const consumer = new StreamConsumer(parts as unknown as StreamConsumerOptions);
  consumer.start((error) => did.push(String(error)));
  await expect.poll(() => did.length, { timeout: 20_000 }).toBeGreaterThan(1);
  await consumer.stop();
  expect(did).toEqual(['written', 'settled']);
});
