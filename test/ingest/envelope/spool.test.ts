import { openSync, rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Holding } from '../../../src/ingest/envelope/budget.ts';
import { Spool } from '../../../src/ingest/envelope/spool.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import { SPOOL_BLOCK_BYTES, SPOOL_BYTES_MAX, SPOOL_QUEUE_BYTES_MAX } from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';
import { bytesOf, seeded, testBudget } from './bodies.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('spool');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));

function startSpool(fd?: number, isStarted = true) {
  const budget = testBudget({ spoolDir });
  const holding = new Holding(budget, new Slotted());
  const behind: boolean[] = [];
  const failures: string[] = [];
  if (fd !== undefined) budget.disk.open = (done) => setImmediate(done, null, fd);
  const spool = new Spool({
    holding,
    onBehind: (is) => behind.push(is),
    onFailed: (detail) => failures.push(detail),
  });
  if (isStarted) spool.start();
  const flushed = (): Promise<void> => new Promise((resolve) => spool.flush(resolve));
  return { budget, holding, behind, failures, spool, flushed };
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

  test('gives back what it was given, from any place', async () => {
    const { spool, flushed, behind, failures } = startSpool();
    const bytes = randomBytes(3 * SPOOL_BLOCK_BYTES + 17, 7);
    for (const [from, to] of [
      [0, 1],
      [1, 1000],
      [1000, 1000],
      [1000, 2 * SPOOL_BLOCK_BYTES],
      [2 * SPOOL_BLOCK_BYTES, bytes.length],
    ])
      spool.append(bytes.subarray(from, to));
    await flushed();
    expect(spool.length).toBe(bytes.length);
    expect(bytes.equals(await spool.read(0, bytes.length))).toBe(true);
    expect(
      bytes
        .subarray(SPOOL_BLOCK_BYTES - 3, SPOOL_BLOCK_BYTES + 5)
        .equals(await spool.read(SPOOL_BLOCK_BYTES - 3, 8)),
    ).toBe(true);
    expect((await spool.read(bytes.length, 0)).length).toBe(0);
    expect({ behind, failures }).toEqual({ behind: [], failures: [] });
    spool.close();
  });

  test('has no name in its folder', async () => {
    const { spool, flushed } = startSpool();
    spool.append(bytesOf('abc'));
    await flushed();
    expect(await readdir(spoolDir)).toEqual([]);
    expect(Buffer.from(await spool.read(0, 3)).toString()).toBe('abc');
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

  test('asks for a pause when the disk is behind, and says when it is not', async () => {
    const { spool, flushed, behind } = startSpool();
    spool.append(Buffer.alloc(SPOOL_QUEUE_BYTES_MAX - 1));
    expect(behind).toEqual([]);
    spool.append(Buffer.alloc(SPOOL_BLOCK_BYTES));
    expect(behind).toEqual([true]);
    await flushed();
    expect(behind).toEqual([true, false]);
    spool.close();
  });

  test('holds what waits for the disk and nothing after', async () => {
    const { spool, flushed, budget, holding } = startSpool();
    spool.append(Buffer.alloc(2 * SPOOL_BLOCK_BYTES + 1));
    expect(budget.heldBytes).toBe(3 * SPOOL_BLOCK_BYTES);
    await flushed();
    expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 2 * SPOOL_BLOCK_BYTES + 1]);
    spool.close();
    holding.close();
    expect(budget.spooledBytes).toBe(0);
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

  test('keeps what it is given in memory until it is started', async () => {
    const { spool, budget, flushed, behind } = startSpool(undefined, false);
    const bytes = randomBytes(2 * SPOOL_BLOCK_BYTES + 17, 9);
    spool.append(bytes);
    const waiting = flushed();
    // Its writes would have begun before those of the other one.
    const other = startSpool();
    other.spool.append(Buffer.alloc(8 * SPOOL_BLOCK_BYTES));
    await other.flushed();
    other.spool.close();
    expect(budget.heldBytes).toBe(3 * SPOOL_BLOCK_BYTES);
    await expect(spool.read(0, 1)).rejects.toThrow(RangeError);
    spool.start();
    await waiting;
    expect(bytes.equals(await spool.read(0, bytes.length))).toBe(true);
    expect([budget.heldBytes, behind]).toEqual([0, []]);
    spool.close();
  });

  test('does nothing when it is started after it was closed', async () => {
    const { spool, budget, holding, failures } = startSpool(undefined, false);
    spool.append(Buffer.alloc(2 * SPOOL_BLOCK_BYTES));
    spool.close();
    spool.start();
    holding.close();
    expect([budget.heldBytes, budget.spooledBytes, failures]).toEqual([0, 0, []]);
  });

  test('says once that the disk is full', async () => {
    const { spool, failures } = startSpool(openSync('/dev/full', 'r+'));
    spool.append(Buffer.alloc(3 * SPOOL_BLOCK_BYTES));
    spool.flush(() => failures.push('flushed'));
    await expect.poll(() => failures).toEqual(['the spool cannot be written: ENOSPC']);
    spool.append(Buffer.alloc(SPOOL_BLOCK_BYTES));
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(failures).toHaveLength(1);
    await expect(spool.read(0, 0)).rejects.toThrow('failed');
    spool.close();
  });

  test("fails at the bound of the worker's spools", () => {
    const { spool, failures, budget } = startSpool();
    budget.shares.spooled.add(new Slotted(), SPOOL_BYTES_MAX - 2);
    spool.append(bytesOf('ab'));
    expect(failures).toEqual([]);
    spool.append(bytesOf('c'));
    expect(failures).toEqual(['the spool files are at their bound']);
    spool.close();
  });
});
