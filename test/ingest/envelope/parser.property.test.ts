import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ItemReceiver, Parser } from '../../../src/ingest/envelope/parser.ts';
import { SKIPPED_TYPES, storedTypes } from '../../../src/lib/item-types.ts';
import { ITEMS_MAX } from '../../../src/limits.ts';
import { bytesOf, EVENT_ID, shapeOf, uploadOf } from './bodies.ts';

const SEED = 20_260_102;
const RUNS = { numRuns: 300, seed: SEED };

/** Every way an item can be written: whether it states its length, and what it holds. */
type WrittenItem = { type: string; hasLength: boolean; payload: Uint8Array };

const STORED = storedTypes([]);
const types = fc.oneof(
  fc.constantFrom(...STORED),
  fc.constantFrom('session', 'attachment', 'client_report', '', 'é'),
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
const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 12 });

type Written = { items: WrittenItem[]; hasFinalNewline: boolean; hasEventId: boolean };

const headerOf = ({ type, hasLength, payload }: WrittenItem): string =>
  JSON.stringify(hasLength ? { length: payload.length, type } : { type, x: 'é"\\n' });

function write({ items: list, hasFinalNewline, hasEventId }: Written): Buffer {
  const lines = [bytesOf(JSON.stringify(hasEventId ? { event_id: EVENT_ID } : {}))];
  for (const one of list) lines.push(bytesOf(`\n${headerOf(one)}\n`), Buffer.from(one.payload));
  // A payload without length that is empty at the end of the body is written as its header and newline: one more newline is allowed.
  if (hasFinalNewline) lines.push(bytesOf('\n'));
  return Buffer.concat(lines);
}

function cut(body: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => Math.floor(place * body.length)), body.length].sort(
    (a, b) => a - b,
  );
  return at.slice(1).map((end, i) => body.subarray(at[i], end));
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
  return {
    skipped,
    bytes: stored.reduce((sum, one) => sum + one.length, 0),
    items: stored,
  };
}

/** What a parser says, as one string; throws whatever it throws. */
function transcript(chunks: readonly Uint8Array[]): string {
  let told = '';
  const sink: ItemReceiver = {
    envelopeHeader: (header) => {
      told += JSON.stringify(header);
    },
    itemBegin: ({ index, type, header }) => {
      told += `\n${index} ${type} ${Buffer.from(header).toString('latin1')} `;
    },
    payload: (piece) => {
      told += Buffer.from(piece).toString('latin1');
    },
    itemEnd: () => {
      told += '.';
    },
    itemSkipped: (type) => {
      told += `\n(${type})`;
    },
  };
  const parser = new Parser(sink, storedTypes([]));
  for (const chunk of chunks) parser.feed(chunk);
  const malformed = parser.end();
  // What was told before the reason depends on how much had come: only the reason is the same for every cut.
  return malformed === undefined ? told : `malformed: ${malformed}`;
}

describe('any envelope', () => {
  test('gives the items that were written, however it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(envelope, cuts, async (written, places) => {
        const result = await uploadOf(cut(write(written), places));
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
      fc.property(envelope, cuts, fc.nat(), fc.nat(255), (written, places, at, byte) => {
        const body = write(written);
        body[at % body.length] = byte;
        const whole = transcript([body]);
        expect(transcript(cut(body, places))).toBe(whole);
        expect(transcript(Array.from(body, (one) => Uint8Array.of(one)))).toBe(whole);
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
          expect(transcript(chunks)).toBe(transcript([Buffer.concat(chunks)]));
        },
      ),
      RUNS,
    );
  });

  test('has at most so many items', () => {
    fc.assert(
      fc.property(fc.integer({ min: ITEMS_MAX - 2, max: ITEMS_MAX + 2 }), (count) => {
        const body = bytesOf(`{}${'\n{"type":"log"}\n'.repeat(count)}`);
        expect(transcript([body]).startsWith('malformed')).toBe(count > ITEMS_MAX);
      }),
      { seed: SEED, numRuns: 20 },
    );
  });
});
