import { rmSync } from 'node:fs';
import { brotliCompressSync, constants, createGzip, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Holding } from '../../../src/ingest/envelope/budget.ts';
import { Inflater } from '../../../src/ingest/envelope/inflate/inflater.ts';
import type { UploadBudget } from '../../../src/ingest/envelope/upload.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import { HELD_BYTES_MAX, INFLATER_QUEUE_BYTES_MAX } from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';
import {
  bytesOf,
  cutEvery,
  eventBody,
  failureOf,
  feedAll,
  payloadBytes,
  startUpload,
  testBudget,
} from './bodies.ts';
import { RUNTIME_HAS_ZSTD, zstdBlocks } from './zstd-bytes.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('inflater');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));
const budgetOf = (): UploadBudget => testBudget({ spoolDir });

type Compress = (body: Uint8Array) => Buffer;
const ZSTD = RUNTIME_HAS_ZSTD ? (['zstd'] as const) : [];
const LARGE = eventBody(700_000);

describe('a bomb', () => {
  test('is stopped at the cap, whatever it would have become', async () => {
    const gzip = createGzip({ level: 9 });
    const pieces: Buffer[] = [];
    gzip.on('data', (piece: Buffer) => pieces.push(piece));
    const zeros = Buffer.alloc(8 * 1024 * 1024);
    const ended = new Promise((resolve) => gzip.on('end', resolve));
    gzip.write(bytesOf('{}\n{"type":"event"}\n'));
    for (let i = 0; i < 32; i++) gzip.write(zeros);
    gzip.end();
    await ended;
    const bomb = Buffer.concat(pieces);
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

  test.each(['br', ...ZSTD])('in %s is stopped at the cap', async (encoding) => {
    const zeros = Buffer.concat([bytesOf('{}\n{"type":"event"}\n'), Buffer.alloc(64 * 1024 * 1024)]);
    const bomb =
      encoding === 'br'
        ? brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })
        : zstdBlocks(zeros);
    expect(bomb.length).toBeLessThan(200_000);
    expect(await failureOf([bomb], encoding, budgetOf())).toMatchObject({ kind: 'too_large' });
  });
});

describe('an inflater', () => {
  test.each([
    ['gzip', gzipSync],
    ['br', brotliCompressSync],
    ...ZSTD.map((encoding) => [encoding, zstdBlocks]),
  ] as [string, Compress][])('of %s holds nothing once the verdict is told', async (encoding, compress) => {
    const { upload, budget, result } = startUpload(encoding, budgetOf());
    feedAll(upload, cutEvery(compress(LARGE), 30_000));
    expect(await result).toMatchObject({ ok: true });
    // The item is in the spool; what is left is its header line and the envelope's.
    expect(budget.heldBytes).toBeLessThan(100);
    upload.dispose();
  });
});

describe('a paused inflater', () => {
  test.each(['gzip', 'br', ...ZSTD] as const)(
    'of %s gives next to nothing until it is resumed',
    async (encoding) => {
      const body = Buffer.alloc(4_000_000, 97);
      const compressed = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdBlocks }[encoding](body);
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
});

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

  test.each(['gzip', 'br', ...ZSTD])(
    'becomes a refusal of %s when the worker holds too much',
    async (encoding) => {
      const budget = budgetOf();
      const { upload, result } = startUpload(encoding, budget);
      const compress = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdBlocks }[encoding] as Compress;
      const [first, ...rest] = cutEvery(compress(LARGE), 10_000);
      upload.feed(first as Buffer);
      budget.hold(HELD_BYTES_MAX, new Slotted());
      feedAll(upload, rest);
      expect(await result).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
      expect(budget.heldBytes).toBe(HELD_BYTES_MAX);
    },
  );
});
