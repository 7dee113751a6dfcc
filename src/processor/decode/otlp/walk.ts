/**
 * Walks through the outer structure of an OTLP request: resources, in each of them scopes, in each
 * scope records. The walk decodes no record, and yields often, so that the process may pause it.
 */
import { isUtf8 } from 'node:buffer';
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import type { OtlpType } from '../../../lib/item-types.ts';
import { OTLP_LISTS } from '../../../lib/otlp.ts';
import type { Steps } from '../../../lib/slices.ts';
import { OTLP_RECORDS_MAX } from '../../../limits.ts';
import { bufferOf, OtlpError } from './messages.ts';

/** A range of the request's bytes. */
export type Range = readonly [start: number, end: number];
/**
 * `own`: the message of a resource or scope itself, as it came. `schemaUrl`: the schema URL that
 * came beside this message.
 */
export type Outer = { own: Uint8Array | undefined; schemaUrl: Uint8Array | undefined };
/**
 * A record, with the resource and the scope around it. `cut`: the bytes that put this record into
 * another request. In protobuf they begin with the record's tag and length.
 */
export type FoundRecord = { resource: Outer; scope: Outer; range: Range; cut: Range };

/** Levels of the structure: the request, a resource with its scopes, a scope with its records. */
type Level = 0 | 1 | 2;
type Part = { is: 'own' | 'schemaUrl' | 'child'; range: Range; cut: Range };
/**
 * Yields the parts of a message: each `own` and `schemaUrl` before the first child, wherever they
 * are in the payload. Yields undefined where the walk may pause.
 */
type Parts = Generator<Part | undefined, void, void>;
export interface Encoding {
  readonly isJson: boolean;
  /**
   * By level, the JSON names of two fields: the level's own message (`resource`, `scope`; the
   * request has none) and the list of its children. Empty for protobuf, whose fields have numbers.
   */
  readonly names: readonly (readonly [own: string, child: string])[];
  /** Brings the request into the form that `parts` reads: JSON becomes valid UTF-8. */
  prepared(payload: Uint8Array): Steps<Uint8Array>;
  parts(payload: Uint8Array, range: Range, level: Level): Parts;
  joined(pieces: readonly Uint8Array[]): Uint8Array;
}

/** Steps of the walk between two pauses. */
const STEPS = 64;
const NO_JSON = 'the request is no JSON';
const NO_STRUCTURE = 'the request has no such structure';
const TOO_MANY = 'the request has too many records';

// ---- Protobuf ----

/**
 * Numbers of the protobuf fields with a level's own message, its list of children (by level), and
 * its schema URL.
 */
const OWN = 1;
const CHILD = [1, 2, 2] as const;
const SCHEMA_URL = 3;

/** Makes a reader that decodes no text, because the walk needs none. */
const readerOf = (bytes: Uint8Array): BinaryReader => new BinaryReader(bytes, () => '');

function* fieldsOf(
  payload: Uint8Array,
  [start, end]: Range,
  wanted: (field: number) => Part['is'] | undefined,
): Parts {
  const reader = readerOf(payload.subarray(0, end));
  reader.pos = start;
  let step = 0;
  try {
    while (reader.pos < end) {
      const from = reader.pos;
      const [number, wire] = reader.tag();
      const is = wire === WireType.LengthDelimited ? wanted(number) : undefined;
      if (is) {
        const length = reader.uint32();
        const value = reader.pos;
        reader.pos += length;
        if (reader.pos > end) throw new OtlpError('a field is longer than its message');
        yield { is, range: [value, reader.pos], cut: [from, reader.pos] };
      } else {
        reader.skip(wire, number);
      }
      if (++step % STEPS === 0) yield;
    }
  } catch (cause) {
    throw cause instanceof OtlpError ? cause : new OtlpError('the request is no protobuf', { cause });
  }
}

