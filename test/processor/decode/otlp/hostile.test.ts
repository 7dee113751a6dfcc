/** Requests that were made to do harm, or broke on their way. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Slices } from '../../../../src/lib/slices.ts';
import { EnvelopeDecoder } from '../../../../src/processor/decode/decode.ts';
import { partsOf } from '../../../../src/processor/decode/otlp/request.ts';
import { toSend } from '../../../../src/sink/containers.ts';
import { messageBytes, type OtlpJson, toJson, toProtobuf } from '../../../support/otlp-reference.ts';
import { givenSeed, rounds } from '../../../support/rounds.ts';
import { envelope } from '../../harness.ts';
import {
  attributesOf,
  ENCODINGS,
  encoded,
  logs,
  logsOf,
  otlpItem,
  type Part,
  parts,
  SPAN,
  traces,
  tracesOf,
} from './requests.ts';

const MIB = 1024 * 1024;

const field = (number: number, bytes: Uint8Array): Buffer => {
  const length: number[] = [];
  let rest = bytes.length;
  for (; rest > 0x7f; rest >>>= 7) length.push((rest & 0x7f) | 0x80);
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length, rest]), bytes]);
};
const requestOf = (records: Uint8Array, resource?: Uint8Array): Buffer =>
  field(1, Buffer.concat([resource ? field(1, resource) : Buffer.alloc(0), field(2, records)]));
const containersOf = (found: readonly Part[]): OtlpJson[] =>
  found.flatMap(({ text, fault }) => (fault === undefined ? [JSON.parse(text) as OtlpJson] : []));
const countOf = (found: readonly Part[]): number =>
  containersOf(found).reduce((sum, { items }) => sum + (items as unknown[]).length, 0);
const bytesOf = (found: readonly Part[]): number =>
  found.reduce((sum, { text, fault }) => sum + (fault === undefined ? text.length : 0), 0);

/** Whether a sink makes a row of each element. */
async function isSplit(type: 'otlp_traces' | 'otlp_logs', payload: Buffer): Promise<boolean[]> {
  const found: boolean[] = [];
  const decoder = new EnvelopeDecoder(envelope([]));
  for await (const { item } of partsOf(otlpItem(type, payload, 'protobuf'), new Slices())) {
    const decoded = await decoder.decode(item);
    found.push(decoded.ok && toSend(decoded.record).split !== undefined);
  }
  return found;
}

describe('protobuf that lies', () => {
  const span = messageBytes('Span', SPAN);
  it.each([
    ['a length beyond the request', Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f])],
    ['a length beyond its message', field(1, Buffer.from([0x12, 0x05, 0x12]))],
    ['a varint without an end', Buffer.alloc(100, 0xff)],
    ['a field of number 0', Buffer.from([0x02, 0x00])],
    ['groups in groups', Buffer.alloc(1_000_000, 0x0b)],
    ['a group that nobody opened', Buffer.from([0x0c])],
  ])('with %s is a fault of the whole request', async (_what, payload) => {
    const [{ fault, text } = { fault: '', text: '' }, ...rest] = await parts(
      'otlp_traces',
      payload,
      'protobuf',
    );
    expect([fault, text, rest]).toEqual([
      expect.stringMatching(/^OTLP: (the request is no protobuf|a field is longer than its message)$/),
      payload.toString(),
      [],
    ]);
  });

  it.each([
    ['a length beyond the span', Buffer.concat([span, Buffer.from([0x2a, 0x05, 0x61])])],
    ['a varint without an end', Buffer.concat([span, Buffer.from([0x30, 0xff])])],
    ['a moment that is cut', Buffer.concat([span, Buffer.from([0x39, 0x01])])],
    ['nesting without end', Buffer.concat([span, field(9, field(2, nested(3_000)))])],
    ['deep nesting', Buffer.concat([span, field(9, field(2, nested(101)))])],
    [
      'half a million empty events',
      Buffer.concat([span, Buffer.alloc(1_000_000, Buffer.from([0x5a, 0x00]))]),
    ],
  ])('in one span, with %s, costs that span alone', async (_what, bad) => {
    const payload = requestOf(Buffer.concat([field(2, span), field(2, bad), field(2, span)]));
    const found = await parts('otlp_traces', payload, 'protobuf');
    expect(countOf(found)).toBe(2);
    expect(found[1]?.fault).toMatch(/^OTLP: 1 of 3 spans cannot be stored; the first: /);
    expect(requestOf(field(2, bad)).equals(found[1]?.payload as Uint8Array)).toBe(true);
  });

  it('may have unknown fields, groups and wrong wire types', async () => {
    const odd = Buffer.from([0x0b, 0x08, 0x01, 0x0c, 0x2d, 1, 2, 3, 4, 0xf8, 0x07, 0x01]);
    const payload = Buffer.concat([odd, requestOf(field(2, Buffer.concat([odd, span, odd])))]);
    const [found] = await parts('otlp_traces', payload, 'protobuf');
    expect(containersOf([found as Part])[0]?.items).toMatchObject([{ name: 'GET /users' }]);
  });

  it('may have a resource behind its scopes, and in pieces', async () => {
    const of = (name: string): Buffer =>
      field(1, messageBytes('Resource', { attributes: attributesOf({ [name]: 'x' }) }));
    const payload = field(1, Buffer.concat([of('a'), field(2, field(2, span)), of('b')]));
    const [found] = await parts('otlp_traces', payload, 'protobuf');
    const [stored] = (containersOf([found as Part])[0]?.items ?? []) as { attributes: object }[];
    expect(Object.keys(stored?.attributes ?? {})).toEqual(['resource.a', 'resource.b']);
  });
});

