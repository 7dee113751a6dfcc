import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import type { ItemReceiver } from '../../../src/ingest/envelope/parser.ts';
import { JsonRecords } from '../../../src/ingest/otlp/json-records.ts';
import { OtlpReader, type OtlpRequestKind } from '../../../src/ingest/otlp/otlp-reader.ts';
import { ProtobufWalk } from '../../../src/ingest/otlp/protobuf-walk.ts';
import { JSON_DEPTH_MAX, OTLP_PARTS_MAX, OTLP_RECORDS_MAX } from '../../../src/limits.ts';
import { rounds } from '../../support/rounds.ts';
import { cutAtRandom, seeded, singleBytes } from '../envelope/bodies.ts';

type Read = { id: string; hasNothing: boolean; payload: string } | { malformed: string };

const PROTOBUF: OtlpRequestKind = { type: 'otlp_traces', form: 'protobuf' };
const JSON_TRACES: OtlpRequestKind = { type: 'otlp_traces', form: 'json' };
const NO_OTLP = { malformed: 'the body is no OTLP request' };

/** Reads chunks whose memory is overwritten after each call. */
function readChunks(kind: OtlpRequestKind, chunks: readonly Uint8Array[]): Read {
  const found = { id: '', hasNothing: false, payload: '' };
  let calls = '';
  const receiver: ItemReceiver = {
    envelopeHeader: ({ eventId = '', hasNothing = false }) => {
      Object.assign(found, { id: eventId, hasNothing });
      calls += 'h';
    },
    itemBegin: ({ index, type, header }) => {
      const contentType = kind.form === 'json' ? 'application/json' : 'application/x-protobuf';
      expect([index, type]).toEqual([0, kind.type]);
      expect(JSON.parse(Buffer.from(header).toString())).toEqual({ type, content_type: contentType });
      calls += 'b';
    },
    payload: (piece) => {
      found.payload += Buffer.from(piece).toString('latin1');
    },
    itemEnd: () => {
      calls += 'e';
    },
    itemSkipped: () => expect.unreachable(),
  };
  const reader = new OtlpReader(kind, '1', receiver);
  for (const chunk of chunks) {
    const borrowed = Buffer.from(chunk);
    const malformed = reader.feed(borrowed);
    borrowed.fill(0xee);
    if (malformed !== undefined) return { malformed };
  }
  const malformed = reader.end();
  if (malformed !== undefined) return { malformed };
  expect(calls).toBe(chunks.some(({ length }) => length > 0) ? 'beh' : 'h');
  return found;
}

/** The same, however the body is cut in two, or into single bytes. */
function read(kind: OtlpRequestKind, body: Buffer): Read {
  const whole = readChunks(kind, body.length === 0 ? [] : [body]);
  expect(readChunks(kind, singleBytes(body))).toEqual(whole);
  if (body.length < 2_000)
    for (let at = 1; at < body.length; at++)
      expect(readChunks(kind, [body.subarray(0, at), body.subarray(at)])).toEqual(whole);
  return whole;
}

// ---- protobuf, written by hand ----

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
}
const field = (number: number, content: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(content.length)]), content]);
const message = (...fields: readonly Uint8Array[]): Buffer => Buffer.concat(fields);
const text = (number: number, content: string): Buffer => field(number, Buffer.from(content));

const span = message(
  field(1, Buffer.alloc(16, 7)),
  text(5, 'GET /'),
  Buffer.from([0x39, 1, 2, 3, 4, 5, 6, 7, 8]),
);
const scopeOf = (...records: readonly Uint8Array[]): Buffer =>
  message(
    field(1, text(1, 'a scope')),
    ...records.map((record) => field(2, record)),
    text(3, 'https://schema'),
  );
const resourceOf = (...scopes: readonly Uint8Array[]): Buffer =>
  message(field(1, text(1, 'x')), ...scopes.map((scope) => field(2, scope)));
const requestOf = (...resources: readonly Uint8Array[]): Buffer =>
  message(...resources.map((resource) => field(1, resource)));

