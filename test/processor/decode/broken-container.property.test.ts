/** A container of spans that broke on its way is stored as JSON.parse reads it, or is named as a fault; it never throws. */
import { isUtf8 } from 'node:buffer';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { EnvelopeDecoder } from '../../../src/processor/decode/decode.ts';
import { containerOf, toSend } from '../../../src/sink/containers.ts';
import { type Privacy, SCRUBS } from '../../../src/stream/frame.ts';
import { rounds } from '../../support/rounds.ts';
import { envelope, item } from '../harness.ts';

const RUNS = rounds(100_000, 1_000);

const SPAN = {
  trace_id: '5b8efff798038103d269b633813fc60c',
  span_id: 'b0e6f15b45c36b12',
  parent_span_id: null,
  name: 'GET /users/\u00e9\u{1f600}?email=jane@example.org',
  status: 'ok',
  start_timestamp: 1764000000.123456,
  end_timestamp: 1764000000.5,
  attributes: {
    'user.ip_address': { type: 'string', value: '203.0.113.7' },
    'http.response.status_code': { type: 'integer', value: 200 },
    'db.ratio': { type: 'double', value: -1.5e-7 },
    'authorization token': { type: 'string', value: 'a "quoted\\" secret' },
  },
  links: [{ trace_id: 'aa', sampled: true, attributes: {} }],
};
/** Damage behind it may make another name of it, which is no domain. */
const WHOLE_ADDRESS = /jane@example\.org(?![\w.-])/;
const CONTAINERS = [
  Buffer.from(JSON.stringify({ items: [SPAN, { ...SPAN, links: [] }] })),
  Buffer.from(JSON.stringify({ version: 2, items: [SPAN, 1, [], 'x'], ingest: {} }, null, 1)),
];

/** What may stand anywhere in a container: its signs, some texts, any byte. */
const piece = fc.oneof(
  fc.constantFrom('{', '}', '[', ']', ',', ':', '"', '\\', '\\u12', '\n', '"items":[1],', '-', '1e', 'null'),
  fc.constantFrom('\u00ff', '\u0000', '\ud800', '"email":"a@b.io",', '\u2028').map(String),
);
const bytesToPut = fc.oneof(
  piece.map((text) => Buffer.from(text)),
  fc.uint8Array({ minLength: 1, maxLength: 4 }).map((bytes) => Buffer.from(bytes)),
);
/**
 * At `at` (a share of the length), `drop` bytes give way to `put`. A double would be next to 0 nearly always: it is drawn by its bits.
 */
const PLACES = 2 ** 20;
const damage = fc.record({
  at: fc.nat({ max: PLACES - 1 }).map((place) => place / PLACES),
  drop: fc.oneof(fc.constant(0), fc.nat(8), fc.nat(400)),
  put: fc.oneof(fc.constant(Buffer.alloc(0)), bytesToPut),
});
const container = fc
  .tuple(fc.constantFrom(...CONTAINERS), fc.array(damage, { minLength: 1, maxLength: 4 }))
  .map(([whole, damages]) =>
    damages.reduce((bytes, { at, drop, put }) => {
      const from = Math.floor(at * bytes.length);
      return Buffer.concat([bytes.subarray(0, from), put, bytes.subarray(from + drop)]);
    }, whole),
  );

const parsed = (bytes: Uint8Array): unknown => JSON.parse(Buffer.from(bytes).toString());
/** The value of what is JSON in UTF-8. */
function valueIn(bytes: Buffer): { value: unknown } | undefined {
  try {
    return isUtf8(bytes) ? { value: parsed(bytes) } : undefined;
  } catch {
    return undefined;
  }
}

async function decoded(bytes: Buffer, privacy?: Privacy) {
  const entry = envelope([item('span', bytes)], privacy && { privacy });
  const [first] = entry.items;
  return new EnvelopeDecoder(entry).decode({ ...first, payload: bytes } as never);
}

it('is stored as it reads, whole and cut into its spans, or is named', async () => {
  let stored = 0;
  let named = 0;
  await fc.assert(
    fc.asyncProperty(container, async (bytes) => {
      const found = valueIn(bytes);
      const result = await decoded(bytes);
      expect(result.ok).toBe(found !== undefined);
      if (result.ok) {
        stored++;
        const { json } = result.record;
        expect(parsed(json)).toEqual(found?.value);
        const all = toSend(result.record).split?.elements.map((_, place) => place);
        if (all) expect(parsed(containerOf(json, all))).toEqual(found?.value);
      } else {
        named++;
        expect(result.reason).toMatch(/^payload is \S/);
      }
    }),
    { numRuns: RUNS },
  );
  // Damage of both kinds was met.
  expect(Math.min(stored, named)).toBeGreaterThan(5);
});

it('is scrubbed into JSON that holds none of what was private, or is named', async () => {
  const privacy: Privacy = { scrub: SCRUBS, names: [] };
  await fc.assert(
    fc.asyncProperty(container, async (bytes) => {
      const result = await decoded(bytes, privacy);
      expect(result.ok).toBe(valueIn(bytes) !== undefined);
      if (result.ok) expect(JSON.stringify(parsed(result.record.json))).not.toMatch(WHOLE_ADDRESS);
    }),
    { numRuns: RUNS },
  );
});
