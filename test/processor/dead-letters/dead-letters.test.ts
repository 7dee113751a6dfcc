import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type DeadLetterBox,
  type Entry,
  encodeEntry,
  encodeFrame,
  entryOf,
  envelope,
  eventually,
  type FiledDeadLetter,
  Harness,
  hexId,
  item,
  RECEIVED_AT,
} from '../harness.ts';

let harness: Harness;
let box: DeadLetterBox;
beforeAll(async () => {
  harness = await Harness.start();
  box = await harness.letters();
  await harness.process();
});
afterAll(() => harness.close());

let events = 0;
const newId = (): string => hexId(++events);
const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));

const letterWhere = (test: (letter: FiledDeadLetter) => boolean): Promise<FiledDeadLetter> =>
  eventually(async () => (await box.list()).find(test));

async function contentOf(
  letter: FiledDeadLetter,
): Promise<{ body: Buffer; rest: Buffer; entry: Entry | undefined }> {
  const bytes = Buffer.from(await box.bytesOf(letter));
  const body = bytes.subarray(0, letter.bodyBytes);
  return { body, rest: bytes.subarray(letter.bodyBytes), entry: entryOf(letter, body) };
}

const replay = (letter: FiledDeadLetter): Promise<string> => harness.replay(letter);

/** The payload of the only item of a letter's entry. */
async function payloadOf(letter: FiledDeadLetter): Promise<Buffer> {
  const { entry } = await contentOf(letter);
  if (entry?.kind !== 'envelope') throw new Error('not an envelope');
  expect(entry.items).toHaveLength(1);
  return Buffer.from(entry.items[0]?.payload as Uint8Array);
}

const recording = (json: Uint8Array | string): Uint8Array =>
  Buffer.concat([Buffer.from('{"segment_id":0}\n'), gzipSync(json, { level: 1 })]);

