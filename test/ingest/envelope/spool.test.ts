import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Holding } from '../../../src/ingest/envelope/budget.ts';
import { Spool } from '../../../src/ingest/envelope/spool.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import { SPOOL_BLOCK_BYTES } from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';
import { bytesOf, seeded, testBudget } from './bodies.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('spool');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));

function startSpool() {
  const spool = new Spool({
    holding: new Holding(testBudget({ spoolDir }), new Slotted()),
    onBehind: () => undefined,
    onFailed: (detail) => expect.unreachable(detail),
  });
  spool.start();
  return { spool, flushed: (): Promise<void> => new Promise((resolve) => spool.flush(resolve)) };
}

const randomBytes = (length: number, seed: number): Buffer => {
  const random = seeded(seed);
  return Buffer.from(Array.from({ length }, () => Math.floor(random() * 256)));
};

describe('a spool', () => {
  test('gives back some items as if the others were not in it, in pieces of any size', async () => {
    const { spool, flushed } = startSpool();
    const items = [5, 0, 7, 3, 11, 1, 0, 4].map((length, n) => ({ length, bytes: randomBytes(length, n) }));
    for (const { bytes } of items) spool.append(bytes);
    await flushed();
    for (const places of [[0], [7], [2, 3], [0, 2, 4, 7], [1, 6], [1, 2, 3, 4, 5, 6, 7]]) {
      const kept = places.map((at) => items[at] as (typeof items)[number]);
      const part = spool.only(items, kept);
      const expected = Buffer.concat(kept.map(({ bytes }) => bytes));
      expect(part.length).toBe(expected.length);
      for (const size of [1, 2, 3, 100]) {
        const pieces: Uint8Array[] = [];
        for (let at = 0; at < part.length; at += size)
          pieces.push(await part.read(at, Math.min(size, part.length - at)));
        expect(Buffer.concat(pieces).equals(expected), `items ${places}, ${size} bytes at a time`).toBe(true);
      }
    }
    expect(spool.only(items, items)).toBe(spool);
    spool.close();
  });

  test('refuses to read what was not written', async () => {
    const { spool, flushed } = startSpool();
    spool.append(bytesOf('abc'));
    await flushed();
    await expect(spool.read(0, 4)).rejects.toThrow(RangeError);
    await expect(spool.read(-1, 2)).rejects.toThrow(RangeError);
    spool.close();
    await expect(spool.read(0, 3)).rejects.toThrow('closed');
  });

  test('may be closed while it writes and while it reads', async () => {
    const { spool, flushed } = startSpool();
    spool.append(Buffer.alloc(4 * SPOOL_BLOCK_BYTES));
    await flushed();
    spool.append(Buffer.alloc(SPOOL_BLOCK_BYTES));
    const reading = spool.read(0, 100);
    spool.close();
    spool.close();
    expect((await reading).length).toBe(100);
  });
});
