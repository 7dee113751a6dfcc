/** The work that a frame writer notes of a project. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { systemClock } from '../../src/lib/clock.ts';
import { Slices } from '../../src/lib/slices.ts';
import { DeadLetters } from '../../src/processor/dead-letters/dead-letters.ts';
import { InflationBudgets } from '../../src/processor/decode/inflation-budgets.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import { FrameWriter } from '../../src/processor/frame-writer.ts';
import { Gate } from '../../src/processor/gate.ts';
import type { HeavyProjects } from '../../src/processor/heavy-projects.ts';
import { ProcessorMetrics } from '../../src/processor/metrics.ts';
import type { SinkBatch } from '../../src/sink/sink.ts';
import { type Privacy, SCRUBS } from '../../src/stream/frame.ts';
import { workOn } from '../../src/stream/work.ts';
import { envelope, frameOf, Harness, item, log } from './harness.ts';

let harness: Harness;
beforeAll(async () => {
  harness = await Harness.start();
});
afterAll(() => harness.close());

/** A batch that takes everything. */
const batch: SinkBatch = {
  bytes: 0,
  entriesKnown: () => 0,
  beginEntry: () => undefined,
  add: () => undefined,
  relieve: () => undefined,
  commit: async () => [],
  abandon: async () => undefined,
};
const privacy: Privacy = { scrub: SCRUBS, names: [] };
const payload = JSON.stringify({ extra: "':':1".repeat(200) });

/** The work on an item that is scrubbed, where each look at the clock finds it `ms` later. */
async function workWith(ms: number): Promise<number[]> {
  const noted: number[] = [];
  let now = 0;
  const writer = new FrameWriter({
    link: harness.link,
    sink: { begin: async () => batch },
    deadLetters: new DeadLetters({ link: harness.link, log, clock: systemClock }),
    metrics: new ProcessorMetrics(),
    largeGate: new Gate(),
    slices: new Slices(() => {
      now += ms;
      return now;
    }),
    budgets: new InflationBudgets(() => 0),
    heavyProjects: { note: (_: string, work: number) => noted.push(work) } as unknown as HeavyProjects,
    log,
  });
  const data = frameOf(envelope([item('event', payload)], { privacy }));
  const delivery = { frameId: 'f', data, ackConfirmed: async () => undefined } as unknown as Delivery;
  await writer.write([delivery], { now: false, done: () => undefined });
  return noted;
}

it('an item that is scrubbed is as much work as its size tells, or as it took, and the latter has a bound', async () => {
  const bySize = workOn(payload.length, privacy);
  expect(await workWith(0)).toEqual([bySize]);
  const [slow = 0] = await workWith(1_000);
  expect(slow).toBeGreaterThan(2 * bySize);
  expect(slow).toBeLessThan(3 * bySize);
});