describe('an item that cannot be decoded', () => {
  it.each([
    ['no JSON', item('event', '{"a":1', { index: 1 }), 'payload is not valid JSON'],
    ['empty', item('transaction', '', { index: 1 }), 'payload is empty, JSON expected'],
    ['two values', item('log', '{} {}', { index: 1 }), 'payload is not valid JSON'],
    ['no UTF-8', item('event', Uint8Array.of(0x22, 0xff, 0x22), { index: 1 }), 'payload is not valid UTF-8'],
    [
      'under a broken header',
      item('event', '{}', { index: 1, header: '[]' }),
      'item header is no JSON object',
    ],
    ['a recording without its line', item('replay_recording', '[]', { index: 1 }), /segment_id/],
    [
      'a torn recording',
      item('replay_recording', recording('[1,2]').subarray(0, 30), { index: 1 }),
      /not valid/,
    ],
    [
      'a recording that is no array',
      item('replay_recording', recording('{}'), { index: 1 }),
      /no JSON array/,
    ],
  ])('being %s is a dead letter alone: its neighbour is stored', async (_, broken, reason) => {
    const eventId = newId();
    const good = item('replay_event', '{"good":true}');
    await harness.publish([envelope([good, broken], { eventId, sdk: 'x/1' })]);
    const letter = await letterWhere((one) => one.eventId === eventId);
    expect(letter).toMatchObject({
      kind: 'item',
      subject: 'sluice.events.0',
      projectId: '42',
      entryIndex: 0,
      itemIndex: 1,
      type: broken.type,
      receivedAt: RECEIVED_AT,
    });
    expect(letter.reason).toMatch(reason);
    expect(await payloadOf(letter)).toEqual(Buffer.from(broken.payload as Uint8Array));
    await harness.drained();
    expect(harness.stored().filter((one) => one.event_id === eventId)).toMatchObject([
      { item_index: 0, payload: { good: true } },
    ]);
  });

  it('beside a thousand others of its envelope: ten are dead letters alone, the others are one, which can be replayed', async () => {
    const eventId = newId();
    const broken = (_: unknown, at: number) => item('event', `no JSON ${at}`, { index: at + 1 });
    const items = [item('replay_event', '{"good":true}'), ...Array.from({ length: 999 }, broken)];
    await harness.publish([envelope(items, { eventId })]);
    const ofEnvelope = async (): Promise<FiledDeadLetter[]> =>
      (await box.list()).filter((one) => one.eventId === eventId);
    await eventually(async () => (await ofEnvelope()).length === 11);
    await harness.drained();
    const letters = await ofEnvelope();
    expect(letters.filter(({ kind }) => kind === 'item').map(({ itemIndex }) => itemIndex)).toEqual(
      Array.from({ length: 10 }, (_, n) => n + 1),
    );
    const rest = letters.find(({ kind }) => kind === 'entry') as FiledDeadLetter;
    expect(rest).toMatchObject({ entryIndex: 0, type: 'event', projectId: '42', receivedAt: RECEIVED_AT });
    expect(rest.reason).toBe('several items cannot be stored; the first: payload is not valid JSON');
    const { entry } = await contentOf(rest);
    expect(entry).not.toHaveProperty('position');
    expect(entry?.kind === 'envelope' && entry.items.map(({ index }) => index)).toEqual(
      Array.from({ length: 989 }, (_, n) => n + 11),
    );
    await replay(rest);
    await eventually(async () => (await ofEnvelope()).length === 21);
    expect(harness.stored().filter((one) => one.event_id === eventId)).toHaveLength(1);
  });

  it('of a project that had a hundred lately shares a letter with the others of its envelope', async () => {
    const broken = (_: unknown, index: number) => item('event', `no JSON ${index}`, { index });
    const items = Array.from({ length: 10 }, broken);
    const envelopes = Array.from({ length: 40 }, () =>
      envelope(items, { eventId: newId(), projectId: 'flood' }),
    );
    await harness.publish(envelopes);
    await harness.drained();
    const letters = (await box.list()).filter(({ projectId }) => projectId === 'flood');
    expect(letters.filter(({ kind }) => kind === 'item').length).toBeGreaterThanOrEqual(100);
    expect(letters.length).toBeLessThan(300);
    let count = 0;
    for (const letter of letters) {
      const { entry } = await contentOf(letter);
      count += entry?.kind === 'envelope' ? entry.items.length : 0;
    }
    expect(count).toBe(400);
  });

  it('being a recording larger than the bound after decompression keeps its compressed bytes', async () => {
    const eventId = newId();
    const json = Buffer.alloc(64 * 1024 * 1024 + 1, 0x20);
    json.write('[');
    json.write(']', json.length - 1);
    const bomb = item('replay_recording', recording(json));
    await harness.publish([envelope([bomb], { eventId })], { stream: 'replays' });
    const letter = await letterWhere((one) => one.eventId === eventId);
    expect(letter.reason).toBe('recording of more than 67108864 bytes after decompression');
    expect(await payloadOf(letter)).toEqual(Buffer.from(bomb.payload as Uint8Array));
  });

  it('being large is kept in parts, and comes back whole', async () => {
    const eventId = newId();
    const payload = `{"noise":"${'x'.repeat(2_000_000)}"`;
    const { payload: _, ...bare } = item('event', payload);
    const parts = await harness.chunk(Buffer.from(payload));
    await harness.publish([envelope([bare], { eventId, parts })]);
    const letter = await letterWhere((one) => one.eventId === eventId);
    expect(letter.bytes).toBeGreaterThan(2_000_000);
    expect((await payloadOf(letter)).equals(Buffer.from(payload))).toBe(true);
  });

  it('being a ping of no moment is a dead letter too', async () => {
    const ping = {
      kind: 'heartbeat',
      token: 'bad',
      receivedAt: Number.MAX_SAFE_INTEGER,
      body: Buffer.from([0xff]),
    } as const;
    await harness.publish([ping], { stream: 'heartbeats' });
    const letter = await letterWhere((one) => one.type === 'heartbeat');
    expect(letter).toMatchObject({ kind: 'entry', reason: 'receivedAt is no moment' });
    const { entry } = await contentOf(letter);
    expect(entry).toMatchObject({ token: 'bad', receivedAt: ping.receivedAt });
    expect(Buffer.from((entry as typeof ping).body)).toEqual(ping.body);
  });
});

