/** Content-Encoding zstd: what node:zlib makes of it where it has zstd, and 400 where it has not. */
import { rmSync } from 'node:fs';
import zlib from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Holding } from '../../../src/ingest/envelope/budget.ts';
import { HAS_ZSTD } from '../../../src/ingest/envelope/inflate/inflate.ts';
import { Inflater } from '../../../src/ingest/envelope/inflate/inflater.ts';
import type { UploadFailure } from '../../../src/ingest/envelope/upload.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import { ZstdFrames } from '../../../src/lib/zstd-frames.ts';
import { ZSTD_FRAMES_MAX, ZSTD_WINDOW_BYTES_MAX } from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';
import {
  bytesOf,
  cutAtRandom,
  feedAll,
  payloadBytes,
  seeded,
  singleBytes,
  startUpload,
  testBudget,
} from './bodies.ts';
import {
  BLOCK,
  RUNTIME_HAS_ZSTD,
  zstdBlock,
  zstdBlocks,
  zstdCompressSync,
  zstdFrame,
  zstdSkippable,
} from './zstd-bytes.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('zstd');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));

const ENVELOPE = bytesOf('{}\n{"type":"log"}\n["€"]');
const UNKNOWN = { kind: 'invalid', detail: 'the content encoding is unknown' };

/** What becomes of a body: the payload bytes that are held, or the failure. */
async function verdictOf(chunks: readonly Buffer[]): Promise<number | UploadFailure> {
  const budget = testBudget({ spoolDir });
  const { upload, result } = startUpload('zstd', budget);
  feedAll(upload, chunks);
  const verdict = await result;
  upload.dispose();
  expect([budget.heldBytes, budget.pacer.queuedBytes], 'left after dispose').toEqual([0, 0]);
  return verdict.ok ? payloadBytes(verdict.envelope) : verdict.failure;
}

/** The body whole, byte by byte and cut at random; the runtime decides what is expected. */
async function expectEverywhere(body: Buffer, expected: number | object): Promise<void> {
  const here = RUNTIME_HAS_ZSTD ? expected : UNKNOWN;
  const cuts = [[body], singleBytes(body), cutAtRandom(body, seeded(1)), cutAtRandom(body, seeded(2))];
  for (const chunks of cuts) {
    const verdict = await verdictOf(chunks);
    if (typeof here === 'number') expect(verdict).toBe(here);
    else expect(verdict).toMatchObject(here);
  }
}

const raw = (content: Uint8Array, isLast = true): Buffer =>
  zstdBlock(BLOCK.raw, content.length, content, isLast);
const framed = (bytes: Uint8Array): Buffer => zstdFrame([raw(bytes)]);
/** Three times the same 73 bytes of JSON, compressed by zstd 1.5. */
const COMPRESSED =
  '28b52ffd24db85020054047b226d657373616765223a2274686520717569636b2062726f776e20666f78206a756d7073206f' +
  '766572206c617a7920646f67222c226c6576656c223a226572726f72227d02003e984063c2527ab4477138';
const PAYLOAD_BYTES = 7;
const corrupt = { kind: 'invalid', detail: expect.stringContaining('compressed body') };

test('zstd is known from Node 22.15 on, in the line of 23 from 23.8', () => {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const has = major > 23 || (major === 23 && minor >= 8) || (major === 22 && minor >= 15);
  expect([HAS_ZSTD, RUNTIME_HAS_ZSTD]).toEqual([has, has]);
});

