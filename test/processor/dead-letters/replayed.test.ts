/** A replay tells what becomes of its dead letter. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { DeadLetterBox, type FiledDeadLetter } from '../../../src/management/dead-letters/box.ts';
import { Replay } from '../../../src/management/dead-letters/replay.ts';
import { DeadLetters } from '../../../src/processor/dead-letters/dead-letters.ts';
import type { RunningProcessor } from '../../../src/processor/processor.ts';
import { encodeEntry, encodeFrame } from '../../../src/stream/frame.ts';
import { envelope, eventually, Harness, hexId, item, log } from '../harness.ts';

let harness: Harness;
let box: DeadLetterBox;
let processor: RunningProcessor;
beforeAll(async () => {
  harness = await Harness.start();
  box = await DeadLetterBox.open(harness.link);
  processor = await harness.process();
});
afterAll(() => harness?.close());

const run = (letter: FiledDeadLetter, waitMs: number) =>
  new Replay({ link: harness.link, box, shards: 1, clock, log }).run(letter, waitMs);
const letterOf = (eventId: string): Promise<FiledDeadLetter> =>
  eventually(async () => (await box.list()).find((one) => one.eventId === eventId));

it('what still cannot be stored is filed again, with its reason, the attempts and the first time of filing', async () => {
  const eventId = hexId(1);
  await harness.publish([envelope([item('event', 'no JSON')], { eventId })]);
  const first = await letterOf(eventId);
  expect(first).not.toHaveProperty('attempts');
  let letter = first;
  for (const attempts of [1, 2]) {
    const replayed = await run(letter, 30_000);
    expect(replayed).toEqual({
      subject: 'sluice.events.0',
      became: 'filed again',
      again: expect.any(String),
      reason: 'payload is not valid JSON',
    });
    letter = await box.get(`${replayed.again}`);
    expect(letter).toMatchObject({ attempts, firstFiledAt: first.filedAt });
  }
  await box.purge(letter);
});

it('what can be stored by now is stored, and what no processor takes waits', async () => {
  const eventId = hexId(2);
  const frame = encodeFrame([encodeEntry(envelope([item('event', '{"n":2}')], { eventId }))]);
  const file = async (frameId: string): Promise<FiledDeadLetter> => {
    const letter = {
      kind: 'frame' as const,
      reason: 'set aside',
      subject: 'sluice.events.0',
      frameId,
      body: frame,
    };
    await new DeadLetters({ link: harness.link, log }).publish([letter]);
    return eventually(async () => (await box.list()).find((one) => one.frameId === frameId));
  };
  expect(await run(await file('aside.1'), 30_000)).toEqual({ subject: 'sluice.events.0', became: 'stored' });
  expect(harness.stored().filter((one) => one.event_id === eventId)).toHaveLength(1);
  await processor.stop();
  expect((await run(await file('aside.2'), 0)).became).toBe('waiting');
});
