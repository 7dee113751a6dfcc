import { decode, encode } from '@msgpack/msgpack';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { MessagePackWriter } from '../../src/lib/msgpack-writer.ts';
import { MessagePackReader } from '../../src/stream/msgpack-reader.ts';

type Value = null | number | string | Uint8Array | Value[];

const uint = fc.oneof(
  fc.nat(300),
  fc.maxSafeNat(),
  fc.constantFrom(127, 128, 2 ** 32 - 1, 2 ** 32, Number.MAX_SAFE_INTEGER),
);
const ascii = fc.string({ unit: 'binary-ascii', maxLength: 300, size: 'max' });
const scalar = fc.oneof(fc.constant(null), uint, ascii, fc.uint8Array({ maxLength: 300 }));
const value: fc.Arbitrary<Value> = fc.oneof(
  scalar,
  fc.array(fc.oneof(scalar, fc.array(fc.oneof(scalar, fc.array(scalar, { maxLength: 5 })))), {
    maxLength: 40,
    size: 'max',
  }),
);

function write(out: MessagePackWriter, what: Value): void {
  if (what === null) out.nil();
  else if (typeof what === 'number') out.uint(what);
  else if (typeof what === 'string') out.string(what);
  else if (what instanceof Uint8Array) out.bytes(what);
  else {
    out.array(what.length);
    for (const one of what) write(out, one);
  }
}

function written(what: Value): Uint8Array {
  const out = new MessagePackWriter(1_000_000);
  write(out, what);
  return out.written;
}

function decoded(bytes: Uint8Array): unknown {
  try {
    return decode(new Uint8Array(bytes));
  } catch {
    return undefined;
  }
}

it('reads what the writer writes', () => {
  const reader = new MessagePackReader();
  fc.assert(
    fc.property(value, (what) => {
      expect(reader.read(written(what))).toEqual(what);
    }),
  );
});

it.each([0, 1, 15, 16, 31, 32, 99, 100, 255, 256, 300, 65_535])('reads texts and arrays of %i', (length) => {
  const reader = new MessagePackReader();
  const letters = Array.from({ length }, (_, n) => String.fromCharCode(97 + (n % 26))).join('');
  expect(reader.read(written(letters))).toBe(letters);
  const numbers = Array.from({ length }, (_, n) => n);
  expect(reader.read(written([numbers, letters]))).toEqual([numbers, letters]);
});

it('says of bytes that were changed, cut off or added to what the library says, or nothing', () => {
  const reader = new MessagePackReader();
  const change = fc.record({ at: fc.nat(), byte: fc.nat(255), cut: fc.nat(3), added: fc.nat(2) });
  fc.assert(
    fc.property(value, change, (what, { at, byte, cut, added }) => {
      const whole = Buffer.concat([written(what), Buffer.alloc(added)]);
      whole[at % whole.length] = byte;
      const bytes = whole.subarray(0, whole.length - cut);
      const found = reader.read(bytes);
      if (found !== undefined) expect(found).toEqual(decoded(bytes));
    }),
    { numRuns: 5_000 },
  );
});

it.each([
  ['text that is not ASCII', 'é'],
  ['a map', {}],
  ['a fraction', 1.5],
  ['a negative number', -1],
  ['true', true],
  ['a long text', 'a'.repeat(65_536)],
  ['a long array', Array.from({ length: 65_536 }, () => 1)],
])('leaves %s to the library', (_, what) => {
  expect(new MessagePackReader().read(encode([what]))).toBeUndefined();
});

it('reads views of whatever memory', () => {
  const reader = new MessagePackReader();
  const one = written(['a', Uint8Array.of(1)]);
  const inside = new Uint8Array(100);
  inside.set(one, 50);
  for (const bytes of [one, inside.subarray(50, 50 + one.length), one])
    expect(reader.read(bytes)).toEqual(['a', Uint8Array.of(1)]);
});