describe('a zstd body', () => {
  test('may be many frames, but not without end', async () => {
    const empty = framed(Buffer.alloc(0));
    const body = (count: number): Buffer =>
      Buffer.concat([framed(ENVELOPE), ...Array.from({ length: count - 1 }, () => empty)]);
    await expectEverywhere(body(ZSTD_FRAMES_MAX), PAYLOAD_BYTES);
    await expectEverywhere(body(ZSTD_FRAMES_MAX + 1), corrupt);
  });

  test('of frames that give nothing is an empty body', async () => {
    for (const body of [zstdSkippable('xyz'), framed(Buffer.alloc(0))])
      await expectEverywhere(body, { kind: 'invalid', detail: 'the body is empty' });
  });

  test('is invalid when its second frame is cut anywhere', async () => {
    for (const second of [framed(ENVELOPE), zstdSkippable('xyz')])
      for (let length = 1; length < second.length; length++)
        await expectEverywhere(Buffer.concat([framed(ENVELOPE), second.subarray(0, length)]), corrupt);
  });

  test('may have a window of 8 MiB and no larger', async () => {
    await expectEverywhere(zstdFrame([raw(ENVELOPE)], { head: [13 << 3] }), PAYLOAD_BYTES);
    for (const head of [[(13 << 3) + 1], [17 << 3], [31 << 3]])
      await expectEverywhere(zstdFrame([raw(ENVELOPE)], { head }), corrupt);
  });

  test('may state a size, which is its window and must be what it gives', async () => {
    const stating = (bytes: number): Buffer => {
      const size = Buffer.alloc(8);
      size.writeBigUInt64LE(BigInt(bytes));
      return zstdFrame([raw(ENVELOPE)], { flags: 0xe0, head: [...size] });
    };
    await expectEverywhere(stating(ENVELOPE.length), PAYLOAD_BYTES);
    for (const wrong of [0, ENVELOPE.length - 1, ENVELOPE.length + 1, ZSTD_WINDOW_BYTES_MAX + 1, 2 ** 40])
      await expectEverywhere(stating(wrong), corrupt);
  });

  test.each([
    ['another magic number', Buffer.from('28b52ffe00380100006161', 'hex')],
    ['a dictionary', zstdFrame([raw(ENVELOPE)], { flags: 1, head: [0x38, 7] })],
    ['a reserved bit', zstdFrame([raw(ENVELOPE)], { flags: 8 })],
    ['a reserved block type', zstdFrame([raw(ENVELOPE, false), zstdBlock(BLOCK.reserved, 1, bytesOf('a'))])],
    ['a block over 128 KiB', zstdFrame([zstdBlock(BLOCK.rle, 128 * 1024 + 1, bytesOf('a'))])],
    ['a block over its window', zstdFrame([zstdBlock(BLOCK.rle, 1025, bytesOf('a'))], { head: [0] })],
    ['literals beyond the block', zstdFrame([zstdBlock(BLOCK.compressed, 3, Buffer.of(0xf8, 0, 0))])],
    [
      'a wrong checksum',
      Buffer.concat([zstdFrame([raw(ENVELOPE)], { flags: 4 }), Buffer.from('00000000', 'hex')]),
    ],
  ])('with %s is invalid', (_title, body) => expectEverywhere(body, corrupt));

  test('whose few bytes ask for gigabytes of copying is invalid', async () => {
    // 98,047 sequences with matches of 65,539 and of 34 bytes, all tables of one symbol.
    for (const matchCode of [52, 31]) {
      const block = Buffer.of(0x08, 0x61, 0xff, 0xff, 0xff, 0x54, 0, 0, matchCode, 0x01);
      const blocks = [raw(ENVELOPE, false), zstdBlock(BLOCK.compressed, block.length, block)];
      await expectEverywhere(zstdFrame(blocks), corrupt);
    }
  });

  test('that gives more than the cap is too large, though all its frames are small', async () => {
    const frame = zstdBlocks(Buffer.alloc(1024 * 1024, 97));
    const body = Buffer.concat([framed(bytesOf('{}\n{"type":"log"}\n')), ...Array(100).fill(frame)]);
    await expectEverywhere(body, { kind: 'too_large' });
  });
});