const held = (body: Buffer): unknown => ({
  id: expect.stringMatching(/^[0-9a-f]{32}$/),
  hasNothing: false,
  payload: body.toString('latin1'),
});

describe('a request in protobuf', () => {
  it('is one item, whose payload is the body', () => {
    const body = requestOf(resourceOf(scopeOf(span, span), scopeOf()), resourceOf(scopeOf(span)));
    expect(read(PROTOBUF, body)).toEqual(held(body));
  });

  it('may have fields that are not known, of each wire type but groups', () => {
    const unknown = Buffer.concat([
      Buffer.of(15 * 8, 0x96, 1, 15 * 8 + 1),
      Buffer.alloc(8, 9),
      Buffer.of(15 * 8 + 5, 9, 9, 9, 9),
    ]);
    const body = message(
      unknown,
      field(1, message(unknown, field(2, message(unknown, field(2, span), unknown)), text(1_000, 'old'))),
    );
    expect(read(PROTOBUF, body)).toEqual(held(body));
  });

  it.each([
    ['is empty', Buffer.alloc(0)],
    ['has an empty resource', requestOf(Buffer.alloc(0))],
    ['has no scope', requestOf(resourceOf(), resourceOf())],
    ['has no record in its scopes', requestOf(resourceOf(scopeOf(), scopeOf()))],
    ['has another field alone', text(7, 'x')],
  ])('that %s has nothing to store', (_what, body) => {
    expect(read(PROTOBUF, body)).toMatchObject({ hasNothing: true });
  });

  it('may have empty records', () => {
    expect(read(PROTOBUF, requestOf(resourceOf(scopeOf(Buffer.alloc(0)))))).toMatchObject({
      hasNothing: false,
    });
  });

  const whole = requestOf(resourceOf(scopeOf(span)));
  it.each([
    ['is text', Buffer.from('hello, this is no protobuf')],
    ['is JSON', Buffer.from('{"resourceSpans":[]}')],
    ['ends in a tag', Buffer.from([0x8a])],
    ['ends behind a tag', Buffer.from([0x0a])],
    ['ends in a length', Buffer.from([0x0a, 0x80])],
    ['ends in a resource', whole.subarray(0, -1)],
    ['has a scope that is longer than its resource', field(1, Buffer.from([0x12, 0x05, 0x12, 0x00]))],
    ['has a record that is longer than its scope', field(1, field(2, Buffer.from([0x12, 0x05, 0x00])))],
    ['has a field that is longer than its scope', field(1, field(2, Buffer.from([0x1a, 0x05, 0x00])))],
    ['has a number that goes on behind its resource', Buffer.from([0x0a, 0x02, 0x78, 0x80, 0x01])],
    ['has fixed bytes that go on behind its resource', Buffer.from([0x0a, 0x02, 0x7d, 0, 0, 0, 0])],
    ['has a length of 2^40', Buffer.from([0x0a, ...varint(2 ** 40)])],
    ['has a number of eleven bytes', Buffer.from([0x78, ...Array(10).fill(0x80), 0x01])],
    ['has a field of number 0', Buffer.from([0x02, 0x00])],
    ['has a group', Buffer.from([0x7b, 0x7c])],
    ['has an end of a group', Buffer.from([0x7c])],
    ['has a resource that is a number', Buffer.from([0x08, 0x01])],
    ['has a record that is a number', requestOf(resourceOf(Buffer.from([0x10, 0x01])))],
    ['says that its resource is longer', Buffer.from(whole).fill((whole[1] as number) + 1, 1, 2)],
  ])('that %s is refused', (_what, body) => {
    expect(read(PROTOBUF, body)).toEqual(NO_OTLP);
  });

  const times = (count: number, bytes: number[]): Buffer =>
    Buffer.concat(Array(count).fill(Buffer.from(bytes)));
  it.each<[string, number, hasNothing: boolean, (count: number) => Buffer]>([
    ['records', OTLP_RECORDS_MAX, false, (count) => requestOf(resourceOf(times(count, [0x12, 0])))],
    ['fields', OTLP_PARTS_MAX, true, (count) => times(count, [0x0a, 0])],
  ])('of as many %s as the bound is taken, of one more refused', (what, bound, hasNothing, bodyOf) => {
    expect(readChunks(PROTOBUF, [bodyOf(bound)])).toMatchObject({ hasNothing });
    expect(readChunks(PROTOBUF, [bodyOf(bound + 1)])).toEqual({ malformed: `the body has too many ${what}` });
  });
});

