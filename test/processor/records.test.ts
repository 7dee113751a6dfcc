import { deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { envelope, eventually, Harness, hexId, item, type StoredRecord } from './harness.ts';

let harness: Harness;
beforeAll(async () => {
  harness = await Harness.start();
  await harness.process();
});
afterAll(() => harness.close());

let events = 0;
const newId = (): string => hexId(++events);

const lineOf = (eventId: string): Promise<string> =>
  eventually(() => harness.lines().find((line) => line.includes(eventId)));
const recordOf = async (eventId: string): Promise<StoredRecord> => JSON.parse(await lineOf(eventId));

describe('a stored record', () => {
  // At the same time: each that comes within a second of another waits for its batch.
  it.concurrent.each(['', 'a"b', 'a\\b', 'a\n', '\n', 'a\u0000', 'ü', '\ud800', 'a b', 'a/1.0+x@y:z-_'])(
    'has an sdk as it came: %j',
    async (sdk) => {
      const eventId = newId();
      await harness.publish([envelope([item('event', '{}')], { eventId, sdk })]);
      expect((await recordOf(eventId)).sdk).toBe(Buffer.from(sdk).toString());
    },
  );

  it.concurrent('keeps digits, order and repeats of the payload as they were sent, on one line', async () => {
    const eventId = newId();
    const payload = '{"b":12345678901234567890.50,\r\n "a":1, "a":2, "s":"\\u0000 \u2028 ü"}\n';
    await harness.publish([envelope([item('event', payload)], { eventId })]);
    const line = await lineOf(eventId);
    expect(line.endsWith(`"payload":${payload.replace(/[\r\n]/g, ' ')}}`)).toBe(true);
  });

  it.concurrent.each([
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
    expect((await recordOf(eventId)).payload).toEqual({ segment_id: 7, recording });
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