test('the window of a zstd inflater is charged as it fills, up to its bound', async () => {
  const run = zstdBlock(BLOCK.rle, 128 * 1024, bytesOf('a'), false);
  const head = zstdFrame([], { head: [13 << 3] });
  if (!RUNTIME_HAS_ZSTD) return expect(await verdictOf([Buffer.concat([head, run])])).toEqual(UNKNOWN);
  const budget = testBudget({ spoolDir });
  let given = 0;
  const inflater = new Inflater('zstd', {
    holding: new Holding(budget, new Slotted()),
    onBytes: (bytes) => {
      given += bytes.length;
    },
    onEnd: () => expect.unreachable('the frame goes on'),
    onFailed: (_kind, detail) => expect.unreachable(detail),
    onBehind: () => undefined,
  });
  inflater.feed(head);
  const ENGINE_AND_BLOCKS_BYTES = 512 * 1024;
  for (let blocks = 1; blocks <= 160; blocks++) {
    inflater.feed(run);
    while (given < blocks * 128 * 1024) await new Promise((resolve) => setImmediate(resolve));
    const window = Math.min(given, ZSTD_WINDOW_BYTES_MAX);
    expect(Math.abs(budget.heldBytes - window), `${blocks} blocks`).toBeLessThan(ENGINE_AND_BLOCKS_BYTES);
  }
  inflater.destroy();
  expect(budget.heldBytes).toBe(0);
});

describe('the frames of a zstd body', () => {
  /** The ends of its frames, fed as `pass` asks for. */
  function endsOf(body: Buffer): number[] {
    const frames = new ZstdFrames();
    const ends: number[] = [];
    for (let at = 0; at < body.length; ) {
      at += frames.pass(body.subarray(at));
      ends.push(at);
    }
    expect(frames.isComplete).toBe(true);
    return ends;
  }

  test('end where their last block or their checksum does', () => {
    const frames = [
      zstdBlocks(Buffer.alloc(300_000, 7)),
      zstdSkippable('abc'),
      zstdFrame([raw(bytesOf('abc'), false), raw(Buffer.alloc(0))]),
      Buffer.concat([zstdFrame([raw(bytesOf('abc'))], { flags: 4 }), Buffer.alloc(4)]),
      zstdFrame([raw(bytesOf('abc'))], { flags: 0x20, head: [3] }),
      zstdFrame([raw(bytesOf('abc'))], { flags: 0x43, head: [0x38, 1, 2, 3, 4, 3, 0] }),
      zstdFrame([raw(bytesOf('abc'))], { flags: 0x82, head: [0x38, 1, 2, 3, 0, 0, 0] }),
      zstdFrame([raw(bytesOf('abc'))], { flags: 0xc0, head: [0x38, 3, 0, 0, 0, 0, 0, 0, 0] }),
    ];
    let end = 0;
    const expected = frames.map((frame) => (end += frame.length));
    expect(endsOf(Buffer.concat(frames))).toEqual(expected);
  });

  test('of the reference implementation are found, with any level, checksum and window', () => {
    const random = seeded(3);
    const body = Buffer.from(Array.from({ length: 300_000 }, () => 97 + Math.floor(random() ** 4 * 25)));
    const { constants } = zlib as unknown as { constants: Record<string, number> };
    const levels = RUNTIME_HAS_ZSTD ? [-5, 1, 3, 9, 13] : [];
    const frames = levels.flatMap((level) =>
      [0, 1].map((checksum) =>
        zstdCompressSync(body, {
          params: {
            [constants.ZSTD_c_compressionLevel as number]: level,
            [constants.ZSTD_c_checksumFlag as number]: checksum,
            [constants.ZSTD_c_windowLog as number]: level < 0 ? 10 : 10 + level,
          },
        }),
      ),
    );
    // Nothing, and a compressed block, each with a checksum.
    frames.push(Buffer.from('28b52ffd240001000099e9d851', 'hex'), Buffer.from(COMPRESSED, 'hex'));
    let end = 0;
    const expected = frames.map((frame) => (end += frame.length));
    expect(endsOf(Buffer.concat(frames))).toEqual(expected);
  });
});
