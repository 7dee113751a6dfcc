/**
 * Content-Encoding (contract part 2, Body). A small body that came in one piece is inflated at
 * once. Any other goes through a Decoder, which takes chunks as they come, hands out bounded
 * pieces, and can be stopped at any of them: a bomb costs no more than the cap.
 *
 * zlib stops silently at the first byte after a finished stream, which is invalid here. So the
 * bytes that it took are compared with the bytes that it was given.
 */
import {
  type BrotliDecompress,
  brotliDecompressSync,
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  gunzipSync,
  inflateRawSync,
  type Zlib,
  inflateSync as zlibInflateSync,
} from 'node:zlib';
import { SYNC_INFLATED_BYTES_MAX } from '../limits.ts';

/** The encodings that zlib decodes. */
export type ZlibEncoding = 'gzip' | 'deflate' | 'br';
export type Compression = ZlibEncoding | 'zstd';
export type Encoding = Compression | 'none';
export type ZlibStream = (BrotliDecompress | ReturnType<typeof createGunzip>) & Zlib;

/** `UTF-8` is what some older clients say and mean nothing by. */
const ENCODINGS: ReadonlyMap<string, Encoding> = new Map([
  ['', 'none'],
  ['identity', 'none'],
  ['utf-8', 'none'],
  ['gzip', 'gzip'],
  ['x-gzip', 'gzip'],
  ['deflate', 'deflate'],
  ['br', 'br'],
  ['zstd', 'zstd'],
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
const BROTLI_OPTIONS = { params: { [constants.BROTLI_DECODER_PARAM_LARGE_WINDOW]: 0 } };
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
export function zlibStream(encoding: ZlibEncoding, begin: Uint8Array): ZlibStream {
  const options = { chunkSize: STREAM_CHUNK_BYTES };
  if (encoding === 'br') return createBrotliDecompress({ ...options, ...BROTLI_OPTIONS });
  if (encoding === 'gzip') return createGunzip(options);
  return isZlibWrapped(begin) ? createInflate(options) : createInflateRaw(options);
}

export type Inflated = { ok: true; bytes: Buffer } | { ok: false; reason: 'corrupt' | 'large' };

const GZIP_TRAILER_BYTES = 8;

/**
 * The inflated length that gzip names in its last four bytes (RFC 1952, ISIZE). Only a hint: where
 * it is false, the bounds below hold.
 */
function claimsToBeLarge(encoding: ZlibEncoding, body: Uint8Array): boolean {
  if (encoding !== 'gzip' || body.length < GZIP_TRAILER_BYTES) return false;
  const size = new DataView(body.buffer, body.byteOffset + body.length - 4, 4).getUint32(0, true);
  return size > SYNC_INFLATED_BYTES_MAX;
}

/**
 * Inflates a whole body at once.
 * @returns `large` when more than SYNC_INFLATED_BYTES_MAX would come out: take the stream then
 */
export function inflateSync(encoding: ZlibEncoding, body: Uint8Array): Inflated {
  if (claimsToBeLarge(encoding, body)) return { ok: false, reason: 'large' };
  try {
    const { buffer, engine } = inflateWithInfo(encoding, body);
    return engine.bytesWritten === body.length
      ? { ok: true, bytes: buffer }
      : { ok: false, reason: 'corrupt' };
  } catch (error) {
    const isLarge = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE';
    return { ok: false, reason: isLarge ? 'large' : 'corrupt' };
  }
}

type WithInfo = { buffer: Buffer; engine: Zlib };

function inflateWithInfo(encoding: ZlibEncoding, body: Uint8Array): WithInfo {
  const options = { info: true, maxOutputLength: SYNC_INFLATED_BYTES_MAX };
  // With `info` these return both the bytes and the engine, which their types do not know.
  const inflate = (): unknown => {
    if (encoding === 'br') return brotliDecompressSync(body, { ...options, ...BROTLI_OPTIONS });
    if (encoding === 'gzip') return gunzipSync(body, options);
    return isZlibWrapped(body) ? zlibInflateSync(body, options) : inflateRawSync(body, options);
  };
  return inflate() as WithInfo;
}
