/**
 * Reads Content-Encoding, and inflates small bodies that inflate to little. Any other compressed
 * body is inflated by an Inflater: a body that is whole waits for its turn (inflation-queue.ts), a
 * large one is inflated while it arrives. An Inflater hands out bounded pieces and can be stopped
 * after any piece. So a bomb (a small body that inflates to very much) costs no more than the bound
 * of inflated bytes allows.
 *
 * zlib stops silently at the first byte after a finished stream. Such a byte is invalid here, so
 * the number of bytes that zlib took is compared with the number that it was given.
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
/**
 * The module zlib, typed with its functions for zstd. Node has them from 22.15 on, but the types
 * here are those of Node 20.
 */
const zstd = zlib as unknown as {
  createZstdDecompress(options: ZstdOptions): ZlibStream;
  zstdDecompressSync(body: Uint8Array, options: ZstdOptions): unknown;
  constants: { ZSTD_d_windowLogMax: number };
};
export const HAS_ZSTD = 'createZstdDecompress' in zlib;

/** Encodings by the value of the header. Some older clients say `UTF-8` and mean no encoding. */
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
 * Parses Content-Encoding.
 * @param header its raw value; '' when absent
 * @returns undefined for an unknown encoding, and for a list of several
 */
export const parseEncoding = (header: string): Encoding | undefined =>
  ENCODINGS.get(header.trim().toLowerCase());

/**
 * The first character of base64 of a JSON object, and of base64 of a stream in zlib's wrapping. A
 * JSON object that is not in base64 never begins with it.
 */
const BASE64_BEGIN = 'e'.charCodeAt(0);
/** Whether a body that names no encoding begins as base64. */
export const isBase64Begin = (body: Uint8Array): boolean => body[0] === BASE64_BEGIN;

/**
 * Decodes base64 that comes in chunks. It does not check the text: text that is not base64 gives
 * bytes that zlib refuses.
 */
export class Base64Decoder {
  /** Base64 characters at the end of the last chunk that do not make a complete group of four. */
  #group = '';

  decode(chunk: Uint8Array): Buffer {
    const text = this.#group + Buffer.from(chunk).toString('latin1').replaceAll(/\s+/g, '');
    const end = text.length - (text.length % 4);
    this.#group = text.slice(end);
    return Buffer.from(text.slice(0, end), 'base64');
  }

