import { rmSync } from 'node:fs';
import { brotliCompressSync, constants, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newEventReader } from '../../../src/ingest/envelope/json-reader.ts';
import type { UploadBudget, UploadFailure } from '../../../src/ingest/envelope/upload.ts';
import { SYNC_INFLATE_BYTES_MAX } from '../../../src/limits.ts';
import { rounds } from '../../support/rounds.ts';
import { temporaryFolder } from '../../support/servers.ts';
import * as bodies from './bodies.ts';
import {
  bytesOf,
  cutAtRandom,
  cutEvery,
  encodeEnvelope,
  eventBody,
  feedAll,
  seeded,
  shapeOf,
  singleBytes,
  startUpload,
  testBudget,
} from './bodies.ts';
import { RUNTIME_HAS_ZSTD, zstdBlocks, zstdCompressSync, zstdSkippable } from './zstd-bytes.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('compressed');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));
const budgetOf = (caps: Partial<{ maxBodyBytes: number; maxDecompressedBytes: number }> = {}): UploadBudget =>
  testBudget({ spoolDir, ...caps });

type Compress = (body: Uint8Array) => Buffer;
/** As well as it can where that is quick. */
const brotli = (body: Uint8Array, params: Record<number, number> = {}): Buffer =>
  brotliCompressSync(body, {
    params: { [constants.BROTLI_PARAM_QUALITY]: body.length < 10_000 ? 11 : 4, ...params },
  });
const ENCODINGS: [encoding: string, title: string, compress: Compress][] = [
  ['gzip', 'gzip', (body) => gzipSync(body)],
  [
    'x-gzip',
    'gzip of two members',
    (body) => Buffer.concat([gzipSync(body.subarray(0, 9)), gzipSync(body.subarray(9))]),
  ],
  ['deflate', 'zlib', (body) => deflateSync(body)],
  ['deflate', 'zlib with a small window', (body) => deflateSync(body, { windowBits: 9, level: 1 })],
  ['deflate', 'a bare deflate stream', (body) => deflateRawSync(body)],
  ['deflate', 'a bare deflate stream of stored blocks', (body) => deflateRawSync(body, { level: 0 })],
  ['br', 'brotli', (body) => brotli(body)],
  ['br', 'brotli with the largest window', (body) => brotli(body, { [constants.BROTLI_PARAM_LGWIN]: 24 })],
];
const ZSTD_ENCODINGS: typeof ENCODINGS = [
  ['zstd', 'zstd', (body) => zstdCompressSync(body)],
  ['zstd', 'zstd of raw blocks and runs', (body) => zstdBlocks(body)],
  [
    'zstd',
    'zstd of three frames and two to be skipped',
    (body) =>
      Buffer.concat([
        zstdSkippable('index'),
        zstdSkippable(''),
        zstdCompressSync(body.subarray(0, 9)),
        zstdCompressSync(Buffer.alloc(0)),
        zstdCompressSync(body.subarray(9)),
      ]),
  ],
];
if (RUNTIME_HAS_ZSTD) ENCODINGS.push(...ZSTD_ENCODINGS);

const SMALL = encodeEnvelope({}, [
  { header: { type: 'session' }, payload: bytesOf('{}') },
  { header: { type: 'log', length: 8 }, payload: bytesOf('["€"\n]') },
]);
const LARGE = eventBody(700_000);
/** What is cut besides has a stream of its own, which is dear: each such byte, or a part of them. */
const STEP = rounds(1, 4);

async function outcome(chunks: readonly Buffer[], encoding: string, budget = budgetOf()): Promise<object> {
  const { upload, result } = startUpload(encoding, budget);
  feedAll(upload, chunks);
  const verdict = await result;
  const shape = verdict.ok ? await shapeOf(verdict.envelope) : verdict.failure;
  upload.dispose();
  expect([budget.heldBytes, budget.spooledBytes], 'left after dispose').toEqual([0, 0]);
  return shape;
}

const failureOf = (
  chunks: readonly Buffer[],
  encoding: string,
  budget = budgetOf(),
): Promise<UploadFailure> => bodies.failureOf(chunks, encoding, budget);