/** An AnyValue of this many lists in each other. */
function nested(levels: number): Buffer {
  let value: Buffer = messageBytes('AnyValue', { stringValue: 'x' });
  for (let level = 0; level < levels; level++) value = field(5, field(1, value));
  return value;
}

describe('a request that swells', () => {
  it.each([
    ['otlp_logs', 20_000, 20_000],
    ['otlp_traces', 20_000, 0],
  ] as const)('of %s, %i of them and all empty: %i are rows', async (type, records, rows) => {
    const payload = requestOf(Buffer.alloc(2 * records, Buffer.from([0x12, 0x00])));
    const found = await parts(type, payload, 'protobuf');
    expect(countOf(found)).toBe(rows);
    expect(found.map(({ index }) => index)).toEqual(found.map((_, place) => place));
    const bad = found.filter(({ fault }) => fault !== undefined);
    expect(bad.map(({ fault }) => fault)).toEqual(
      rows > 0 ? [] : ['OTLP: 20000 of 20000 spans cannot be stored; the first: it has no traceId'],
    );
    for (const letter of bad) expect(payload.equals(letter.payload)).toBe(true);
  });

  it('of more records than a worker takes: it is a dead letter', async () => {
    const fault = 'OTLP: the request has too many records';
    const payload = requestOf(Buffer.alloc(2 * 20_001, Buffer.from([0x12, 0x00])));
    expect(await parts('otlp_logs', payload, 'protobuf')).toMatchObject([{ fault }]);
    for (const text of [
      `{"resourceLogs":[{"scopeLogs":[{"logRecords":[${'{},'.repeat(20_000)}{}]}]}]}`,
      `{"resourceLogs":[${'{},'.repeat(1_000_000)}{}]}`,
    ])
      expect(await parts('otlp_logs', Buffer.from(text), 'json')).toMatchObject([{ fault }]);
  });

  it('of 200,000 empty resources: nothing comes of it', async () => {
    const payload = Buffer.alloc(400_000, Buffer.from([0x0a, 0x00]));
    expect(await parts('otlp_logs', payload, 'protobuf')).toEqual([]);
  });

  it('of 10,000 scopes with an empty span each, every other one whole: one letter has the bad ones', async () => {
    const pair = Buffer.concat([
      requestOf(Buffer.from([0x12, 0x00])),
      requestOf(field(2, messageBytes('Span', SPAN))),
    ]);
    const [container, ...rest] = await parts(
      'otlp_traces',
      Buffer.alloc(5_000 * pair.length, pair),
      'protobuf',
    );
    expect(container?.fault).toBeUndefined();
    const letter = rest.at(-1) as Part;
    expect(letter.fault).toBe('OTLP: 5000 of 10000 spans cannot be stored; the first: it has no traceId');
    expect(Buffer.alloc(6 * 5_000, requestOf(Buffer.from([0x12, 0x00]))).equals(letter.payload)).toBe(true);
  });

  it.each([
    ['4 KB', 4_000, true],
    ['60 KB', 60_000, false],
  ])(
    'by a resource of %s with many small logs: its attributes are in the containers',
    async (_size, bytes, isSplitThere) => {
      const resource = {
        attributes: attributesOf({ 'service.name': 'shop', 'process.command_line': 'x'.repeat(bytes) }),
      };
      const request = logsOf(Array(5_000).fill({ body: { stringValue: 'x'.repeat(80) } }), { resource });
      const payload = toProtobuf('otlp_logs', request);
      const found = await parts('otlp_logs', payload, 'protobuf');
      expect(bytesOf(found)).toBeLessThan(20 * payload.length);
      expect(countOf(found)).toBe(5_000);
      const name = { 'resource.service.name': { value: 'shop', type: 'string' } };
      for (const container of containersOf(found)) {
        expect(container.attributes).toMatchObject({ ...name, 'resource.process.command_line': {} });
        expect((container.items as { attributes: unknown }[])[0]?.attributes).toEqual(name);
      }
      expect(new Set(await isSplit('otlp_logs', payload))).toEqual(new Set([isSplitThere]));
      const texts = (await parts('otlp_logs', toJson(request), 'json')).map(({ text }) => text);
      expect(texts).toEqual(found.map(({ text }) => text));
    },
  );

  it('beyond all bounds: the records behind the bound are a dead letter', async () => {
    const resource = messageBytes('Resource', { attributes: attributesOf({ x: 'x'.repeat(MIB) }) });
    const scopes = Buffer.alloc(6 * 200, field(2, field(2, Buffer.alloc(0))));
    const payload = field(1, Buffer.concat([field(1, resource), scopes]));
    const found = await parts('otlp_logs', payload, 'protobuf');
    expect(countOf(found)).toBeGreaterThan(100);
    expect(bytesOf(found)).toBeLessThan(130 * MIB);
    const letter = found.at(-1) as Part;
    expect(letter.fault).toMatch(
      /^OTLP: \d+ of 300 logs cannot be stored; the first: all rows of a request may have \d+ bytes$/,
    );
    const again = await parts('otlp_logs', letter.payload, 'protobuf');
    const rest = await parts('otlp_logs', again.at(-1)?.payload as Uint8Array, 'protobuf');
    expect(countOf(found) + countOf(again) + countOf(rest)).toBe(300);
  });
});

