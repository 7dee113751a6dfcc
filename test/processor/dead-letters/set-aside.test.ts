/** Frames that ended the processor too often, beside entries whose payloads stand in parts. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NdjsonSink } from '../../../src/sink/ndjson/ndjson.ts';
import { moveHeaders, sourceOf } from '../../../src/stream/parts.ts';
import { FailingSink } from '../failing-sink.ts';
import {
  type DeadLetterBox,
  type EnvelopeEntry,
  encodeEntry,
  encodeFrame,
  envelope,
  eventually,
  type FiledDeadLetter,
  Harness,
  hexId,
  item,
  log,
  NOW,
  numbersIn,
} from '../harness.ts';

/** A frame that ended so many processes is set aside. */
const FRAME_CRASHES_MAX = 3;

let harness: Harness;
let box: DeadLetterBox;
beforeEach(async () => {
  harness = await Harness.start({ ackWaitMs: 700 });
  box = await harness.letters();
});
afterEach(() => harness.close());

/** The entry as a worker queues a large one. */
async function inParts(entry: EnvelopeEntry): Promise<EnvelopeEntry> {
  const items = entry.items.map(({ payload: _, ...bare }) => bare);
  const { source, ...moved } = moveHeaders({ ...entry, items }, sourceOf(entry));
  return { ...moved.entry, parts: await harness.chunk(await source.read(0, source.length)) };
}

const big = (n: number): string => `{"n":${n},"noise":"${'x'.repeat(1_200_000)}"}`;
const bigEvent = (n: number) => envelope([item('event', big(n))], { eventId: hexId(n) });
const small = (n: number) => envelope([item('log', `{"n":${n}}`)], { eventId: hexId(n) });
const counted = (entry: EnvelopeEntry, position: number) => ({ ...entry, month: '2026-01', position });

/** A frame that has ended processes so often that the next one sets it aside. */
async function publishPoison(entries: readonly Uint8Array[], deaths = FRAME_CRASHES_MAX): Promise<void> {
  const sequence = await harness.publishBytes(encodeFrame(entries), { id: 'poison' });
  await harness.noteCrashes(sequence, deaths);
  await harness.deliverOften();
}

/** Nothing but the dead letters is left, as after the next look of the sweeper. */
async function sweep(): Promise<void> {
  await harness.drained();
  await harness.manager.streams.purge('SLUICE_CHUNKS');
}

async function replayAll(letters: readonly FiledDeadLetter[]): Promise<void> {
  for (const letter of letters) await harness.replay(letter);
}

const numbers = (): number[] => numbersIn(harness.stored());

