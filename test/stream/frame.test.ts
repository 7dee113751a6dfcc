import { decode, encode } from '@msgpack/msgpack';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ITEM_TYPES } from '../../src/lib/item-types.ts';
import {
  countOfEntries,
  decodeFrame,
  type Entry,
  encodedBytesBound,
  encodeEntry,
  encodeFrame,
  FRAME_VERSION,
  FrameError,
  SCRUBS,
} from '../../src/stream/frame.ts';

const plain = (bytes: Uint8Array): Uint8Array => new Uint8Array(bytes);
const ascii = (text: string): Uint8Array => new TextEncoder().encode(text);

const event = (payload = '{"message":"boom"}'): Entry => ({
  kind: 'envelope',
  projectId: '4711',
  eventId: '0123456789abcdef0123456789abcdef',
  receivedAt: 1_790_000_000_123,
  items: [
    {
      index: 2,
      type: 'event',
      header: ascii('{"type":"event"}'),
      length: payload.length,
      payload: ascii(payload),
    },
  ],
});

type Change = [path: number[], value: unknown];

/** The bytes of an entry of which some decoded fields were replaced. */
function altered(entry: Entry, changes: readonly Change[]): Uint8Array {
  const fields = decode(encodeEntry(entry)) as unknown[];
  for (const [path, value] of changes) {
    const place = path.slice(0, -1).reduce((at, step) => at[step] as unknown[], fields);
    place[path.at(-1)!] = value;
  }
  return encode(fields);
}

function only(frame: Uint8Array) {
  const slots = decodeFrame(plain(frame));
  expect(slots).toHaveLength(1);
  return slots[0]!;
}

const count = fc.oneof(fc.maxSafeNat(), fc.nat(300), fc.constantFrom(127, 128, 2 ** 32 - 1, 2 ** 32));
const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300, size: 'max' }),
  fc.string({ unit: 'binary-ascii', maxLength: 300, size: 'max' }),
);
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
const bytes = fc.uint8Array({ maxLength: 300 });
const item = fc
  .record({ index: count, type: fc.constantFrom(...ITEM_TYPES), header: bytes, payload: bytes })
  .map((fields) => ({ ...fields, length: fields.payload.length }));
const envelope = fc.record({
  kind: fc.constant('envelope' as const),
  projectId: text,
  eventId: text,
  receivedAt: count,
  sentAt: optional(text),
  sdk: optional(text),
  month: optional(text),
  position: optional(count),
  items: fc.array(item, { maxLength: 40 }),
  privacy: optional(
    fc.record({
      scrub: fc.array(fc.constantFrom(...SCRUBS), { maxLength: 5 }),
      names: fc.array(text, { maxLength: 20 }),
      clientAddress: optional(text),
      userAgent: optional(text),
    }),
  ),
});
const large = fc
  .record({
    whole: envelope,
    sequences: fc.array(count, { maxLength: 40 }),
    sha256: fc.uint8Array({ minLength: 32, maxLength: 32 }),
  })
  .map(({ whole, sequences, sha256 }) => ({
    ...whole,
    items: whole.items.map(({ payload: _, ...rest }) => rest),
    parts: { sequences, length: whole.items.reduce((sum, { length }) => sum + length, 0), sha256 },
  }));
const heartbeat = fc.record({
  kind: fc.constant('heartbeat' as const),
  token: text,
  receivedAt: count,
  body: optional(bytes),
});
const anyEntry: fc.Arbitrary<Entry> = fc.oneof(envelope, large, heartbeat);