export const PROTOBUF: Encoding = {
  isJson: false,
  names: [],
  // biome-ignore lint/correctness/useYield: there is nothing to do in steps
  *prepared(payload) {
    return payload;
  },
  *parts(payload, range, level) {
    if (level > 0)
      yield* fieldsOf(payload, range, (number) =>
        number === OWN ? 'own' : number === SCHEMA_URL ? 'schemaUrl' : undefined,
      );
    yield* fieldsOf(payload, range, (number) => (number === CHILD[level] ? 'child' : undefined));
  },
  // In protobuf, the bytes of two messages one after the other are the message that merges them.
  joined: (pieces) => (pieces.length === 1 ? (pieces[0] as Uint8Array) : Buffer.concat(pieces)),
};

// ---- JSON ----

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const LETTER_N = 0x6e;
const SPACE = 0x20;
const SCAN_BYTES = 64 * 1024;
/** Longest name of a part, with quotes and escapes. */
const NAME_BYTES_MAX = 200;

/** Names of the parts at each level, in JSON. */
function namesOf(type: OtlpType): Encoding['names'] {
  const [resources, scopes, records] = OTLP_LISTS[type];
  return [
    ['', resources],
    ['resource', scopes],
    ['scope', records],
  ];
}

/** A place in a JSON text. It only moves forward, over values whose content is not checked. */
class Cursor {
  readonly text: Buffer;
  at: number;

  constructor(text: Buffer, at: number) {
    this.text = text;
    this.at = at;
  }

  /** Skips blanks. @returns the byte that follows; 0 at the end of the text */
  next(): number {
    while (this.at < this.text.length && BLANK.has(this.text[this.at] as number)) this.at++;
    return this.text[this.at] ?? 0;
  }

  /** Skips blanks and this byte. @returns whether it was there */
  takes(byte: number): boolean {
    const isThere = this.next() === byte;
    if (isThere) this.at++;
    return isThere;
  }

  expect(byte: number): void {
    if (!this.takes(byte)) throw new OtlpError(NO_JSON);
  }

  /** Reads a member's name. */
  name(): string {
    if (this.next() !== QUOTE) throw new OtlpError(NO_JSON);
    const start = this.at;
    this.#skipString();
    if (this.at - start > NAME_BYTES_MAX) return '';
    const name = this.text.toString('utf8', start, this.at);
    return name.includes('\\') ? String(parsed(name)) : name.slice(1, -1);
  }

  /** Skips a value by its brackets and strings. @returns where it lies */
  *value(): Generator<undefined, Range, void> {
    const start = this.at;
    let depth = 0;
    for (let pause = start + SCAN_BYTES; ; ) {
      const byte = this.text[this.at];
      if (byte === undefined) throw new OtlpError(NO_JSON);
      if (byte === QUOTE) this.#skipString();
      else if (depth === 0 && isBehindValue(byte)) {
        if (this.at === start) throw new OtlpError(NO_JSON);
        return [start, this.at];
      } else {
        if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) depth++;
        if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) depth--;
        this.at++;
      }
      if (depth === 0 && (byte === QUOTE || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY))
        return [start, this.at];
      if (this.at < pause) continue;
      yield;
      pause = this.at + SCAN_BYTES;
    }
  }

  #skipString(): void {
    for (let at = this.at + 1; ; ) {
      const quote = this.text.indexOf(QUOTE, at);
      if (quote < 0) throw new OtlpError(NO_JSON);
      let slashes = 0;
      while (this.text[quote - 1 - slashes] === BACKSLASH) slashes++;
      at = quote + 1;
      if (slashes % 2 === 1) continue;
      this.at = at;
      return;
    }
  }
}

const BLANK: ReadonlySet<number> = new Set([SPACE, 0x09, 0x0a, 0x0d]);
const isBehindValue = (byte: number): boolean =>
  byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY || BLANK.has(byte);

/** Reads the members of an object, or the elements of a list, one after the other. */
function* each(cursor: Cursor, close: number, one: () => Generator<undefined, void, void>): Steps<void> {
  if (cursor.takes(close)) return;
  for (let step = 1; ; step++) {
    yield* one();
    if (cursor.takes(close)) return;
    cursor.expect(COMMA);
    if (step % STEPS === 0) yield;
  }
}