describe('a frame that is set aside', () => {
  it('becomes a letter for each entry when one stands in parts, and all are stored by a replay after the sweep', async () => {
    const junk = Buffer.from('no entry');
    const entries = [counted(small(1), 1), counted(await inParts(bigEvent(2)), 2)].map(encodeEntry);
    await publishPoison([...entries, junk, encodeEntry(await inParts(bigEvent(3)))]);
    await harness.process();
    await sweep();
    const letters = await box.list();
    const reason = `its frame ended the processor at least ${FRAME_CRASHES_MAX} times; not looked into`;
    expect(letters).toMatchObject(
      [0, 1, 2, 3].map((entryIndex) => ({ kind: 'entry', reason, frameId: 'poison', entryIndex })),
    );
    expect(letters[1]).toMatchObject({ projectId: '42', eventId: hexId(2), type: 'event' });
    expect(await box.bytesOf(letters[2] as FiledDeadLetter)).toEqual(junk);
    await replayAll(letters);
    await harness.storedOnce(3);
    await harness.drained();
    expect(numbers()).toEqual([1, 2, 3]);
    const events = harness.stored().filter(({ type }) => type === 'event');
    expect(events.map(({ payload }) => JSON.stringify(payload)).sort()).toEqual([big(2), big(3)]);
    expect(await harness.tally('42', '2026-01')).toEqual({ count: 2, position: 2 });
    expect(await box.list()).toMatchObject([{ reason: 'entry is no MessagePack' }]);
  });

  it('keeps item headers that stand in parts too, more of them than a frame holds', async () => {
    const header = `{"type":"log","x":"${'h'.repeat(15_000)}"}`;
    const items = Array.from({ length: 80 }, (_, index) => item('log', `{"n":${index}}`, { index, header }));
    await publishPoison([encodeEntry(await inParts(envelope(items)))]);
    await harness.process();
    await sweep();
    await replayAll(await box.list());
    await harness.storedOnce(80);
    expect(numbers()).toEqual(Array.from({ length: 80 }, (_, n) => n));
    expect(harness.stored().every((one) => JSON.stringify(one.item_header) === header)).toBe(true);
  });

  it('is one letter when nothing of it stands in parts', async () => {
    await publishPoison([encodeEntry(small(1)), encodeEntry(small(2))]);
    await harness.process();
    await sweep();
    const letters = await box.list();
    expect(letters).toMatchObject([{ kind: 'frame', frameId: 'poison' }]);
    expect(await box.bytesOf(letters[0] as FiledDeadLetter)).toEqual(
      Buffer.from(encodeFrame([encodeEntry(small(1)), encodeEntry(small(2))])),
    );
  });

  it('is set aside once, although the processor fails after the letters were filed', async () => {
    await publishPoison([encodeEntry(await inParts(bigEvent(1))), encodeEntry(small(2))]);
    const sink = await FailingSink.wrap(harness.dir);
    sink.failing = 'commit';
    await harness.process({ sink });
    await eventually(async () => sink.failures > 0 && (await box.list()).length === 2);
    sink.failing = 'after commit';
    await eventually(() => sink.failures > 2);
    sink.failing = undefined;
    await sweep();
    expect(await box.list()).toHaveLength(2);
    await replayAll(await box.list());
    await harness.storedOnce(2);
    await harness.drained();
    expect(numbers()).toEqual([1, 2]);
  });

  it.each([
    ['with parts', async () => [await inParts(bigEvent(1)), await inParts(bigEvent(2)), small(3)]],
    ['without', async () => [small(1), small(2), small(3)]],
  ])('leaves out the entries that were stored before, %s', async (_, make) => {
    const sink = await NdjsonSink.lock(harness.dir, { log });
    const batch = await (await sink.open('SLUICE_EVENTS')).begin(['poison']);
    batch.beginEntry({ frameId: 'poison', index: 0 });
    await batch.commit(NOW);
    await sink.close();
    await publishPoison((await make()).map(encodeEntry));
    await harness.process();
    await sweep();
    expect((await box.list()).map(({ entryIndex }) => entryIndex)).toEqual([1, 2]);
    await replayAll(await box.list());
    await harness.storedOnce(2);
    expect(numbers()).toEqual([2, 3]);
  });

  it('says which part was gone already, and keeps the others', async () => {
    const entry = await inParts(bigEvent(1));
    const gone = entry.parts?.sequences[1] ?? 0;
    await harness.manager.streams.deleteMessage('SLUICE_CHUNKS', gone);
    await publishPoison([encodeEntry(entry)]);
    await harness.process();
    await sweep();
    const [letter] = (await box.list()) as [FiledDeadLetter];
    expect(letter.reason).toBe(
      `its frame ended the processor at least ${FRAME_CRASHES_MAX} times; not looked into; part ${gone} is not in SLUICE_CHUNKS`,
    );
    expect(letter.bytes - letter.bodyBytes).toBe((entry.parts?.length ?? 0) - 500_000);
  });

  it('is kept as it is, unread, after reading its layout ended the processor as often again', async () => {
    await publishPoison([encodeEntry(await inParts(bigEvent(1)))], 2 * FRAME_CRASHES_MAX);
    await harness.process();
    await harness.drained();
    const reason = `ended the processor at least ${2 * FRAME_CRASHES_MAX} times; not looked into`;
    expect(await box.list()).toMatchObject([{ kind: 'frame', frameId: 'poison', reason }]);
  });
});