describe('a large entry', () => {
  it('of which a part is missing is a dead letter with what is there', async () => {
    const eventId = newId();
    const payload = `{"n":"${'y'.repeat(1_200_000)}"}`;
    const { payload: _, ...bare } = item('event', payload);
    const parts = await harness.chunk(Buffer.from(payload));
    await harness.manager.streams.deleteMessage('SLUICE_CHUNKS', parts.sequences[1] ?? 0);
    await harness.publish([envelope([bare], { eventId, parts }), envelope([item('log', '{}')], { eventId })]);
    const letter = await letterWhere((one) => one.eventId === eventId);
    expect(letter).toMatchObject({ kind: 'entry', entryIndex: 0 });
    expect(letter.reason).toBe(`part ${parts.sequences[1]} is not in SLUICE_CHUNKS`);
    const { rest } = await contentOf(letter);
    expect(rest.toString()).toBe(payload.slice(0, 500_000) + payload.slice(1_000_000));
    await harness.drained();
    expect(harness.stored().filter((one) => one.event_id === eventId)).toMatchObject([{ type: 'log' }]);
  });

  it('whose bytes are not those that were sent is a dead letter', async () => {
    const eventId = newId();
    const { payload: _, ...bare } = item('event', '{"a":1}');
    const parts = await harness.chunk(Buffer.from('{"a":2}'));
    const claimed = { ...parts, sha256: (await harness.chunk(Buffer.from('{"a":1}'))).sha256 };
    await harness.publish([envelope([bare], { eventId, parts: claimed })]);
    const letter = await letterWhere((one) => one.eventId === eventId);
    expect(letter.reason).toMatch(/hash/);
    expect((await contentOf(letter)).rest.toString()).toBe('{"a":2}');
  });
});

describe('a frame', () => {
  it('with one entry that is none loses only that entry', async () => {
    const [before, after] = [newId(), newId()];
    const junk = bytes('no entry');
    const entries = [before, after].map((eventId) =>
      encodeEntry(envelope([item('event', '{}')], { eventId })),
    );
    await harness.publishBytes(encodeFrame([entries[0] as Uint8Array, junk, entries[1] as Uint8Array]), {
      id: 'with-junk',
    });
    const letter = await letterWhere((one) => one.frameId === 'with-junk');
    expect(letter).toMatchObject({ kind: 'entry', entryIndex: 1 });
    expect((await contentOf(letter)).body).toEqual(Buffer.from(junk));
    await harness.drained();
    const ids = harness.stored().map(({ event_id }) => event_id);
    expect(ids).toContain(before);
    expect(ids).toContain(after);
  });

  it('that is none is a dead letter as a whole', async () => {
    const junk = bytes('{"not":"a frame"}');
    await harness.publishBytes(junk, { id: 'junk' });
    const letter = await letterWhere((one) => one.frameId === 'junk');
    expect(letter).toMatchObject({ kind: 'frame', subject: 'sluice.events.0', bytes: junk.length });
    expect((await contentOf(letter)).body).toEqual(Buffer.from(junk));
    await harness.drained();
  });
});

describe('the dead letters', () => {
  it('come back when they are replayed and cannot be stored again, large ones whole', async () => {
    const eventId = newId();
    const payload = `["${'w'.repeat(1_500_000)}"`;
    const { payload: _, ...bare } = item('log', payload);
    const parts = await harness.chunk(Buffer.from(payload));
    await harness.publish([envelope([bare], { eventId, parts, month: '2026-01', position: 5 })], {
      stream: 'logs',
    });
    const first = await letterWhere((one) => one.eventId === eventId);
    await replay(first);
    const second = await letterWhere((one) => one.eventId === eventId && one.id !== first.id);
    expect((await payloadOf(second)).equals(Buffer.from(payload))).toBe(true);
    const { entry } = await contentOf(second);
    expect(entry).not.toHaveProperty('month'); // counted once, when it first came
  });
});