  /**
   * Ends the text.
   * @returns the bytes of the last group, if the text has no padding; else none
   */
  end(): Buffer {
    return Buffer.from(this.#group, 'base64');
  }
}

/**
 * Forbids windows over 16 MiB, an extension of brotli that no HTTP client may use (RFC 7932 section
 * 9.1).
 */
const BROTLI_OPTIONS = { params: { [zlib.constants.BROTLI_DECODER_PARAM_LARGE_WINDOW]: 0 } };
/**
 * Inflated bytes of brotli up to which a window of 1 MiB is enough: a window reaches back 16 bytes
 * less than its size (RFC 7932 section 9.1), so up to here it reaches every earlier byte.
 */
const BROTLI_SYNC_BYTES_MAX = SYNC_INFLATED_BYTES_MAX - 16;
/**
 * Returns a brotli body whose window is at most 1 MiB. The first four bits of a body give the size
 * of its window; if the window is larger, they are replaced in a copy. Brotli fills its window
 * before anything comes out, whatever the bound of the output, and 16 MiB take the event loop 30
 * ms. The smaller window does not change the first BROTLI_SYNC_BYTES_MAX inflated bytes.
 */
function withSmallWindow(body: Uint8Array): Uint8Array {
  const [first = 0] = body;
  const isLarger = first % 2 === 1 && first % 16 > 7;
  if (!isLarger) return body;
  const changed = Buffer.from(body);
  changed[0] = first - (first % 16) + 7;
  return changed;
}
/** Bounds the window of zstd. A frame that asks for a larger window counts as corrupt. */
const ZSTD_OPTIONS = { params: { [zstd.constants.ZSTD_d_windowLogMax]: Math.log2(ZSTD_WINDOW_BYTES_MAX) } };
/**
 * Size of zlib's output buffers. It is below 32 KiB, because larger buffers make V8 (Node 20)
 * collect the whole heap.
 */
const STREAM_CHUNK_BYTES = 24 * 1024;

/**
 * Number of bytes at the start of a `deflate` body that tell whether it has zlib's wrapping. RFC
 * 9110 section 8.4.1.2 defines `deflate` as a stream in zlib's wrapping, but some clients send the
 * bare stream.
 */
export const DEFLATE_SNIFF_BYTES = 2;
function isZlibWrapped(begin: Uint8Array): boolean {
  const [cmf = 0, flags = 0] = begin;
  return (cmf & 0x0f) === 8 && (cmf * 256 + flags) % 31 === 0;
}

/**
 * Makes zlib's engine for an encoding.
 * @param begin for deflate the first two bytes of the body
 */
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
 * Returns the inflated size that gzip's last four bytes claim (RFC 1952, ISIZE); undefined for
 * other encodings, and for a body that is too short to have these bytes. The claim is only a hint:
 * when it is false, the bounds of {@link inflateSync} still hold.
 */
export function claimedBytes(encoding: Compression, body: Uint8Array): number | undefined {
  if (encoding !== 'gzip' || body.length < GZIP_TRAILER_BYTES) return undefined;
  let size = 0;
  for (let at = body.length - 1; at >= body.length - 4; at--) size = size * 256 + (body[at] as number);
  return size;
}

/**
 * Inflated bytes that are expected for each byte of a body that claims no size. When more comes
 * out, the body counts as the largest allowed (inflation-queue.ts).
 */
const USUAL_RATIO = 16;
const UNKNOWN_BYTES_MIN = 2 * SYNC_INFLATED_BYTES_MAX;
/**
 * Returns the inflated size to expect of a body, in bytes: its claim, or an estimate when it claims
 * nothing or too little.
 * @param claimed the body's own claim
 */
export const expectedBytes = (body: Uint8Array, claimed = 0): number =>
  // Even a body that cannot be compressed becomes only a few bytes larger. So a claim of less than
  // half of the compressed size is not honest.
  claimed > body.length / 2 ? claimed : Math.max(UNKNOWN_BYTES_MIN, USUAL_RATIO * body.length);

/**
 * Inflates a whole body at once.
 * @returns the reason `stream` when an Inflater must inflate the body. There are three cases: more
 * would come out than SYNC_INFLATED_BYTES_MAX or than the body claims; a brotli body seems corrupt
 * after its window was made smaller; there are several zstd frames
 */
export function inflateSync(encoding: Compression, body: Uint8Array): Inflated {
  // A body that inflates to more than it claims is stopped at the size of its claim.
  const unclaimedMax = encoding === 'br' ? BROTLI_SYNC_BYTES_MAX : SYNC_INFLATED_BYTES_MAX;
  const bytesMax = claimedBytes(encoding, body) ?? unclaimedMax;
  if (bytesMax > SYNC_INFLATED_BYTES_MAX) return { ok: false, reason: 'stream' };
  if (encoding === 'zstd') {
    const frames = new ZstdFrames();
    if (frames.pass(body) < body.length) return { ok: false, reason: 'stream' };
    if (!frames.isComplete) return { ok: false, reason: 'corrupt' };
  }
  const sent = encoding === 'br' ? withSmallWindow(body) : body;
  try {
    // The buffer is one byte larger than needed, because zlib asks for another buffer when one is
    // full.
    const chunkSize = Math.min(Math.max(bytesMax + 1, Z_MIN_CHUNK), Z_DEFAULT_CHUNK);
    const maxOutputLength = Math.max(1, bytesMax);
    const { buffer, engine } = inflateWithInfo(encoding, sent, { maxOutputLength, chunkSize });
    return engine.bytesWritten === body.length
      ? { ok: true, bytes: withoutRoom(buffer, chunkSize) }
      : { ok: false, reason: 'corrupt' };
  } catch (error) {
    const isLarge = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE';
    // A sound body that inflates to more than 1 MiB may seem corrupt when its window was made
    // smaller.
    return { ok: false, reason: isLarge || sent !== body ? 'stream' : 'corrupt' };
  }
}

/**
 * Returns bytes that zlib has written into a buffer of `chunkSize`, copied if they are few. Without
 * the copy a few bytes would keep the whole buffer alive, uncounted, while the body waits.
 */
export const withoutRoom = (bytes: Buffer, chunkSize = STREAM_CHUNK_BYTES): Buffer =>
  bytes.length >= chunkSize / 2 ? bytes : ownCopy(bytes);

type WithInfo = { buffer: Buffer; engine: Zlib };

/**
 * Inflates a body, and returns zlib's engine with the bytes.
 * @param bounds bounds of the output. With zlib's own `chunkSize` of 16 KiB, an event takes 3 µs
 * more than with one that fits its output
 */
function inflateWithInfo(
  encoding: Compression,
  body: Uint8Array,
  bounds: { maxOutputLength: number; chunkSize: number },
): WithInfo {
  const options = { info: true, ...bounds };
  // With `info` these functions return both the bytes and the engine; their types do not say so.
  const inflate = (): unknown => {
    if (encoding === 'br') return zlib.brotliDecompressSync(body, { ...options, ...BROTLI_OPTIONS });
    if (encoding === 'zstd') return zstd.zstdDecompressSync(body, { ...options, ...ZSTD_OPTIONS });
    if (encoding === 'gzip') return zlib.gunzipSync(body, options);
    return isZlibWrapped(body) ? zlib.inflateSync(body, options) : zlib.inflateRawSync(body, options);
  };
  return inflate() as WithInfo;
}
