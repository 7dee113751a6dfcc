/** How a frame is written while the process has more to do. */
import { expect, it } from 'vitest';
import { systemClock } from '../../src/lib/clock.ts';
import { Slices } from '../../src/lib/slices.ts';
import { SLICE_MS_MAX } from '../../src/limits.ts';
import { DeadLetters } from '../../src/processor/dead-letters/dead-letters.ts';
import { InflationBudgets } from '../../src/processor/decode/inflation-budgets.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import { FrameWriter } from '../../src/processor/frame-writer.ts';
import { Gate } from '../../src/processor/gate.ts';
import { ProcessorMetrics } from '../../src/processor/metrics.ts';
import type { SinkBatch } from '../../src/sink/sink.ts';
import { envelope, frameOf, Harness, item, log } from './harness.ts';

/** Notes how many records the batch had at each pause. */
class NotedSlices extends Slices {
  readonly pausedAt: number[] = [];
  readonly #records: () => number;

  constructor(records: () => number) {
    // Each record takes a millisecond.
    super(records);
    this.#records = records;
  }

  override turn(): Promise<void> {
    this.pausedAt.push(this.#records());
    return super.turn();
  }
}

it('pauses between the items of an envelope that has many small ones', async () => {
  const harness = await Harness.start();
  let records = 0;
  const batch: SinkBatch = {
    bytes: 0,
    entriesKnown: () => 0,
    beginEntry: () => undefined,
    add: () => records++,
    relieve: () => undefined,
    commit: async () => [],
    abandon: async () => undefined,
  };
  const slices = new NotedSlices(() => records);
  const writer = new FrameWriter({
    link: harness.link,
    sink: { begin: async () => batch },
    deadLetters: new DeadLetters({ link: harness.link, log, clock: systemClock }),
    metrics: new ProcessorMetrics(),
    largeGate: new Gate(),
    slices,
    budgets: new InflationBudgets(() => 0),
    log,
  });
  const items = Array.from({ length: 4 * SLICE_MS_MAX }, (_, index) => item('event', '{}', { index }));
  const data = frameOf(envelope(items));
  const delivery = { frameId: 'f', data, ackConfirmed: async () => undefined } as unknown as Delivery;
  const stored: Delivery[] = [];
  await writer.write([delivery], { now: false, done: (frames) => stored.push(...frames) });
  expect(stored).toEqual([delivery]);
  expect(records).toBe(items.length);
  expect(slices.pausedAt).toEqual([1, 2, 3, 4].map((slice) => slice * SLICE_MS_MAX));
  await harness.close();
});
