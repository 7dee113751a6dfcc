import { describe, expect, it } from 'vitest';
import { seenText } from '../../src/commands/tail.ts';
import type { ItemType } from '../../src/lib/item-types.ts';
import { type SeenItem, sightingsOf } from '../../src/management/tail-item.ts';
import type { Entry, EnvelopeEntry } from '../../src/stream/frame.ts';
import { ENCODINGS, encoded, otlpItem, SPAN, tracesOf } from '../processor/decode/otlp/requests.ts';

const EVENT_ID = '0123456789abcdef0123456789abcdef';
const envelope = (
  type: ItemType,
  payload: string | undefined,
  length = payload?.length ?? 0,
): EnvelopeEntry => ({
  kind: 'envelope',
  projectId: '1',
  eventId: EVENT_ID,
  receivedAt: 1_790_000_000_000,
  sdk: 'sentry.python/2.0',
  items: [
    {
      index: 0,
      type,
      header: Buffer.from(`{"type":"${type}"}`),
      length,
      ...(payload !== undefined && { payload: Buffer.from(payload) }),
    },
  ],
});
const seenItems = (entry: Entry): SeenItem[] =>
  sightingsOf(entry, {}).flatMap((sighting) => sighting() as SeenItem[]);
const seenJson = (item: SeenItem): string => JSON.stringify(item);
const textOf = (type: ItemType, payload: unknown): string => {
  const [item] = seenItems(envelope(type, JSON.stringify(payload)));
  return item ? seenText(item) : '';
};

describe('an item as tail shows it', () => {
  it.each([
    [
      'event',
      { exception: { values: [{ type: 'TypeError', value: 'x is not a function' }] } },
      'TypeError: x is not a function',
    ],
    ['event', { message: 'hello' }, 'hello'],
    ['event', { logentry: { formatted: 'hello 5' } }, 'hello 5'],
    ['transaction', { transaction: 'GET /' }, 'GET /'],
    ['log', { items: [{ body: 'first line' }, { body: 'second' }] }, 'first line'],
    ['event', { exception: { values: [{ type: 7 }] }, message: { nested: true } }, ' B'],
    ['event', null, ' B'],
  ] as const)('names a %s after what it says', (type, payload, ending) => {
    expect(textOf(type, payload).endsWith(ending)).toBe(true);
  });

  it('lets no control character of a client reach the terminal, and cuts what is long', () => {
    const text = textOf('event', { message: `\u001b[2J\u0007bell\n${'x'.repeat(500)}` });
    expect(text).not.toMatch(/\p{Cc}/u);
    expect(text.length).toBeLessThan(200);
  });

  it('gives the length where the payload is compressed or stands elsewhere', () => {
    for (const entry of [
      envelope('replay_recording', '{"segment_id":0}\n\u001f\u008b'),
      envelope('event', undefined, 500_000),
    ]) {
      const [item] = seenItems(entry);
      const json = JSON.parse(item ? seenJson(item) : '') as Record<string, unknown>;
      expect(json.payload).toBeUndefined();
      expect(json.payload_bytes).toBe(entry.items[0]?.length);
      expect(json.sdk).toBe('sentry.python/2.0');
    }
  });

  it('shows a heartbeat with its token and body', () => {
    const [item] = seenItems({
      kind: 'heartbeat',
      token: 'abc',
      receivedAt: 0,
      body: Buffer.from('done in 5 s'),
    });
    expect(item && seenText(item)).toMatch(
      /^1970-01-01T00:00:00\.000Z {2}- {2}heartbeat +abc {2}11 B {2}done in 5 s$/,
    );
    expect(JSON.parse(item ? seenJson(item) : '')).toEqual({
      type: 'heartbeat',
      token: 'abc',
      received_at: '1970-01-01T00:00:00.000Z',
      payload_bytes: 11,
      body: 'done in 5 s',
    });
  });

  it('shows bytes that are no text of a heartbeat in base64, and no body where there is none', () => {
    const fieldsOf = (body?: Buffer): unknown => {
      const [item] = seenItems({ kind: 'heartbeat', token: 'abc', receivedAt: 0, body });
      return JSON.parse(item ? seenJson(item) : '');
    };
    const fields = { type: 'heartbeat', token: 'abc', received_at: '1970-01-01T00:00:00.000Z' };
    const bytes = { payload_bytes: 2, body_base64: '/wE=' };
    expect(fieldsOf(Buffer.from([0xff, 0x01]))).toEqual({ ...fields, ...bytes });
    expect(fieldsOf(Buffer.alloc(0))).toEqual({ ...fields, payload_bytes: 0 });
    expect(fieldsOf()).toEqual({ ...fields, payload_bytes: 0 });
  });
});

it.each(ENCODINGS)('an OTLP request in %s is shown as the containers that are stored', (encoding) => {
  const request = tracesOf([
    { ...SPAN, name: 'GET /users' },
    { ...SPAN, traceId: '' },
  ]);
  const entry = envelope('event', undefined);
  const items = seenItems({
    ...entry,
    items: [otlpItem('otlp_traces', encoded('otlp_traces', request, encoding), encoding)],
  });
  expect(items.map(({ type }) => type)).toEqual(['span', 'otlp_traces']);
  expect(seenText(items[0] as SeenItem)).toMatch(/ {2}span .* {2}GET \/users$/);
  expect(JSON.parse(seenJson(items[0] as SeenItem))).toMatchObject({
    payload: { version: 2, items: [{ name: 'GET /users' }] },
  });
});