describe.each(ENCODINGS)('Content-Encoding %s, %s', (encoding, _title, compress) => {
  test('gives what the plain body gives, whole and cut', async () => {
    const expected = await outcome([SMALL], '');
    expect(expected).toHaveProperty('items');
    const body = compress(SMALL);
    expect(await outcome([body], encoding)).toEqual(expected);
    expect(await outcome(singleBytes(body), encoding)).toEqual(expected);
    for (let seed = 0; seed < rounds(50, 15); seed++)
      expect(await outcome(cutAtRandom(body, seeded(seed)), encoding), `seed ${seed}`).toEqual(expected);
  });

  test('gives a large body, whole and cut', async () => {
    const expected = await outcome([LARGE], '');
    const body = compress(LARGE);
    expect(body.length).toBeGreaterThan(SYNC_INFLATE_BYTES_MAX);
    for (const chunks of [
      [body],
      cutEvery(body, 16_384),
      cutEvery(body, 1_000),
      cutAtRandom(body, seeded(1), 40),
    ])
      expect(await outcome(chunks, encoding)).toEqual(expected);
  });

  test('that is cut short is invalid', async () => {
    const body = compress(SMALL);
    for (let length = 1; length < body.length; length++) {
      expect(await failureOf([body.subarray(0, length)], encoding), `${length} bytes`).toMatchObject({
        kind: 'invalid',
      });
      if (length % STEP > 0) continue;
      const cut = cutEvery(body.subarray(0, length), 7);
      expect(await failureOf(cut, encoding), `${length} bytes, cut`).toMatchObject({ kind: 'invalid' });
    }
  });

  test('with other bytes behind it is invalid', async () => {
    for (const tail of ['x', '\n', '\0', 'garbage behind the end']) {
      const body = Buffer.concat([compress(SMALL), bytesOf(tail)]);
      for (const chunks of [[body], singleBytes(body), [compress(SMALL), bytesOf(tail)]])
        expect(await failureOf(chunks, encoding), JSON.stringify(tail)).toMatchObject({ kind: 'invalid' });
    }
  });

  test('of a body that is no envelope is invalid', async () => {
    expect(await failureOf([compress(bytesOf('{}\n\n'))], encoding)).toEqual({
      kind: 'invalid',
      detail: 'an item header is no JSON object',
    });
  });

  test('that inflates beyond the cap is too large, also when it came in one chunk', async () => {
    const body = compress(Buffer.concat([bytesOf('{}\n{"type":"log"}\n'), Buffer.alloc(3_000_000, 97)]));
    for (const chunks of [[body], cutEvery(body, 1_000)])
      expect(await failureOf(chunks, encoding, budgetOf({ maxDecompressedBytes: 2_999_999 }))).toEqual({
        kind: 'too_large',
        detail: 'the body inflates to over 2999999 bytes',
      });
    const fits = budgetOf({ maxDecompressedBytes: 3_000_018 });
    expect(await outcome([body], encoding, fits)).toMatchObject({ bytes: 3_000_000 });
  });

  test('may be disposed of at any moment', async () => {
    const body = compress(LARGE);
    for (let seed = 0; seed < 20; seed++) {
      const { upload, budget } = startUpload(encoding, budgetOf());
      const chunks = cutAtRandom(body, seeded(seed), 5);
      for (const chunk of chunks.slice(0, 1 + (seed % 6))) {
        upload.feed(chunk);
        if (seed % 2 === 0) await new Promise((resolve) => setImmediate(resolve));
      }
      if (seed % 3 === 0) upload.end();
      upload.dispose();
      expect([budget.heldBytes, budget.spooledBytes], `seed ${seed}`).toEqual([0, 0]);
    }
  });

  test('with any byte flipped has the same shape, another one or a reason', async () => {
    const body = compress(SMALL);
    for (let at = 0; at < body.length; at++) {
      const flipped = Buffer.from(body);
      flipped[at] = (flipped[at] as number) ^ (1 << (at % 8));
      const whole = await outcome([flipped], encoding);
      expect('kind' in whole ? (whole as UploadFailure).kind : 'taken').toMatch(/^(invalid|taken)$/);
      if (at % STEP > 0) continue;
      const cut = await outcome(cutEvery(flipped, 5), encoding);
      expect('kind' in cut, `byte ${at}`).toBe('kind' in whole);
    }
  });
});

