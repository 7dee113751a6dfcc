import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ItemReceiver, Parser } from '../../../src/ingest/envelope/parser.ts';
import { SKIPPED_TYPES, storedTypes } from '../../../src/lib/item-types.ts';
import { rounds } from '../../support/rounds.ts';
import { bytesOf, cutAtRandom, EVENT_ID, seeded, shapeOf, singleBytes, uploadOf } from './bodies.ts';
import { CASES, type Verdict } from './parser-cases.ts';

/** What was found, written so that a table can state it: `type@index:payload`, skipped ones in brackets. */
class Recorder implements ItemReceiver {
  readonly found: string[] = [];
  #open: string | undefined;

  envelopeHeader(): void {}

  itemBegin({ index, type }: { index: number; type: string }): void {
    if (this.#open !== undefined) throw new Error('an item begins inside another');
    this.#open = `${type}@${index}:`;
  }

  payload(piece: Uint8Array): void {
    if (piece.length === 0 || this.#open === undefined) throw new Error('nothing, or outside of an item');
    this.#open += Buffer.from(piece).toString('latin1');
  }

  itemEnd(): void {
    this.found.push(this.#open ?? 'an end without a beginning');
    this.#open = undefined;
  }

  itemSkipped(type: string): void {
    this.found.push(`[${type}]`);
  }
}

function parse(chunks: readonly Uint8Array[]): Verdict {
  const sink = new Recorder();
  const parser = new Parser(sink, storedTypes([]));
  for (const chunk of chunks) parser.feed(chunk);
  const malformed = parser.end();
  return malformed === undefined ? { found: sink.found } : { malformed };
}

const SEED = 20_260_101;
const CUTS = rounds(50, 15);

describe('the parser', () => {
  test.each(CASES)('%s, whole, byte by byte and at random cuts', (_title, body, verdict) => {
    const bytes = Buffer.from(body as Buffer);
    expect(parse([bytes])).toEqual(verdict);
    expect(parse(singleBytes(bytes))).toEqual(verdict);
    for (let i = 0; i < CUTS; i++) {
      const chunks = cutAtRandom(bytes, seeded(SEED + i));
      expect(parse(chunks), `seed ${SEED + i}, chunks of ${chunks.map((c) => c.length)}`).toEqual(verdict);
    }
  });

  test('stays malformed whatever is fed later', () => {
    const parser = new Parser(new Recorder(), storedTypes([]));
    expect(parser.feed(bytesOf('x\n'))).toBe('the envelope header is no JSON object');
    expect(parser.feed(bytesOf('{}\n'))).toBe('the envelope header is no JSON object');
    expect(parser.end()).toBe('the envelope header is no JSON object');
  });

  test('says so in the chunk in which it becomes certain', () => {
    const parser = new Parser(new Recorder(), storedTypes([]));
    expect(parser.feed(bytesOf('{}\n{"type":"log","length":1}\na'))).toBeUndefined();
    expect(parser.feed(bytesOf('b'))).toBe('a payload is followed by another byte than a newline');
  });
});

// ---- whatever is written ----

/** Every way an item can be written: whether it states its length, and what it holds. */
type WrittenItem = { type: string; hasLength: boolean; payload: Uint8Array };

const RUNS = { numRuns: 300, seed: SEED };
const STORED = storedTypes([]);
const types = fc.oneof(
  fc.constantFrom(...STORED),
  fc.constantFrom('session', 'attachment', 'client_report', 'other', '__proto__', '', 'é'),
);
const item: fc.Arbitrary<WrittenItem> = fc
  .record({ type: types, hasLength: fc.boolean(), payload: fc.uint8Array({ maxLength: 60 }) })
  .map(({ type, hasLength, payload }) => ({
    type,
    hasLength,
    // Without a length a newline would end the payload.
    payload: hasLength ? payload : payload.map((byte) => (byte === 10 ? 11 : byte)),
  }));
const items = fc.array(item, { maxLength: 12 });
const envelope = fc.record({ items, hasFinalNewline: fc.boolean(), hasEventId: fc.boolean() });

type Written = { items: WrittenItem[]; hasFinalNewline: boolean; hasEventId: boolean };

/** With white space that nobody writes again, because the header is stored as it was sent. */
const headerOf = ({ type, hasLength, payload }: WrittenItem): string =>
  `{ "type": ${JSON.stringify(type)},  ${hasLength ? `"length":${payload.length}` : '"x":"é\\"\\n"'}}\r`;

function write({ items: list, hasFinalNewline, hasEventId }: Written): Buffer {
  const lines = [bytesOf(JSON.stringify(hasEventId ? { event_id: EVENT_ID } : {}))];
  for (const one of list) lines.push(bytesOf(`\n${headerOf(one)}\n`), Buffer.from(one.payload));
  // A payload without length that is empty at the end of the body is written as its header and newline: one more newline is allowed.
  if (hasFinalNewline) lines.push(bytesOf('\n'));
  return Buffer.concat(lines);
}

function expected({ items: list }: Written): object {
  const stored = list.flatMap(({ type, hasLength, payload }, index) =>
    STORED.has(type)
      ? [
          {
            index,
            type,
            length: payload.length,
            header: bytesOf(headerOf({ type, hasLength, payload })).toString('latin1'),
            payload: Buffer.from(payload).toString('latin1'),
          },
        ]
      : [],
  );
  const skipped: Record<string, number> = {};
  for (const { type } of list) {
    if (STORED.has(type)) continue;
    const counted = (SKIPPED_TYPES as readonly string[]).includes(type) ? type : 'other';
    skipped[counted] = (skipped[counted] ?? 0) + 1;
  }
  return { skipped, bytes: stored.reduce((sum, one) => sum + one.length, 0), items: stored };
}

describe('any envelope', () => {
  test('gives the items that were written, however it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(envelope, fc.nat(), async (written, seed) => {
        const result = await uploadOf(cutAtRandom(write(written), seeded(seed)));
        if (!result.ok) throw new Error(result.failure.detail);
        const { sentAt, sdk, ...shape } = (await shapeOf(result.envelope)) as Record<string, unknown>;
        expect(shape).toEqual(expected(written));
        expect([sentAt, sdk]).toEqual([undefined, undefined]);
        if (written.hasEventId) expect(result.envelope.eventId).toBe(EVENT_ID);
      }),
      RUNS,
    );
  });

  test('with one byte changed gives items or a reason, the same however it is cut', () => {
    fc.assert(
      fc.property(envelope, fc.nat(), fc.nat(), fc.nat(255), (written, seed, at, byte) => {
        const body = write(written);
        body[at % body.length] = byte;
        const whole = parse([body]);
        expect(parse(cutAtRandom(body, seeded(seed)))).toEqual(whole);
        expect(parse(singleBytes(body))).toEqual(whole);
      }),
      RUNS,
    );
  });

  test('and any bytes at all never make the parser throw', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(fc.uint8Array({ maxLength: 40 }), fc.json().map(bytesOf), fc.constant(bytesOf('\n'))),
        ),
        (chunks) => {
          expect(parse(chunks)).toEqual(parse([Buffer.concat(chunks)]));
        },
      ),
      RUNS,
    );
  });
});