/** Finds the elements of a list, which may be null. */
function* elementsAt(cursor: Cursor): Generator<undefined, Range[], void> {
  const found: Range[] = [];
  if (cursor.next() === LETTER_N) {
    yield* cursor.value();
    return found;
  }
  if (!cursor.takes(OPEN_ARRAY)) throw new OtlpError(NO_STRUCTURE);
  yield* each(cursor, CLOSE_ARRAY, function* () {
    cursor.next();
    const range = yield* cursor.value();
    if (found.push(range) > OTLP_RECORDS_MAX) throw new OtlpError(TOO_MANY);
  });
  return found;
}

/** @throws OtlpError */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new OtlpError('it is no JSON', { cause });
  }
}

export const json = (type: OtlpType): Encoding => ({
  isJson: true,
  names: namesOf(type),
  *prepared(payload) {
    return isUtf8(payload) ? bufferOf(payload) : yield* withoutBadUtf8(payload);
  },
  *parts(payload, [start], level) {
    const cursor = new Cursor(payload as Buffer, start);
    if (cursor.next() === LETTER_N && level > 0) return; // null
    if (!cursor.takes(OPEN_OBJECT)) throw new OtlpError(NO_STRUCTURE);
    const [own, child] = this.names[level] as readonly [string, string];
    const found = new Map<string, Range>();
    let children: Range[] = [];
    yield* each(cursor, CLOSE_OBJECT, function* () {
      const name = cursor.name();
      cursor.expect(COLON);
      if (name === child) children = yield* elementsAt(cursor);
      else {
        cursor.next();
        found.set(name === own || name === 'schemaUrl' ? name : '', yield* cursor.value());
      }
    });
    if (level === 0 && cursor.next() !== 0) throw new OtlpError(NO_JSON);
    if (level > 0)
      for (const [is, name] of [
        ['own', own],
        ['schemaUrl', 'schemaUrl'],
      ] as const) {
        const range = found.get(name);
        if (range) yield { is, range, cut: range };
      }
    for (const range of children) yield { is: 'child', range, cut: range };
  },
  // When a name repeats, its last value counts.
  joined: (pieces) => pieces.at(-1) as Uint8Array,
});

/** Replaces bytes that are no UTF-8 by U+FFFD. */
function* withoutBadUtf8(bytes: Uint8Array): Steps<Buffer> {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += SCAN_BYTES) {
    pieces.push(Buffer.from(decoder.decode(bytes.subarray(at, at + SCAN_BYTES), { stream: true })));
    yield;
  }
  pieces.push(Buffer.from(decoder.decode()));
  return Buffer.concat(pieces);
}

// ---- Both ----

/**
 * Finds all records of a request.
 * @param payload as prepared() returns it
 * @throws OtlpError when the structure cannot be read to its end
 */
export function* recordsOf(encoding: Encoding, payload: Uint8Array): Steps<FoundRecord[]> {
  const found: FoundRecord[] = [];
  for (const request of encoding.parts(payload, [0, payload.length], 0)) {
    if (request?.is !== 'child') yield;
    else
      for (const record of recordsIn(encoding, payload, request.range)) {
        if (!record) yield;
        else if (found.push(record) > OTLP_RECORDS_MAX) throw new OtlpError(TOO_MANY);
      }
  }
  return found;
}

function* recordsIn(
  encoding: Encoding,
  payload: Uint8Array,
  range: Range,
): Generator<FoundRecord | undefined, void, void> {
  const resource = new OuterParts(encoding, payload);
  for (const part of encoding.parts(payload, range, 1)) {
    if (!part) yield;
    else if (part.is !== 'child') resource.add(part);
    else {
      const scope = new OuterParts(encoding, payload);
      for (const inner of encoding.parts(payload, part.range, 2)) {
        if (!inner) yield;
        else if (inner.is !== 'child') scope.add(inner);
        else yield { resource: resource.outer, scope: scope.outer, range: inner.range, cut: inner.cut };
      }
    }
  }
}

