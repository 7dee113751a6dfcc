/**
 * Content-Encoding. A small body that inflates to little is inflated at once. Another one that is
 * whole waits for its turn (inflation-queue.ts), and a large one is inflated while it arrives: both
 * by an Inflater, which takes chunks as they come, hands out bounded pieces, and can be stopped at
 * any of them. So a bomb costs no more than the cap.
 *
 * zlib stops silently at the first byte after a finished stream, which is invalid here. So the
 * bytes that it took are compared with the bytes that it was given.
 */
import zlib, { type BrotliDecompress, type Gunzip, type Zlib, type ZlibOptions } from 'node:zlib';
import { ZstdFrames } from '../../../lib/zstd-frames.ts';
import { SYNC_INFLATED_BYTES_MAX, ZSTD_WINDOW_BYTES_MAX } from '../../../limits.ts';
import { ownCopy } from '../byte-queue.ts';

export type Compression = 'gzip' | 'deflate' | 'br' | 'zstd';
export type Encoding = Compression | 'none';
export type ZlibStream = (BrotliDecompress | Gunzip) & Zlib;

type ZstdOptions = Pick<ZlibOptions, 'chunkSize' | 'info' | 'maxOutputLength'> & {
  params: Record<number, number>;
};
/** zlib has zstd from Node 22.15 on; the types are those of Node 20. */
const zstd = zlib as unknown as {
  createZstdDecompress(options: ZstdOptions): ZlibStream;
  zstdDecompressSync(body: Uint8Array, options: ZstdOptions): unknown;
  constants: { ZSTD_d_windowLogMax: number };
};
export const HAS_ZSTD = 'createZstdDecompress' in zlib;

/** `UTF-8` is what some older clients say and mean nothing by. */
const ENCODINGS: ReadonlyMap<string, Encoding> = new Map([
  ['', 'none'],
  ['identity', 'none'],
  ['utf-8', 'none'],
  ['gzip', 'gzip'],
  ['x-gzip', 'gzip'],
  ['deflate', 'deflate'],
  ['br', 'br'],
  ...(HAS_ZSTD ? ([['zstd', 'zstd']] as const) : []),
]);

/**
 * @param header raw Content-Encoding; '' when absent.
 * @returns undefined for an unknown encoding, and for a list of several
 */
export const parseEncoding = (header: string): Encoding | undefined =>
  ENCODINGS.get(header.trim().toLowerCase());

/**
 * Windows over 16 MiB are an extension of brotli that no HTTP client may use (RFC 7932 section
 * 9.1).
 */
const BROTLI_OPTIONS = { params: { [zlib.constants.BROTLI_DECODER_PARAM_LARGE_WINDOW]: 0 } };
/** A frame that asks for a larger window is corrupt. */
const ZSTD_OPTIONS = { params: { [zstd.constants.ZSTD_d_windowLogMax]: Math.log2(ZSTD_WINDOW_BYTES_MAX) } };
/**
 * Each output buffer is garbage once it was copied, and counts while 400 engines are under way.
 * Below 32 KiB, because V8 (Node 20) takes larger ones for a reason to collect the whole heap.
 */
const STREAM_CHUNK_BYTES = 24 * 1024;

/**
 * `deflate` means zlib's wrapping (RFC 9110 section 8.4.1.2), but clients also send the bare
 * stream: the first two bytes tell which.
 */
export const DEFLATE_SNIFF_BYTES = 2;
function isZlibWrapped(begin: Uint8Array): boolean {
  const [cmf = 0, flags = 0] = begin;
  return (cmf & 0x0f) === 8 && (cmf * 256 + flags) % 31 === 0;
}

/** @param begin for deflate the first two bytes of the body */
export function zlibStream(encoding: Compression, begin: Uint8Array): ZlibStream {
  const options = { chunkSize: STREAM_CHUNK_BYTES };
  if (encoding === 'br') return zlib.createBrotliDecompress({ ...options, ...BROTLI_OPTIONS });
  if (encoding === 'zstd') return zstd.createZstdDecompress({ ...options, ...ZSTD_OPTIONS });
  if (encoding === 'gzip') return zlib.createGunzip(options);
  return isZlibWrapped(begin) ? zlib.createInflate(options) : zlib.createInflateRaw(options);
}