describe('a frame', () => {
  it('gives back every entry that was put in, in order', () => {
    fc.assert(
      fc.property(fc.array(anyEntry, { maxLength: 20 }), (entries) => {
        const encoded = entries.map(encodeEntry);
        const frame = encodeFrame(encoded);
        // Entries of both kinds side by side, as they are or encoded.
        const mixed = encodeFrame(entries.map((entry, n) => (n % 2 ? entry : encoded[n]!)));
        expect(Buffer.compare(mixed, frame)).toBe(0);
        expect(Buffer.compare(encodeFrame(entries), frame)).toBe(0);
        encoded.forEach(({ length }, n) => {
          expect(length).toBeLessThanOrEqual(encodedBytesBound(entries[n]!));
        });
        const slots = decodeFrame(plain(frame));
        expect(slots.map((slot) => slot.ok && slot.entry)).toEqual(entries);
      }),
      { numRuns: 200 },
    );
  });

  it('is MessagePack that any decoder can read', () => {
    const frame = encodeFrame([
      encodeEntry(event()),
      encodeEntry({ kind: 'heartbeat', token: 't', receivedAt: 5 }),
    ]);
    const [version, first, second] = decode(plain(frame)) as [number, Uint8Array, Uint8Array];
    expect(version).toBe(FRAME_VERSION);
    expect(decode(first)).toEqual([
      0,
      '4711',
      '0123456789abcdef0123456789abcdef',
      1_790_000_000_123,
      null,
      null,
      null,
      null,
      [[2, 0, ascii('{"type":"event"}'), 18, ascii('{"message":"boom"}')]],
      null,
    ]);
    expect(decode(second)).toEqual([1, 't', 5, null]);
  });

  it('names item types by places that never change: frames of earlier builds wait in streams', () => {
    const types = [
      ...[
        'event',
        'transaction',
        'log',
        'replay_event',
        'replay_recording',
        'span',
        'attachment',
        'check_in',
      ],
      ...['session', 'sessions', 'feedback', 'user_report', 'profile', 'profile_chunk', 'trace_metric'],
      ...['client_report', 'replay_video', 'raw_security'],
    ];
    for (const [place, type] of types.entries()) {
      const slot = only(encodeFrame([altered(event(), [[[8, 0, 1], place]])]));
      expect(slot).toMatchObject({ ok: true, entry: { items: [{ type }] } });
    }
  });

  it('names what is removed from payloads by places that never change', () => {
    const names = ['emails', 'cards', 'ips', 'user-ip', 'keys'];
    expect(names).toEqual(SCRUBS);
    for (const [place, name] of names.entries()) {
      const privacy = { scrub: [], names: ['ssn'], clientAddress: '::1' };
      const slot = only(encodeFrame([altered({ ...event(), privacy } as Entry, [[[10, 0], [place]]])]));
      expect(slot).toMatchObject({ ok: true, entry: { privacy: { ...privacy, scrub: [name] } } });
    }
  });

  it('is never read without its wishes: what a processor does not know is no entry to it', () => {
    const privacy = { scrub: [SCRUBS[0]], names: [] };
    const fields = decode(encodeEntry({ ...event(), privacy } as Entry)) as unknown[];
    expect(fields[0]).toBe(2);
    for (const changes of [
      [[[10, 0], [SCRUBS.length]]],
      [[[10], null]],
      [[[0], 0]],
      [[[0], 3]],
    ] as Change[][])
      expect(only(encodeFrame([altered({ ...event(), privacy } as Entry, changes)]))).toMatchObject({
        ok: false,
      });
    expect(only(encodeFrame([altered(event(), [[[0], 2]])]))).toMatchObject({ ok: false });
  });

  it('can be made by any encoder', () => {
    const entry = encode([1, 'token', 7, ascii('late')]);
    expect(only(encode([FRAME_VERSION, entry]))).toMatchObject({
      ok: true,
      entry: { kind: 'heartbeat', token: 'token', receivedAt: 7, body: ascii('late') },
    });
  });

  it('keeps neighbours apart: an entry that is junk takes only its own place, with its original bytes', () => {
    const nested = new Uint8Array(200_000).fill(0x91);
    nested[nested.length - 1] = 0xc0;
    const junk = [
      ...[ascii('junk'), Uint8Array.of(0xc1), encode([9]), encode({ a: 1 }), new Uint8Array()],
      nested,
      nested.subarray(1, -1),
    ];
    for (const bad of junk) {
      const slots = decodeFrame(encodeFrame([encodeEntry(event('a')), bad, encodeEntry(event('b'))]));
      expect(slots.map((slot) => slot.ok)).toEqual([true, false, true]);
      expect(slots[1]).toMatchObject({ error: expect.any(FrameError) });
      // toEqual would take seconds for 200 kB.
      expect(Buffer.compare(slots[1]!.bytes, bad)).toBe(0);
    }
  });

  it('tells how many entries it has without being decoded', () => {
    for (const count of [1, 2, 14, 15, 16, 255, 256, 300]) {
      const frame = encodeFrame(Array.from({ length: count }, () => ascii('junk')));
      expect(countOfEntries(frame)).toBe(count);
      expect(countOfEntries(frame.subarray(0, 3))).toBe(count);
    }
    for (const other of [[], [0x90], [0x91, FRAME_VERSION], [0xdc, 0, 1], [0xdc], [0xff, 0xff], [0x82, 1, 2]])
      expect(countOfEntries(new Uint8Array(other))).toBeUndefined();
  });

  it('that is not ours is refused as a whole', () => {
    const frame = encodeFrame([encodeEntry(event())]);
    const strangers = [
      ascii('hello'),
      new Uint8Array(),
      encode(null),
      encode({}),
      encode([]),
      encode([FRAME_VERSION + 1, new Uint8Array()]),
      encode([FRAME_VERSION, 'an entry that is no byte string']),
      frame.subarray(0, frame.length - 1),
      Uint8Array.of(0xdd, 0xff, 0xff, 0xff, 0xff, 1),
      Buffer.concat([frame, Uint8Array.of(0)]),
    ];
    for (const stranger of strangers) expect(() => decodeFrame(stranger)).toThrow(FrameError);
  });
});