describe('base64, without a Content-Encoding', () => {
  const event = bytesOf(`{"event_id":"${bodies.EVENT_ID}","message":"größe"}`);
  const large = bytesOf(JSON.stringify({ message: LARGE.toString('latin1') }));
  const plain = (body: Buffer): Buffer => bytesOf(body.toString('base64'));
  const base64 = (body: Buffer): Buffer => plain(deflateSync(body));
  const uploaded = async (chunks: readonly Buffer[], budget = budgetOf(), mayBeBase64 = true) => {
    const of = { newReader: newEventReader, mayBeBase64 };
    const result = await bodies.uploadOf(chunks, '', budget, of);
    return result.ok ? await shapeOf(result.envelope) : result.failure;
  };

  test.each([
    ['a zlib stream', 'small', event, base64],
    ['a zlib stream', 'large', large, base64],
    ['JSON', 'small', event, plain],
    ['JSON', 'large', large, plain],
    ['JSON', 'tiny', bytesOf('{}'), plain],
  ])('of %s gives what the plain body gives, whole and cut: a %s event', async (_of, _size, body, encode) => {
    const expected = await uploaded([body]);
    expect(expected).toHaveProperty('items');
    const text = encode(body);
    for (const chunks of [
      [text],
      cutEvery(text, 1_000),
      cutAtRandom(text, seeded(1), 40),
      [bytesOf(`${text}`.replaceAll(/.{60}/g, '$&\n'))],
      [bytesOf(`${text}`.replaceAll('=', ''))],
    ])
      expect(await uploaded(chunks)).toEqual(expected);
    if (body === event) expect(await uploaded(singleBytes(text))).toEqual(expected);
  });

  test('that is cut short, corrupt or no JSON is invalid', async () => {
    const text = base64(event);
    for (const body of [text.subarray(0, -8), text.subarray(0, 3), bytesOf(`eJ${text}`), bytesOf('event=1')])
      expect(await uploaded([body])).toEqual({ kind: 'invalid', detail: 'the compressed body is corrupt' });
    expect(await uploaded([base64(bytesOf('[]'))])).toMatchObject({ detail: 'the body is no JSON object' });
  });

  test('that inflates beyond the cap is too large', async () => {
    const bomb = base64(bytesOf(`{"a":"${'a'.repeat(3_000_000)}"}`));
    for (const chunks of [[bomb], cutEvery(bomb, 1_000)])
      expect(await uploaded(chunks, budgetOf({ maxDecompressedBytes: 2_000_000 }))).toMatchObject({
        kind: 'too_large',
      });
  });

  test('is read where the endpoint takes it alone', async () => {
    expect(await uploaded([base64(event)], budgetOf(), false)).toMatchObject({
      detail: 'the body is no JSON object',
    });
  });
});

describe('Content-Encoding', () => {
  test.each(['', 'identity', 'Identity', 'UTF-8', 'utf-8', ' '])('%j is no compression', async (encoding) => {
    expect(await outcome([SMALL], encoding)).toEqual(await outcome([SMALL], ''));
  });

  test.each(['GZIP', ' gzip ', 'X-Gzip'])('%j is gzip', async (encoding) => {
    expect(await outcome([gzipSync(SMALL)], encoding)).toEqual(await outcome([SMALL], ''));
  });

  test.each(['compress', 'gzip, br', 'gzip,gzip', 'lzma', 'constructor', '__proto__'])(
    '%j is invalid',
    async (encoding) => {
      expect(await failureOf([SMALL], encoding)).toEqual({
        kind: 'invalid',
        detail: 'the content encoding is unknown',
      });
      expect(await failureOf([], encoding)).toEqual({
        kind: 'invalid',
        detail: 'the content encoding is unknown',
      });
    },
  );

  test.each(['gzip', 'deflate', 'br', 'zstd'])('%s of no bytes at all is invalid', async (encoding) => {
    expect((await failureOf([], encoding)).kind).toBe('invalid');
  });
});
