import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyTable } from '../../src/sink/key-table.ts';

const keyOf = (n: number): Buffer => createHash('md5').update(`${n}`).digest();
/** All in the same slot, whatever the size. */
const collidingKey = (n: number): Buffer => {
  const key = Buffer.alloc(16);
  key.writeUInt32LE(n, 4 + 4 * (n % 3));
  return key;
};

describe('a key table', () => {
  it.each([
    ['scattered', keyOf],
    ['colliding', collidingKey],
  ])('knows what a map knows, for %s keys', (_, key) => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(400), fc.nat(1_000), fc.nat(200)), { maxLength: 600 }),
        (writes) => {
          const table = new KeyTable(() => Number.NEGATIVE_INFINITY);
          const map = new Map<number, { time: number; value: number }>();
          for (const [n, time, value] of writes) {
            table.set(key(n), time, value);
            map.set(n, { time, value });
          }
          for (let n = 0; n <= 400; n++) expect(table.get(key(n))).toEqual(map.get(n));
          expect(table.size).toBe(map.size);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('forgets what is older than its floor when it grows, and nothing else', () => {
    let now = 0;
    const table = new KeyTable(() => now - 5_000);
    for (now = 0; now < 50_000; now++) {
      table.set(keyOf(now), now);
      if (now % 1_000 === 0)
        for (let age = 0; age <= Math.min(now, 5_000); age += 500)
          expect(table.get(keyOf(now - age))?.time).toBe(now - age);
    }
    expect(table.size).toBeLessThan(25_000);
    expect(table.get(keyOf(0))).toBeUndefined();
  });
});