describe('a request in JSON', () => {
  const readText = (body: string, kind = JSON_TRACES): Read => read(kind, Buffer.from(body));

  it.each([
    [
      '{"resourceSpans":[{"resource":{"attributes":[{"key":"ä","value":{}}]},"scopeSpans":[{"scope":{},"spans":[{"name":"x"}]}]}]}',
    ],
    [
      ' {"resourceSpans" : [ { "scopeSpans":null }, {"scopeSpans":[{"spans":[]},{"spans":[{}]}]} ] , "x":[[[]]]} ',
    ],
    ['{"\\u0072esourceSpans":[{"scope\\u0053pans":[{"spans":[{}]}]}]}'],
  ])('is one item, whose payload is the body: %s', (body) => {
    expect(readText(body)).toEqual(held(Buffer.from(body)));
  });

  it.each([
    ['otlp_logs', '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}'],
    ['otlp_metrics', '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{}]}]}]}'],
  ] as const)('has its own names: %s', (type, body) => {
    expect(readText(body, { type, form: 'json' })).toMatchObject({ hasNothing: false });
    expect(readText(body)).toMatchObject({ hasNothing: true });
  });

  it.each([
    '{}',
    '{"resourceSpans":null}',
    '{"resourceSpans":[]}',
    '{"resourceSpans":[{},{"scopeSpans":[{},{"spans":null}]}]}',
    '{"scopeSpans":[{"scopeSpans":[{"spans":[{}]}]}]}',
    '{"resourceSpans":[{"resource":[{"spans":[{}]}],"spans":[{"spans":[{}]}]}]}',
    `{"resourceSpans":[{"${'s'.repeat(300)}":[{"spans":[{}]}]}]}`,
  ])('has nothing to store: %s', (body) => {
    expect(readText(body)).toMatchObject({ hasNothing: true });
  });

  it.each([
    '',
    '[]',
    '"x"',
    '{"resourceSpans":[}',
    '{"resourceSpans":{}}',
    '{"resourceSpans":[1]}',
    '{"resourceSpans":[null]}',
    '{"resourceSpans":[{"scopeSpans":"x"}]}',
    '{"resourceSpans":[{"scopeSpans":[[]]}]}',
    '{"resourceSpans":[{"scopeSpans":[{"spans":[{},2]}]}]}',
    '{"resourceSpans":[]} {}',
  ])('is refused: %s', (body) => {
    expect(readText(body)).toEqual(NO_OTLP);
  });

  it.each([
    ['grammar', '{"resourceSpans":[{"resource":{nul},"scopeSpans":[{"spans":[{"name" 1 2,}]}]}]}'],
    ['UTF-8', Buffer.from('7b227265736f757263655370616e73223a5b5d2c2278223a22ff227d', 'hex')],
  ])('is not judged by the %s of what the processor decodes', (_what, body) => {
    expect(read(JSON_TRACES, Buffer.from(body))).not.toHaveProperty('malformed');
  });

  it.each([
    '{"resourceSpans":[{"resource":{"a":[}],"scopeSpans":[]}]}',
    '{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x]}]}]}',
    '{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"\n"}]}]}]}',
    '{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"\\x"}]}]}]}',
    '{"resourceSpans":[{"scopeSpans":[{"spans":[{} {}]}]}]}',
    '{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]',
  ])('is refused for a bracket or a string in what is skimmed: %s', (body) => {
    expect(readText(body)).toEqual(NO_OTLP);
  });

  it('is refused where it is nested too deeply, and where it has too many records or members', () => {
    const nested = (depth: number): Buffer =>
      Buffer.from(`{"x":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`);
    const tooDeep = { malformed: 'the body is nested too deeply' };
    expect(read(JSON_TRACES, nested(JSON_DEPTH_MAX))).toMatchObject({ hasNothing: true });
    expect(read(JSON_TRACES, nested(JSON_DEPTH_MAX + 1))).toEqual(tooDeep);
    const members = Buffer.from(`{${Array(OTLP_PARTS_MAX).fill('"x":0').join()}}`);
    expect(readChunks(JSON_TRACES, [members])).toEqual({ malformed: 'the body has too many fields' });
    const records = Array(OTLP_RECORDS_MAX + 1).fill('{}');
    const traces = Buffer.from(`{"resourceSpans":[{"scopeSpans":[{"spans":[${records}]}]}]}`);
    expect(readChunks(JSON_TRACES, [traces])).toEqual({ malformed: 'the body has too many records' });
  });
});

