import { describe, expect, test } from 'vitest';
import { Xxh64 } from '../../../src/envelope/zstd/xxh64.ts';
import { bytesOf, cutAtRandom, seeded } from '../bodies.ts';

/** The lower half of XXH64 as the reference implementation of zstd writes it behind a frame. */
const KNOWN: [text: string, low32: number][] = [
  ['', 0x51d8e999],
  ['a', 0xa98c6e5b],
  ['abc', 0xad770999],
  ['abcdefgh', 0x5b4634b7],
  ['abcdefghijkl', 0xa233d4b3],
  ['01234567890123456789012345678901', 0x1ea110ba],
  ['012345678901234567890123456789012', 0x0731f0bd],
  ['é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€é€', 0x9b3795e3],
];

describe('XXH64', () => {
  test.each(KNOWN)('of %j', (text, low32) => {
    const hash = new Xxh64();
    hash.update(bytesOf(text));
    expect(hash.low32()).toBe(low32);
  });

  test('is the same however the bytes come', () => {
    const random = seeded(4);
    const bytes = Buffer.from(Array.from({ length: 1000 }, () => Math.floor(random() * 256)));
    const whole = new Xxh64();
    whole.update(bytes);
    for (let seed = 0; seed < 50; seed++) {
      const hash = new Xxh64();
      for (const chunk of cutAtRandom(bytes, seeded(seed), 20)) hash.update(chunk);
      expect(hash.low32(), `seed ${seed}`).toBe(whole.low32());
    }
  });
});