export type Inflated = { ok: true; bytes: Buffer } | { ok: false; reason: 'corrupt' | 'stream' };

const GZIP_TRAILER_BYTES = 8;
const { Z_DEFAULT_CHUNK, Z_MIN_CHUNK } = zlib.constants;

/**
 * The inflated size as gzip's last four bytes claim it (RFC 1952, ISIZE); undefined for the other
 * encodings. Only a hint: where it lies, the bounds below still hold.
 */
export function claimedBytes(encoding: Compression, body: Uint8Array): number | undefined {
  if (encoding !== 'gzip' || body.length < GZIP_TRAILER_BYTES) return undefined;
  let size = 0;
  for (let at = body.length - 1; at >= body.length - 4; at--) size = size * 256 + (body[at] as number);
  return size;
}

/** Inflated bytes for each byte of a body that claims no size, until more has come out. */
const USUAL_RATIO = 16;
const UNKNOWN_BYTES_MIN = 2 * SYNC_INFLATED_BYTES_MAX;
/** Inflated bytes of a body, as far as they are known. @param claimed the body's own claim */
export const expectedBytes = (body: Uint8Array, claimed = 0): number =>
  // A body that cannot be packed grows by a little: less than half of its size is no honest claim.
  claimed > body.length / 2 ? claimed : Math.max(UNKNOWN_BYTES_MIN, USUAL_RATIO * body.length);

/**
 * Inflates a whole body at once.
 * @returns `stream` when an Inflater has to: more than SYNC_INFLATED_BYTES_MAX or than the body
 * says would come out, or there are several zstd frames
 */
export function inflateSync(encoding: Compression, body: Uint8Array): Inflated {
  // One that lies is stopped where it said that it ends.
  const bytesMax = claimedBytes(encoding, body) ?? SYNC_INFLATED_BYTES_MAX;
  if (bytesMax > SYNC_INFLATED_BYTES_MAX) return { ok: false, reason: 'stream' };
  if (encoding === 'zstd') {
    const frames = new ZstdFrames();
    if (frames.pass(body) < body.length) return { ok: false, reason: 'stream' };
    if (!frames.isComplete) return { ok: false, reason: 'corrupt' };
  }
  try {
    // One more byte: zlib asks for another buffer when one is full.
    const chunkSize = Math.min(Math.max(bytesMax + 1, Z_MIN_CHUNK), Z_DEFAULT_CHUNK);
    const maxOutputLength = Math.max(1, bytesMax);
    const { buffer, engine } = inflateWithInfo(encoding, body, { maxOutputLength, chunkSize });
    return engine.bytesWritten === body.length
      ? { ok: true, bytes: withoutRoom(buffer, chunkSize) }
      : { ok: false, reason: 'corrupt' };
  } catch (error) {
    const isLarge = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE';
    return { ok: false, reason: isLarge ? 'stream' : 'corrupt' };
  }
}

/**
 * Bytes that zlib has written into a buffer of `chunkSize`: few of them would keep all of it alive,
 * uncounted, while the body waits.
 */
export const withoutRoom = (bytes: Buffer, chunkSize = STREAM_CHUNK_BYTES): Buffer =>
  bytes.length >= chunkSize / 2 ? bytes : ownCopy(bytes);

type WithInfo = { buffer: Buffer; engine: Zlib };

/** @param bounds with zlib's own `chunkSize` of 16 KiB an event costs 3 µs more */
function inflateWithInfo(
  encoding: Compression,
  body: Uint8Array,
  bounds: { maxOutputLength: number; chunkSize: number },
): WithInfo {
  const options = { info: true, ...bounds };
  // With `info` these return both the bytes and the engine, which their types do not know.
  const inflate = (): unknown => {
    if (encoding === 'br') return zlib.brotliDecompressSync(body, { ...options, ...BROTLI_OPTIONS });
    if (encoding === 'zstd') return zstd.zstdDecompressSync(body, { ...options, ...ZSTD_OPTIONS });
    if (encoding === 'gzip') return zlib.gunzipSync(body, options);
    return isZlibWrapped(body) ? zlib.inflateSync(body, options) : zlib.inflateRawSync(body, options);
  };
  return inflate() as WithInfo;
}
