import { randomBytes } from 'node:crypto';
import { deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { envelope, eventually, Harness, hexId, item, RECEIVED_AT, type StoredRecord } from './harness.ts';

let harness: Harness;
beforeAll(async () => {
  harness = await Harness.start();
  await harness.process();
});
afterAll(() => harness.close());

let events = 0;
const newId = (): string => hexId(++events);

function recordsOf(eventId: string, count = 1): Promise<StoredRecord[]> {
  return eventually(() => {
    const found = harness.stored().filter((record) => record.event_id === eventId);
    return found.length >= count ? found.sort((a, b) => a.item_index - b.item_index) : undefined;
  });
}

const lineOf = async (eventId: string): Promise<string> => {
  await recordsOf(eventId);
  return harness.lines().find((line) => line.includes(eventId)) as string;
};

describe('a stored record', () => {
  it('has every field of the contract', async () => {
    const eventId = newId();
    const event = item('event', '{"message":"hello"}', { index: 1, header: '{"type":"event","length":19}' });
    const header = { sentAt: '2026-01-02T03:04:05.1+02:00', sdk: 'sentry.javascript.node/10.1.0' };
    await harness.publish([envelope([event], { eventId, ...header })]);
    expect(await recordsOf(eventId)).toEqual([
      {
        project_id: '42',
        event_id: eventId,
        item_index: 1,
        type: 'event',
        received_at: '2026-01-02T03:04:05.678Z',
        sent_at: '2026-01-02T01:04:05.100Z',
        sdk: 'sentry.javascript.node/10.1.0',
        item_header: { type: 'event', length: 19 },
        payload: { message: 'hello' },
      },
    ]);
  });

  it.each(['', 'a"b', 'a\\b', 'a\n', '\n', 'a\u0000', 'ü', '\ud800', 'a b', 'a/1.0+x@y:z-_'])(
    'has an sdk as it came: %j',
    async (sdk) => {
      const eventId = newId();
      await harness.publish([envelope([item('event', '{}')], { eventId, sdk })]);
      expect((await recordsOf(eventId))[0]?.sdk).toBe(Buffer.from(sdk).toString());
    },
  );

  it('has no sent_at and sdk when the envelope gave none, or no moment', async () => {
    const [absent, senseless] = [newId(), newId()];
    await harness.publish([
      envelope([item('log', '{"items":[]}')], { eventId: absent }),
      envelope([item('log', '{"items":[]}')], { eventId: senseless, sentAt: 'yesterday' }),
    ]);
    for (const eventId of [absent, senseless]) {
      const [record] = await recordsOf(eventId);
      expect(record).not.toHaveProperty('sent_at');
      expect(record).not.toHaveProperty('sdk');
    }
  });

  it('keeps digits, order and repeats of the payload as they were sent, on one line', async () => {
    const eventId = newId();
    const payload = '{"b":12345678901234567890.50,\r\n "a":1, "a":2, "s":"\\u0000 \u2028 ü"}\n';
    await harness.publish([envelope([item('event', payload)], { eventId })]);
    const line = await lineOf(eventId);
    expect(line.endsWith(`"payload":${payload.replace(/[\r\n]/g, ' ')}}`)).toBe(true);
  });

  it('is written for each item of an envelope, with its place among all items', async () => {
    const eventId = newId();
    const items = [
      item('event', '{"n":0}', { index: 0 }),
      item('log', '{"items":[{"body":"a"},{"body":"b"}]}', { index: 2 }),
      item('replay_event', '{"n":3}', { index: 3 }),
    ];
    await harness.publish([envelope(items, { eventId })]);
    const records = await recordsOf(eventId, 3);
    expect(records.map(({ item_index, type }) => [item_index, type])).toEqual([
      [0, 'event'],
      [2, 'log'],
      [3, 'replay_event'],
    ]);
    expect(records[1]?.payload).toEqual({ items: [{ body: 'a' }, { body: 'b' }] });
  });

  it.each([
    ['gzip', (json: string) => gzipSync(json)],
    ['zlib', (json: string) => deflateSync(json)],
    ['plain JSON', (json: string) => Buffer.from(json)],
  ])('of a replay recording holds what was in its %s', async (_, encode) => {
    const eventId = newId();
    const recording = [{ type: 4, data: { href: 'http://example.org/\n' } }, { type: 2 }];
    const payload = Buffer.concat([
      Buffer.from('{"segment_id":7}\n'),
      encode(JSON.stringify(recording, null, 1)),
    ]);
    await harness.publish([envelope([item('replay_recording', payload)], { eventId })], {
      stream: 'replays',
    });
    const [record] = await recordsOf(eventId);
    expect(record?.payload).toEqual({ segment_id: 7, recording });
  });

  it.each<['attachment' | 'replay_video' | 'session', string, boolean]>([
    ['attachment', '{\n "a":1\r\n}', true],
    ['attachment', '123\n', true],
    ['attachment', '', true],
    ['replay_video', '[1]', true],
    ['session', '{"sid":"s"}', false],
    ['session', 'no JSON', true],
  ])('of a type %s with %j has the payload in base64: %j', async (type, payload, isBase64) => {
    const eventId = newId();
    await harness.publish([envelope([item(type, payload)], { eventId })], { stream: 'extras' });
    const [record] = await recordsOf(eventId);
    const kept = isBase64
      ? { payload_base64: Buffer.from(payload).toString('base64') }
      : { payload: JSON.parse(payload) };
    expect(record).toMatchObject({ type, ...kept });
    expect(Object.keys(record ?? {})).not.toContain(isBase64 ? 'payload' : 'payload_base64');
  });

  it('is made of the parts of a large entry', async () => {
    const eventId = newId();
    const payloads = [JSON.stringify({ noise: randomBytes(900_000).toString('hex') }), '{"second":true}'];
    const parts = await harness.chunk(Buffer.from(payloads.join('')));
    expect(parts.sequences).toHaveLength(4);
    const items = payloads.map((text, index) => {
      const { payload: _, ...bare } = item('event', text, { index });
      return bare;
    });
    await harness.publish([envelope(items, { eventId, parts })]);
    const records = await recordsOf(eventId, 2);
    expect(records.map(({ payload }) => JSON.stringify(payload))).toEqual(payloads);
  });

  it('of a heartbeat has its token, and its body when there was one', async () => {
    await harness.publish(
      [
        { kind: 'heartbeat', token: 'tick', receivedAt: RECEIVED_AT },
        {
          kind: 'heartbeat',
          token: 'tock',
          receivedAt: RECEIVED_AT,
          body: new Uint8Array(Buffer.from('a "ü"\n')),
        },
      ],
      { stream: 'heartbeats' },
    );
    const pings = await eventually(() => {
      const found = harness.stored().filter(({ type }) => type === 'heartbeat');
      return found.length === 2 ? found : undefined;
    });
    const received_at = '2026-01-02T03:04:05.678Z';
    expect(pings).toEqual([
      { type: 'heartbeat', token: 'tick', received_at },
      { type: 'heartbeat', token: 'tock', received_at, body: 'a "ü"\n' },
    ]);
  });

  it('stands in the sink within a second of its acceptance when nothing else is under way', async () => {
    // The best of five: a disk may be slow once, a processor that waits for its batch does so each time.
    const took: number[] = [];
    while (took.length < 5 && !took.some((ms) => ms < 1_000)) {
      await harness.drained();
      await new Promise((resolve) => setTimeout(resolve, 1_100));
      const eventId = newId();
      const publishedAt = performance.now();
      await harness.publish([envelope([item('event', '{}')], { eventId })]);
      await eventually(() => harness.stored().some((record) => record.event_id === eventId));
      took.push(performance.now() - publishedAt);
    }
    expect(Math.min(...took)).toBeLessThan(1_000);
  });

  it('is counted in the metrics, and nothing stays pending', async () => {
    await harness.drained();
    const stored = harness.stored().filter(({ type }) => type === 'event').length;
    expect(await harness.metric('sluice_processed_total', '{type="event",result="stored"}')).toBe(stored);
    expect(await harness.metric('sluice_pending_messages', '{stream="SLUICE_EVENTS"}')).toBe(0);
    expect(await harness.metric('sluice_processing_lag_seconds')).toBe(0);
  });
});
