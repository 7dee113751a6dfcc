import fc from 'fast-check';
import { expect, it } from 'vitest';
import { RowBuffer } from '../../../src/sink/clickhouse/row-buffer.ts';

/** A row as RowBinary has it (ClickHouse's documentation of the format), written the plain way. */
type Row = { key: number; text: string; at: number; more: string | undefined; size: number };

function plain({ key, text, at, more, size }: Row): Buffer {
  const length = (n: number): number[] => (n < 0x80 ? [n] : [(n & 0x7f) | 0x80, ...length(n >>> 7)]);
  const string = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.from(length(bytes.length)), bytes]);
  const int64 = Buffer.alloc(8);
  int64.writeBigInt64LE(BigInt(at));
  const optional =
    more === undefined ? Buffer.of(1) : Buffer.concat([Buffer.of(0), string(Buffer.from(more))]);
  return Buffer.concat([
    Buffer.alloc(16, key),
    string(Buffer.from(text)),
    int64,
    optional,
    string(Buffer.alloc(size, 7)),
  ]);
}

function fill(rows: readonly Row[]): RowBuffer {
  const buffer = new RowBuffer();
  for (const { key, text, at, more, size } of rows) {
    buffer.beginRow().key(Buffer.alloc(16, key)).text(text).int64(at);
    buffer.optional(more, (value) => buffer.text(value)).data(Buffer.alloc(size, 7));
  }
  return buffer;
}

const row = fc.record({
  key: fc.nat(255),
  text: fc.string({ unit: 'binary', maxLength: 200 }),
  at: fc.maxSafeInteger(),
  more: fc.option(fc.string(), { nil: undefined }),
  size: fc.oneof(fc.nat(300), fc.constantFrom(127, 128, 16_383, 16_384, 40_000)),
});

it('writes rows as the format has them, and gives any of them out again', () => {
  fc.assert(
    fc.property(fc.array(row, { maxLength: 30 }), fc.nat(30), fc.nat(30), (rows, a, b) => {
      const buffer = fill(rows);
      const [from, to] = [Math.min(a, b, rows.length), Math.min(Math.max(a, b), rows.length)];
      const wanted = Buffer.concat(rows.slice(from, to).map(plain));
      expect(Buffer.concat(buffer.slice(from, to)).equals(wanted)).toBe(true);
      expect(Buffer.concat(buffer.slice(0, rows.length)).equals(Buffer.concat(rows.map(plain)))).toBe(true);
      expect(buffer.bytes).toBe(Buffer.concat(rows.map(plain)).length);
      expect(buffer.rows).toBe(rows.length);
    }),
    { numRuns: 300 },
  );
});

it('goes on after rows were given out', () => {
  const [one, other] = [
    { key: 1, text: 'a', at: -1, more: undefined, size: 3 },
    { key: 2, text: 'ü', at: 2 ** 40, more: '', size: 70_000 },
  ];
  const buffer = fill([one]);
  buffer.slice(0, 1);
  const { key, text, at, size } = other;
  buffer.beginRow().key(Buffer.alloc(16, key)).text(text).int64(at);
  buffer.optional('', (value) => buffer.text(value)).data(Buffer.alloc(size, 7));
  expect(Buffer.concat(buffer.slice(1, 2)).equals(plain(other))).toBe(true);
  expect(Buffer.concat(buffer.slice(0, 2)).equals(Buffer.concat([plain(one), plain(other)]))).toBe(true);
});