/**
 * Gathers the own message and the schema URL of a resource or scope. The encoding yields both
 * before the first child, whatever their order in the payload.
 */
class OuterParts {
  readonly #encoding: Encoding;
  readonly #payload: Uint8Array;
  readonly #own: Uint8Array[] = [];
  #schemaUrl: Uint8Array | undefined;
  #outer: Outer | undefined;

  constructor(encoding: Encoding, payload: Uint8Array) {
    this.#encoding = encoding;
    this.#payload = payload;
  }

  add({ is, range: [start, end] }: Part): void {
    const bytes = this.#payload.subarray(start, end);
    if (is === 'own') this.#own.push(bytes);
    else this.#schemaUrl = bytes;
  }

  /** Returns the same object for all children, so that records can be grouped by it. */
  get outer(): Outer {
    this.#outer ??= {
      own: this.#own.length === 0 ? undefined : this.#encoding.joined(this.#own),
      schemaUrl: this.#schemaUrl,
    };
    return this.#outer;
  }
}

type Group = { of: Outer; records: FoundRecord[] };

/** Groups neighbours that have the same resource or scope. */
function grouped(records: readonly FoundRecord[], by: 'resource' | 'scope'): Group[] {
  const groups: Group[] = [];
  for (const record of records) {
    const group = groups.at(-1);
    if (group?.of === record[by]) group.records.push(record);
    else groups.push({ of: record[by], records: [record] });
  }
  return groups;
}

/** Composes a request from some records of another request. */
export function requestWith(
  encoding: Encoding,
  payload: Uint8Array,
  records: readonly FoundRecord[],
): Uint8Array {
  const cuts = (some: readonly FoundRecord[]): Uint8Array[] =>
    some.map(({ cut: [start, end] }) => payload.subarray(start, end));
  const resources = grouped(records, 'resource').map(({ of, records: within }) => ({
    of,
    scopes: grouped(within, 'scope').map((scope) => ({ of: scope.of, cuts: cuts(scope.records) })),
  }));
  return encoding.isJson ? jsonOf(encoding, resources) : protobufOf(resources);
}

type Resource = { of: Outer; scopes: { of: Outer; cuts: Uint8Array[] }[] };

function protobufOf(resources: readonly Resource[]): Uint8Array {
  const field = (writer: BinaryWriter, number: number, bytes: Uint8Array | undefined): BinaryWriter =>
    bytes ? writer.tag(number, WireType.LengthDelimited).bytes(bytes) : writer;
  const request = new BinaryWriter();
  for (const { of: resource, scopes } of resources) {
    const ofResource = field(new BinaryWriter(), OWN, resource.own);
    for (const { of: scope, cuts } of scopes) {
      const ofScope = field(new BinaryWriter(), OWN, scope.own).raw(Buffer.concat(cuts));
      field(ofResource, CHILD[1], field(ofScope, SCHEMA_URL, scope.schemaUrl).finish());
    }
    field(request, CHILD[0], field(ofResource, SCHEMA_URL, resource.schemaUrl).finish());
  }
  return request.finish();
}

function jsonOf({ names }: Encoding, resources: readonly Resource[]): Uint8Array {
  const objectOf = (level: Level, of: Outer | undefined, children: readonly string[]): string => {
    const [own, child] = names[level] as readonly [string, string];
    const member = (name: string, bytes: Uint8Array | undefined): string =>
      bytes ? `"${name}":${bufferOf(bytes)},` : '';
    return `{${member(own, of?.own)}${member('schemaUrl', of?.schemaUrl)}"${child}":[${children}]}`;
  };
  const texts = resources.map(({ of: resource, scopes }) =>
    objectOf(
      1,
      resource,
      scopes.map(({ of: scope, cuts }) =>
        objectOf(
          2,
          scope,
          cuts.map((cut) => bufferOf(cut).toString()),
        ),
      ),
    ),
  );
  return Buffer.from(objectOf(0, undefined, texts));
}