// ---- against plain references ----

const RUNS = { numRuns: rounds(2_000, 300) };

/** Feeds a walk. @returns what it has counted, or why the body is no request */
function walked(walk: ProtobufWalk | JsonRecords, chunks: readonly Uint8Array[]): number | string {
  for (const chunk of chunks) {
    const why = walk.feed(chunk);
    if (why) return why;
  }
  return walk.end() ?? walk.records;
}

/** However the body is cut. */
function counted(make: () => ProtobufWalk | JsonRecords, body: Buffer, seed: number): number | string {
  const found = walked(make(), [body]);
  expect(walked(make(), singleBytes(body))).toBe(found);
  expect(walked(make(), cutAtRandom(body, seeded(seed)))).toBe(found);
  return found;
}

class NoRequest extends Error {}

/** Counts the records of a whole request, level by level; -1 when it is none. */
function recordsOfProtobuf(body: Buffer, level = 0): number {
  let at = 0;
  let records = 0;
  const number = (): bigint => {
    let value = 0n;
    for (let digit = 0; digit < 10; digit++) {
      const byte = body[at++];
      if (byte === undefined) throw new NoRequest();
      value |= BigInt(byte & 0x7f) << BigInt(7 * digit);
      if (byte < 0x80) return value;
    }
    throw new NoRequest();
  };
  const take = (bytes: bigint): Buffer => {
    if (bytes > BigInt(body.length - at)) throw new NoRequest();
    at += Number(bytes);
    return body.subarray(at - Number(bytes), at);
  };
  while (at < body.length) {
    const tag = number();
    const [fieldNumber, wireType] = [tag >> 3n, Number(tag & 7n)];
    const isFollowed = fieldNumber === [1n, 2n, 2n][level];
    if (fieldNumber === 0n || tag >= 1n << 32n || (isFollowed && wireType !== 2)) throw new NoRequest();
    if (wireType === 0) number();
    else if (wireType === 1) take(8n);
    else if (wireType === 5) take(4n);
    else if (wireType === 2) {
      const content = take(number());
      if (isFollowed) records += level === 2 ? 1 : recordsOfProtobuf(content, level + 1);
    } else throw new NoRequest();
  }
  return records;
}

const refusing = (count: () => number): number | string => {
  try {
    return count();
  } catch (error) {
    if (error instanceof NoRequest) return 'no OTLP';
    throw error;
  }
};

/** Fields of all kinds, most of them with the numbers and wire types that requests have. */
const messages = fc.letrec<{ message: Buffer; field: Buffer }>((tie) => ({
  message: fc.array(tie('field'), { maxLength: 4, depthIdentifier: 'field' }).map((all) => message(...all)),
  field: fc.oneof(
    { depthIdentifier: 'field', maxDepth: 4, withCrossShrink: true },
    fc.tuple(fc.constantFrom(1, 2, 3, 15), fc.uint8Array({ maxLength: 12 })).map(([n, c]) => field(n, c)),
    fc.tuple(fc.constantFrom(1, 2), tie('message')).map(([n, c]) => field(n, c)),
    fc.tuple(fc.constantFrom(1, 2), tie('message')).map(([n, c]) => field(n, c)),
    fc.tuple(fc.constantFrom(3, 15), fc.nat()).map(([n, v]) => Buffer.from([...varint(n * 8), ...varint(v)])),
    fc.constant(Buffer.from([15 * 8 + 1, 1, 2, 3, 4, 5, 6, 7, 8])),
    fc.constant(Buffer.from([15 * 8 + 5, 1, 2, 3, 4])),
  ),
}));

