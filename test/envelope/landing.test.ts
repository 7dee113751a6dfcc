import { rmSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Holding } from '../../src/envelope/budget.ts';
import { type Approach, Landing } from '../../src/envelope/landing.ts';
import {
  LANDED_BYTES_MAX,
  LANDINGS_PER_TURN,
  QUEUED_BYTES_MAX,
  SPOOL_BLOCK_BYTES,
} from '../../src/limits.ts';
import { temporaryFolder } from '../support/servers.ts';
import { cutEvery, eventBody, feedAll, startUpload, testBudget } from './bodies.ts';
import { RUNTIME_HAS_ZSTD, zstdBlocks } from './zstd-bytes.ts';

/** Approaches that note what they are told. */
function approaches(landing: Landing, count: number): { held: (boolean | undefined)[]; all: Approach[] } {
  const held: (boolean | undefined)[] = Array.from({ length: count });
  const all = held.map((_, at) => ({
    hold(is: boolean): void {
      held[at] = is;
    },
  }));
  for (const one of all) landing.approach(one);
  return { held, all };
}

describe('a landing', () => {
  test('holds nobody below its bound', () => {
    const landing = new Landing();
    const { held } = approaches(landing, 2);
    landing.land(LANDED_BYTES_MAX - 1);
    expect(held).toEqual([undefined, undefined]);
  });

  test('holds all who approach at its bound, and who comes later', () => {
    const landing = new Landing();
    const { held } = approaches(landing, 2);
    landing.land(LANDED_BYTES_MAX);
    expect(held).toEqual([true, true]);
    expect(approaches(landing, 1).held).toEqual([true]);
  });

  test('lets them go in their order, a few in a turn', async () => {
    const landing = new Landing();
    const { held } = approaches(landing, LANDINGS_PER_TURN + 1);
    landing.land(LANDED_BYTES_MAX);
    landing.land(-1);
    expect(held.every(Boolean)).toBe(true);
    await nextTurn();
    expect(held).toEqual([...Array.from({ length: LANDINGS_PER_TURN }, () => false), true]);
    await nextTurn();
    expect(held.some(Boolean)).toBe(false);
  });

  test('stops letting go when those fill it again', async () => {
    const landing = new Landing();
    const { held, all } = approaches(landing, LANDINGS_PER_TURN + 1);
    landing.land(LANDED_BYTES_MAX);
    landing.land(-1);
    await nextTurn();
    for (const one of all.slice(0, LANDINGS_PER_TURN)) landing.leave(one);
    landing.land(1);
    await nextTurn();
    expect(held.at(-1)).toBe(true);
    landing.land(-LANDED_BYTES_MAX);
    await nextTurn();
    expect(held.at(-1)).toBe(false);
  });

  test('holds all as well while too much waits for disk and decoders', async () => {
    const landing = new Landing();
    const { held } = approaches(landing, 2);
    landing.queue(QUEUED_BYTES_MAX);
    expect(held).toEqual([true, true]);
    landing.queue(-1);
    await nextTurn();
    expect(held).toEqual([false, false]);
  });

  test('forgets who has left', async () => {
    const landing = new Landing();
    const { held, all } = approaches(landing, 1);
    landing.land(LANDED_BYTES_MAX);
    landing.leave(all[0] as Approach);
    landing.land(-LANDED_BYTES_MAX);
    await nextTurn();
    expect(held).toEqual([true]);
  });
});

describe('an upload that is spooled', () => {
  let spoolDir: string;
  beforeAll(() => {
    spoolDir = temporaryFolder('spool');
  });
  afterAll(() => rmSync(spoolDir, { recursive: true }));

  test('is paused while the landing is full, and resumed after', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, pressure, result } = startUpload('', budget);
    budget.landing.land(LANDED_BYTES_MAX);
    const pieces = cutEvery(eventBody(300_000), 200_000);
    upload.feed(pieces[0] as Buffer);
    expect(pressure).toEqual([true]);
    budget.landing.land(-LANDED_BYTES_MAX);
    await nextTurn();
    expect(pressure).toEqual([true, false]);
    upload.feed(pieces[1] as Buffer);
    upload.end();
    expect((await result).ok).toBe(true);
    upload.dispose();
  });

  test('has landed from its last byte until it is disposed of', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, result } = startUpload('', budget);
    upload.feed(eventBody(300_000));
    expect(budget.landing.landedBytes).toBe(0);
    upload.end();
    const verdict = await result;
    expect(budget.landing.landedBytes).toBe(verdict.ok && verdict.envelope.bytes);
    expect(budget.landing.landedBytes).toBeGreaterThan(290_000);
    upload.dispose();
    expect(budget.landing.landedBytes).toBe(0);
  });

  test('is paused as well while others wait for the disk, and counts what itself waits', async () => {
    const budget = testBudget({ spoolDir });
    const other = new Holding(budget);
    const { upload, pressure, result } = startUpload('', budget);
    upload.feed(eventBody(300_000));
    expect(pressure).toEqual([]);
    // What of it waits fills the rest.
    other.queue(QUEUED_BYTES_MAX - SPOOL_BLOCK_BYTES);
    expect(pressure).toEqual([true]);
    other.close();
    await nextTurn();
    expect(pressure).toEqual([true, false]);
    upload.end();
    await result;
    upload.dispose();
  });

  test.each(['gzip', 'br', ...(RUNTIME_HAS_ZSTD ? ['zstd'] : [])])(
    'in %s leaves nothing in the sums, however it ends',
    async (encoding) => {
      const budget = testBudget({ spoolDir });
      const compress = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdBlocks }[
        encoding
      ] as typeof gzipSync;
      const body = compress(eventBody(3_000_000));
      const whole = startUpload(encoding, budget);
      feedAll(whole.upload, cutEvery(body, 1 + (body.length >> 1)));
      expect((await whole.result).ok).toBe(true);
      const left = startUpload(encoding, budget);
      left.upload.feed(body.subarray(0, body.length >> 1));
      left.upload.feed(body.subarray(body.length >> 1, -1));
      for (const { upload } of [whole, left]) upload.dispose();
      expect([budget.landing.landedBytes, budget.landing.queuedBytes, budget.heldBytes]).toEqual([0, 0, 0]);
    },
  );

  test('that fails does not land', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, result } = startUpload('', budget);
    upload.feed(Buffer.from(`{}\n{"type":"event","length":300001}\n${'x'.repeat(300_000)}`));
    upload.end();
    expect((await result).ok).toBe(false);
    expect(budget.landing.landedBytes).toBe(0);
  });

  test('and a small one never wait for it', async () => {
    const budget = testBudget({ spoolDir });
    budget.landing.land(LANDED_BYTES_MAX);
    const { upload, pressure, result } = startUpload('', budget);
    upload.feed(eventBody(1_000));
    upload.end();
    expect((await result).ok).toBe(true);
    expect(pressure).toEqual([]);
    upload.dispose();
  });
});
