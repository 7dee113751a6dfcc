import { rmSync } from 'node:fs';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Holding } from '../../../src/ingest/envelope/budget.ts';
import { Inflater } from '../../../src/ingest/envelope/inflate/inflater.ts';
import type { UploadBudget } from '../../../src/ingest/envelope/upload.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import { HELD_BYTES_MAX, INFLATER_QUEUE_BYTES_MAX, SYNC_INFLATE_BYTES_MAX } from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';
import { bytesOf, cutEvery, eventBody, feedAll, payloadBytes, startUpload, testBudget } from './bodies.ts';
import { RUNTIME_HAS_ZSTD, zstdBlocks } from './zstd-bytes.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('inflater');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));
const budgetOf = (): UploadBudget => testBudget({ spoolDir });

/** As fast as it goes: how well it compresses is of no interest here. */
const brotli = (body: Uint8Array): Buffer =>
  brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } });
const PACKERS = { gzip: gzipSync, br: brotli, zstd: zstdBlocks } as const;
const ENCODINGS = (['gzip', 'br', 'zstd'] as const).filter((name) => name !== 'zstd' || RUNTIME_HAS_ZSTD);
const LARGE = eventBody(700_000);

test('a bomb is stopped at the cap, whatever it would have become', async () => {
  const zeros = Buffer.alloc(64 * 1024 * 1024);
  const bomb = gzipSync(Buffer.concat([bytesOf('{}\n{"type":"event"}\n'), zeros]), { level: 1 });
  expect(bomb.length).toBeGreaterThan(2 * SYNC_INFLATE_BYTES_MAX); // so that it is inflated while it comes
  const budget = budgetOf();
  const { upload, result } = startUpload('gzip', budget);
  let heldMax = 0;
  for (const chunk of cutEvery(bomb, 65_536)) {
    upload.feed(chunk);
    await new Promise((resolve) => setImmediate(resolve));
    heldMax = Math.max(heldMax, budget.heldBytes);
  }
  upload.end();
  expect(await result).toMatchObject({ ok: false, failure: { kind: 'too_large' } });
  expect(heldMax).toBeLessThan(4 * 1024 * 1024);
  expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
});

test.each(ENCODINGS)('an inflater of %s holds nothing once the verdict is told', async (encoding) => {
  const { upload, budget, result } = startUpload(encoding, budgetOf());
  feedAll(upload, cutEvery(PACKERS[encoding](LARGE), 30_000));
  expect(await result).toMatchObject({ ok: true });
  // The item is in the spool; what is left is its header line and the envelope's.
  expect(budget.heldBytes).toBeLessThan(100);
  upload.dispose();
});

test.each(ENCODINGS)(
  'a paused inflater of %s gives next to nothing until it is resumed',
  async (encoding) => {
    const body = Buffer.alloc(4_000_000, 97);
    const compressed = PACKERS[encoding](body);
    let given = 0;
    let atPause = 0;
    const ended = new Promise<void>((resolve, reject) => {
      const options = {
        holding: new Holding(budgetOf(), new Slotted()),
        onBytes: (bytes: Buffer) => {
          given += bytes.length;
          if (given > bytes.length) return;
          inflater.pause();
          setTimeout(() => {
            atPause = given;
            inflater.resume();
          }, 50);
        },
        onEnd: resolve,
        onFailed: (_kind: string, detail: string) => reject(new Error(detail)),
        onBehind: () => undefined,
      };
      const inflater = new Inflater(encoding, options);
      inflater.feed(compressed);
      inflater.end();
    });
    await ended;
    expect(given).toBe(body.length);
    expect(atPause).toBeGreaterThan(0);
    expect(atPause).toBeLessThanOrEqual(256 * 1024);
  },
);

describe('pressure', () => {
  test('comes from the inflater when more waits than it may, and goes before the verdict', async () => {
    const body = gzipSync(eventBody(3_000_000), { level: 1 });
    expect(body.length).toBeGreaterThan(2 * INFLATER_QUEUE_BYTES_MAX);
    const { upload, result, pressure } = startUpload('gzip', budgetOf());
    feedAll(upload, [body]);
    const atVerdict = await result.then(() => [...pressure]);
    expect(atVerdict[0]).toBe(true);
    expect(atVerdict.at(-1)).toBe(false);
    upload.dispose();
  });

  test('holds a compressed body back while the disk is behind', async () => {
    const body = gzipSync(Buffer.concat([bytesOf('{}\n{"type":"log"}\n'), Buffer.alloc(16_000_000, 97)]));
    const budget = budgetOf();
    const { upload, result } = startUpload('gzip', budget);
    let heldMax = 0;
    const watch = setInterval(() => {
      heldMax = Math.max(heldMax, budget.heldBytes);
    }, 1);
    feedAll(upload, [body]);
    const verdict = await result;
    clearInterval(watch);
    expect(verdict.ok && payloadBytes(verdict.envelope)).toBe(16_000_000);
    expect(heldMax).toBeLessThan(4 * 1024 * 1024);
    upload.dispose();
  });

  test.each(ENCODINGS)('becomes a refusal of %s when the worker holds too much', async (encoding) => {
    const budget = budgetOf();
    const { upload, result } = startUpload(encoding, budget);
    const [first, ...rest] = cutEvery(PACKERS[encoding](LARGE), 10_000);
    upload.feed(first as Buffer);
    budget.hold(HELD_BYTES_MAX, new Slotted());
    feedAll(upload, rest);
    expect(await result).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
    expect(budget.heldBytes).toBe(HELD_BYTES_MAX);
  });
});
