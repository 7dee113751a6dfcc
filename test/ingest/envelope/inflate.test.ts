import { randomBytes } from 'node:crypto';
import { brotliCompressSync, brotliDecompressSync, constants, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { inflateSync } from '../../../src/ingest/envelope/inflate/inflate.ts';
import { SYNC_INFLATED_BYTES_MAX } from '../../../src/limits.ts';
import { failureOf, testBudget } from './bodies.ts';

/** The body with another figure where gzip says what it inflates to. */
function claiming(body: Buffer, bytes: number): Buffer {
  const changed = Buffer.from(body);
  changed.writeUInt32LE(bytes, body.length - 4);
  return changed;
}
const noise = Buffer.alloc(1_000, 0x5a);
/** To inflate up to the bound takes milliseconds. */
const CHEAP_US = 300;
const leftToTheStream = { ok: false, reason: 'stream' };

test('a gzip body that says it is large is left to the stream unread', () => {
  expect(inflateSync('gzip', claiming(noise, SYNC_INFLATED_BYTES_MAX + 1))).toEqual(leftToTheStream);
  expect(inflateSync('gzip', claiming(noise, SYNC_INFLATED_BYTES_MAX))).toEqual({
    ok: false,
    reason: 'corrupt',
  });
});

test('one that is large and says it is small is stopped at the bound', () => {
  const body = gzipSync(Buffer.alloc(2 * SYNC_INFLATED_BYTES_MAX));
  expect(inflateSync('gzip', claiming(body, 10))).toEqual(leftToTheStream);
  const spent = process.cpuUsage();
  for (let count = 0; count < 100; count++) inflateSync('gzip', claiming(body, 10));
  expect(process.cpuUsage(spent).user).toBeLessThan(100 * CHEAP_US);
});

test('one that is small and says it is large is corrupt', async () => {
  const body = gzipSync('{}\n{"type":"event"}\n{}');
  const failure = await failureOf([claiming(body, SYNC_INFLATED_BYTES_MAX + 1)], 'gzip', testBudget());
  expect(failure.kind).toBe('invalid');
});

test.each([
  ['gzip', gzipSync],
  ['deflate', deflateSync],
  ['br', brotliCompressSync],
] as const)('small bodies in %s keep little more memory alive than they have bytes', (encoding, compress) => {
  for (const length of [0, 1, 100, 2_000, 6_000]) {
    const body = compress(Buffer.alloc(length));
    const alive = new Set<ArrayBufferLike>();
    for (let count = 0; count < 200; count++) {
      const inflated = inflateSync(encoding, body);
      if (!inflated.ok) throw new Error(inflated.reason);
      expect(inflated.bytes).toHaveLength(length);
      alive.add(inflated.bytes.buffer);
    }
    const bytes = [...alive].reduce((sum, { byteLength }) => sum + byteLength, 0);
    expect(bytes).toBeLessThan(200 * length * 1.5 + 2 * Buffer.poolSize);
  }
});

test.each([4_095, 4_096, 16_382, 16_383, 16_384, 16_385, 100_000])(
  'a gzip body of %i bytes comes out whole',
  (length) => {
    const bytes = Buffer.from(Array.from({ length }, (_, at) => at % 251));
    expect(inflateSync('gzip', gzipSync(bytes))).toEqual({ ok: true, bytes });
  },
);

describe('brotli with a large window', () => {
  const windowed = (body: Uint8Array, bits: number): Buffer =>
    brotliCompressSync(body, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 5, [constants.BROTLI_PARAM_LGWIN]: bits },
    });

  test('is given up before it has filled the window', () => {
    // These bytes turn out to be corrupt once they have filled their window of 16 MiB.
    const body = Buffer.from('9fffffef002400e2b14072efdf05', 'hex');
    expect(() => brotliDecompressSync(body, { maxOutputLength: SYNC_INFLATED_BYTES_MAX })).toThrow(
      'Decompression failed',
    );
    expect(inflateSync('br', body)).toEqual(leftToTheStream);
  });

  test('comes out whole up to the bound', () => {
    // The second half copies from the first, over nearly the whole distance that a window has.
    const half = randomBytes(SYNC_INFLATED_BYTES_MAX / 2 - 8);
    const whole = Buffer.concat([half, half]);
    for (const bits of [18, 20, 21, 22, 23, 24]) {
      const inflated = inflateSync('br', windowed(whole, bits));
      expect(inflated.ok && inflated.bytes.equals(whole)).toBe(true);
      expect(inflateSync('br', windowed(Buffer.concat([whole, Buffer.of(0)]), bits))).toEqual(
        leftToTheStream,
      );
    }
  });
});
