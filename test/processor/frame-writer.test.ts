/** How a frame is written while the process has more to do. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/lib/clock.ts';
import { Slices } from '../../src/lib/slices.ts';
import { SLICE_MS_MAX } from '../../src/limits.ts';
import { DeadLetters } from '../../src/processor/dead-letters/dead-letters.ts';
import { InflationBudgets } from '../../src/processor/decode/inflation-budgets.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import { FrameWriter, type FrameWriterOptions } from '../../src/processor/frame-writer.ts';
import { Gate } from '../../src/processor/gate.ts';
import type { HeavyProjects } from '../../src/processor/heavy-projects.ts';
import { ProcessorMetrics } from '../../src/processor/metrics.ts';
import type { SinkBatch } from '../../src/sink/sink.ts';
import { type EnvelopeEntry, type Privacy, SCRUBS } from '../../src/stream/frame.ts';
import { workOn } from '../../src/stream/work.ts';
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

let harness: Harness;
beforeAll(async () => {
  harness = await Harness.start();
});
afterAll(() => harness.close());

/** A batch that takes everything; `added` is called for each record. */
const batchOf = (added: () => void): SinkBatch => ({
  bytes: 0,
  entriesKnown: () => 0,
  beginEntry: () => undefined,
  add: added,
  relieve: () => undefined,
  commit: async () => [],
  abandon: async () => undefined,
});

/** Writes one envelope. @returns the frames that are stored */
async function written(entry: EnvelopeEntry, options: Partial<FrameWriterOptions>): Promise<number> {
  const writer = new FrameWriter({
    link: harness.link,
    sink: { begin: async () => batchOf(() => undefined) },
    deadLetters: new DeadLetters({ link: harness.link, log, clock: systemClock }),
    metrics: new ProcessorMetrics(),
    largeGate: new Gate(),
    slices: new Slices(),
    budgets: new InflationBudgets(() => 0),
    log,
    ...options,
  });
  const delivery = { frameId: 'f', data: frameOf(entry), ackConfirmed: async () => undefined };
  let stored = 0;
  await writer.write([delivery as unknown as Delivery], {
    now: false,
    done: (frames) => (stored += frames.length),
  });
  return stored;
}

it('pauses between the items of an envelope that has many small ones', async () => {
  let records = 0;
  const slices = new NotedSlices(() => records);
  const items = Array.from({ length: 4 * SLICE_MS_MAX }, (_, index) => item('event', '{}', { index }));
  const sink = { begin: async () => batchOf(() => records++) };
  expect(await written(envelope(items), { slices, sink })).toBe(1);
  expect(records).toBe(items.length);
  expect(slices.pausedAt).toEqual([1, 2, 3, 4].map((slice) => slice * SLICE_MS_MAX));
});

describe('an item that is scrubbed', () => {
  const privacy: Privacy = { scrub: SCRUBS, names: [] };
  const payload = JSON.stringify({ extra: "':':1".repeat(200) });
  /** The work that is noted where each look at the clock finds it `ms` later. */
  async function workWith(ms: number): Promise<number[]> {
    const noted: number[] = [];
    const heavyProjects = { note: (_: string, work: number) => noted.push(work) } as unknown as HeavyProjects;
    let now = 0;
    const slices = new Slices(() => {
      now += ms;
      return now;
    });
    await written(envelope([item('event', payload)], { privacy }), { slices, heavyProjects });
    return noted;
  }

  it('is as much work as its size tells, or as it took, and the latter has a bound', async () => {
    const bySize = workOn(payload.length, privacy);
    expect(await workWith(0)).toEqual([bySize]);
    const [slow = 0] = await workWith(1_000);
    expect(slow).toBeGreaterThan(2 * bySize);
    expect(slow).toBeLessThan(3 * bySize);
  });
});