test('of any protobuf the walk counts what a plain parser counts, and refuses what it refuses', () => {
  fc.assert(
    fc.property(messages.message, fc.nat(), fc.option(fc.nat(255)), fc.nat(), (whole, place, byte, seed) => {
      const body = Buffer.from(whole);
      if (byte !== null && body.length > 0) body[place % body.length] = byte;
      const expected = refusing(() => recordsOfProtobuf(body));
      expect(counted(() => new ProtobufWalk(), body, seed)).toBe(expected);
    }),
    RUNS,
  );
});

/** Counts the records of a request that JSON.parse has read. */
function recordsOfJson(value: unknown, [name, ...names]: readonly string[] = LIST_NAMES): number {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new NoRequest();
  if (name === undefined) return 1;
  const list = (value as Record<string, unknown>)[name] ?? [];
  if (!Array.isArray(list)) throw new NoRequest();
  return list.reduce((sum: number, one) => sum + recordsOfJson(one, names), 0);
}
const LIST_NAMES = ['resourceSpans', 'scopeSpans', 'spans'] as const;

const oddValues = fc.constantFrom<unknown>(null, 1.5e-3, 'x"[{', [], [[{ spans: [{}] }]], { spans: [{}] });
const mostly = <T>(usual: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 12, arbitrary: usual as fc.Arbitrary<unknown> }, { weight: 1, arbitrary: oddValues });
/** Objects of a request at a level of lists, most of them as they must be. */
function objects(level: number): fc.Arbitrary<unknown> {
  if (level === LIST_NAMES.length) return fc.constantFrom({}, { name: 'é', spans: [{}] });
  const list = mostly(fc.array(mostly(objects(level + 1)), { maxLength: 3 }));
  const names = fc.constantFrom(...Array(9).fill(LIST_NAMES[level]), ...LIST_NAMES, 'é');
  return fc
    .tuple(names, list, oddValues)
    .chain(([name, members, other]) =>
      fc.constantFrom({ [name]: members, other }, { other, [name]: members }, { [name]: members }),
    );
}

test('of any JSON the walk counts what JSON.parse finds, and refuses what is no request', () => {
  const bodies = fc
    .tuple(mostly(objects(0)), fc.constantFrom(undefined, 1))
    .map(([value, space]) => JSON.stringify(value, undefined, space));
  fc.assert(
    fc.property(bodies, fc.nat(), (body, seed) => {
      const expected = refusing(() => recordsOfJson(JSON.parse(body)));
      expect(counted(() => new JsonRecords(LIST_NAMES), Buffer.from(body), seed)).toBe(expected);
    }),
    RUNS,
  );
});

test('of JSON that is cut short or has another byte, no cut gives another answer than the whole', () => {
  const record = { name: 'é"\\', attributes: [{ key: '[', value: { x: -1 } }] };
  const body = JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans: [record] }], schemaUrl: '' }] });
  fc.assert(
    fc.property(fc.nat(body.length), fc.option(fc.nat(255)), fc.nat(), (place, byte, seed) => {
      const bytes = Buffer.from(body);
      const changed = byte === null ? bytes.subarray(0, place) : bytes.fill(byte, place, place + 1);
      counted(() => new JsonRecords(LIST_NAMES), changed, seed);
    }),
    RUNS,
  );
});

test('no bytes make it throw, and what one cut refuses, all refuse', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), fc.constantFrom(PROTOBUF, JSON_TRACES), (bytes, kind) => {
      read(kind, Buffer.from(bytes));
    }),
    RUNS,
  );
});