describe('an entry', () => {
  const hash = new Uint8Array(32);
  const noPayload: Change = [[8, 0, 4], null];
  const wrong: [string, ...Change[]][] = [
    ['a field too many', [[10], null]],
    ['a project id that is a number', [[1], 4711]],
    ['a negative time', [[3], -1]],
    ['a time with a fraction', [[3], 1.5]],
    ['a number for sent_at', [[4], 5]],
    ['no items', [[8], null]],
    ['an item without fields', [[8, 0], []]],
    ['an item type that does not exist', [[8, 0, 1], ITEM_TYPES.length]],
    ['an item header that is text', [[8, 0, 2], '{}']],
    ['a length that is not the payload’s', [[8, 0, 3], 19]],
    ['a payload that is missing', noPayload],
    ['parts beside a payload', [[9], [[1], 18, hash]]],
    ['parts of another length', noPayload, [[9], [[1], 17, hash]]],
    ['a hash that is too short', noPayload, [[9], [[1], 18, hash.subarray(1)]]],
    ['a sequence that is text', noPayload, [[9], [['1'], 18, hash]]],
  ];
  it.each(wrong)('with %s is refused', (_, ...changes) => {
    const slot = only(encodeFrame([altered(event(), changes)]));
    expect(slot).toMatchObject({ ok: false, error: expect.any(FrameError) });
  });

  it('that ends early is refused', () => {
    const whole = encodeEntry(event());
    for (let length = 0; length < whole.length; length++)
      expect(only(encodeFrame([whole.subarray(0, length)]))).toMatchObject({ ok: false });
  });

  it('whose parts fit its items is accepted', () => {
    const slot = only(encodeFrame([altered(event(), [noPayload, [[9], [[1, 2], 18, hash]]])]));
    expect(slot).toMatchObject({ ok: true, entry: { parts: { sequences: [1, 2], length: 18 } } });
  });
});