it('a large batch as collectors send them becomes rows, each span one', async () => {
  const resource = { attributes: attributesOf({ 'service.name': 'shop', 'host.name': 'x'.repeat(1_000) }) };
  const spans = Array.from({ length: 20_000 }, () => ({
    ...SPAN,
    attributes: attributesOf({ 'url.path': '/users' }),
  }));
  const payload = toProtobuf('otlp_traces', tracesOf(spans, { resource }));
  const split = await isSplit('otlp_traces', payload);
  expect(split.length).toBeGreaterThan(20);
  expect(new Set(split)).toEqual(new Set([true]));
});

describe.each([
  ['otlp_traces', traces],
  ['otlp_logs', logs],
] as const)('%s that broke on their way', (type, requests) => {
  const [request] = fc.sample(requests, { numRuns: 1, seed: 7, ...givenSeed }) as [OtlpJson];
  const sources = ENCODINGS.map((encoding) => encoded(type, request, encoding));
  const damage = fc.record({ at: fc.nat(), drop: fc.nat({ max: 3 }), put: fc.uint8Array({ maxLength: 3 }) });

  it('become valid items, or are named', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.nat({ max: 1 }),
        fc.array(damage, { minLength: 1, maxLength: 3 }),
        async (which, damages) => {
          let payload = sources[which] as Buffer;
          for (const { at, drop, put } of damages) {
            const from = at % (payload.length + 1);
            payload = Buffer.concat([payload.subarray(0, from), put, payload.subarray(from + drop)]);
          }
          const encoding = ENCODINGS[which] as (typeof ENCODINGS)[number];
          for (const { text, fault, type: found } of await parts(type, payload, encoding)) {
            if (fault === undefined) JSON.parse(text);
            else expect([found, fault]).toEqual([type, expect.stringMatching(/^OTLP: /)]);
          }
        },
      ),
      { numRuns: rounds(100_000, 500), ...givenSeed },
    );
  });
});
