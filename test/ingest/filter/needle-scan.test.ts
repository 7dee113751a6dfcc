import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NeedleScan } from '../../../src/ingest/filter/needle-scan.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('a needle scan', () => {
  it.each([
    [['abab'], 'abaabab', true],
    [['abcd', 'bc'], 'xabcx', true],
    [['he', 'she', 'hers'], 'usher', true],
    [['"127.', '::1"'], '{"a":"::1"}', true],
    [['"127.', '::1"'], 'Chrome/127.0.0.0', false],
    [['bot/'], 'éBot/', true],
    [['@'], '`', false],
    [['['], '{', false],
  ] as const)('for %j in %j says %s', (needles, text, expected) => {
    expect(new NeedleScan(needles).foundIn(bytes(text))).toBe(expected);
  });

  it('agrees with String.includes on any needles and any text', () => {
    const word = (alphabet: string, minLength: number, maxLength: number) =>
      fc.string({ unit: fc.constantFrom(...alphabet), minLength, maxLength });
    fc.assert(
      fc.property(
        fc.array(word('ab/:', 1, 5), { minLength: 1, maxLength: 6 }),
        word('abAB/:xé', 0, 40),
        (needles, text) => {
          const expected = needles.some((needle) => text.toLowerCase().includes(needle));
          expect(new NeedleScan(needles).foundIn(bytes(text))).toBe(expected);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it.each([[['']], [['ABC']], [['é']]])('refuses the needles %j', (needles) => {
    expect(() => new NeedleScan(needles)).toThrow('lower-case ASCII');
  });
});
