/**
 * Makes the part of a request that does not depend on the project: the last header lines and the
 * body. The part is made once and sent many times.
 *
 * Each request needs an id of its own; otherwise the processor takes it for a resend. The id is the
 * event id of an envelope, or a text anywhere in an OTLP request. So stamp() writes the last eight
 * digits of the id anew for each request. In a gzip body this works because the bytes up to the id
 * are in a stored (uncompressed) block, and because CRC-32 is linear: a table says by which XOR a
 * changed digit changes the checksum.
 */
import * as zlib from 'node:zlib';
import { brotliCompressSync, crc32, deflateRawSync, deflateSync } from 'node:zlib';
import { ID_PLACEHOLDER } from '../payloads.ts';

export type Encoding = 'none' | 'gzip' | 'deflate' | 'br' | 'zstd';
export type BodyOptions = {
  encoding: Encoding;
  chunked: boolean;
  contentType: string | undefined;
  /** Whether the body is an envelope. The header of an envelope may leave out the id. */
  isEnvelope?: boolean;
  /** The id as it stands in the body. Its last eight digits are zeros. */
  id?: string;
};
export type Body = {
  /** From the header lines about the body to the last byte of the request. */
  bytes: Buffer;
  /**
   * Offsets in `bytes` of the id's last eight digits, one for each place where the id stands. Empty
   * when the server makes the ids.
   */
  digitsAt: readonly number[];
  checksum: Checksum | undefined;
};
type Checksum = { at: number; zeroed: number; changes: Uint32Array };

const DIGITS = 8;
const DIGITS_IN_ID = ID_PLACEHOLDER.length - DIGITS;
const HEX = Buffer.from('0123456789abcdef');
const ZERO = 0x30;

type Compress = (bytes: Buffer) => Buffer;
/** Undefined where Node.js is older than 22.15 and has no zstd. */
const zstd = (zlib as { zstdCompressSync?: Compress }).zstdCompressSync;
export const hasZstd = zstd !== undefined;

/** Returns the offset of the id's last eight digits, for each place where the id stands. */
function findDigits(bytes: Buffer, id: string): number[] {
  const found: number[] = [];
  for (let at = bytes.indexOf(id); at >= 0; at = bytes.indexOf(id, at + 1)) found.push(at + DIGITS_IN_ID);
  return found;
}

/** Copies an envelope, with `id` wherever ID_PLACEHOLDER stands. */
export function withId(envelope: Buffer, id: string): Buffer {
  const copy = Buffer.from(envelope);
  for (const at of findDigits(envelope, ID_PLACEHOLDER)) copy.write(id, at - DIGITS_IN_ID, 'latin1');
  return copy;
}

/**
 * Makes a gzip body of `plain`. The first `partEnd` bytes are stored uncompressed, so that digits
 * of the id in them can be changed later; the rest is compressed.
 */
function stampedGzip(
  plain: Buffer,
  partEnd: number,
  id: string,
): { bytes: Buffer; digitsAt: number[]; checksum: Checksum } {
  const part = plain.subarray(0, partEnd);
  const digits = part.indexOf(id) + DIGITS_IN_ID;
  const head = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0]);
  head.writeUInt16LE(part.length, 11);
  head.writeUInt16LE(~part.length & 0xffff, 13);
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(plain.length, 4);
  const bytes = Buffer.concat([head, part, deflateRawSync(plain.subarray(partEnd)), trailer]);
  const changes = checksumChanges(digits, plain.length);
  return {
    bytes,
    digitsAt: [head.length + digits],
    checksum: { at: bytes.length - 8, zeroed: crc32(plain), changes },
  };
}

/**
 * Makes the table for changing digits. Its value at `place * 16 + digit` is the XOR that corrects
 * the CRC-32 of `length` bytes when the `0` at `at + place` becomes that digit.
 */
function checksumChanges(at: number, length: number): Uint32Array {
  const changes = new Uint32Array(DIGITS * 16);
  const difference = Buffer.alloc(length);
  const nothing = crc32(difference);
  for (let place = 0; place < DIGITS; place++) {
    for (let digit = 0; digit < 16; digit++) {
      difference[at + place] = (HEX[digit] as number) ^ ZERO;
      changes[place * 16 + digit] = crc32(difference) ^ nothing;
    }
    difference[at + place] = 0;
  }
  return changes;
}

function encoded(
  envelope: Buffer,
  { encoding, isEnvelope = true }: BodyOptions,
  id: string,
): { bytes: Buffer; digitsAt: number[]; checksum?: Checksum } {
  const lineEnd = isEnvelope ? envelope.indexOf('\n') + 1 : envelope.indexOf(id) + id.length;
  if (encoding === 'gzip' && envelope.subarray(0, lineEnd).includes(id))
    return stampedGzip(envelope, lineEnd, id);
  if (encoding === 'none') return { bytes: envelope, digitsAt: findDigits(envelope, id) };
  if (!isEnvelope) throw new Error(`the ids of OTLP cannot be renewed in ${encoding}`);
  // No digit can be changed in these compressed bytes. So the envelope has no id, and the server
  // makes one.
  const anonymous = Buffer.concat([Buffer.from('{}'), envelope.subarray(envelope.indexOf('\n'))]);
  const compress = { gzip: gzipRaw, deflate: deflateSync, br: brotliCompressSync, zstd }[encoding];
  if (!compress) throw new Error('zstd needs Node.js 22.15 or later');
  return { bytes: compress(anonymous), digitsAt: [] };
}

const gzipRaw = (bytes: Buffer): Buffer => {
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(crc32(bytes), 0);
  trailer.writeUInt32LE(bytes.length, 4);
  return Buffer.concat([
    Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]),
    deflateRawSync(bytes),
    trailer,
  ]);
};

/**
 * Makes the part of a request after the lines that name the project and the key.
 * @param envelope an envelope, or an OTLP request that contains the id
 * @throws Error when the id of an OTLP request cannot be renewed in the encoding, or Node.js has no
 * zstd
 */
export function makeBody(envelope: Buffer, options: BodyOptions): Body {
  const { encoding, chunked, contentType, id = ID_PLACEHOLDER } = options;
  const { bytes, digitsAt, checksum } = encoded(envelope, options, id);
  const lines = [
    ...(contentType ? [`Content-Type: ${contentType}`] : []),
    ...(encoding === 'none' ? [] : [`Content-Encoding: ${encoding}`]),
    chunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${bytes.length}`,
  ];
  const before = `${lines.join('\r\n')}\r\n\r\n${chunked ? `${bytes.length.toString(16)}\r\n` : ''}`;
  const shift = before.length;
  return {
    bytes: Buffer.concat([Buffer.from(before), bytes, Buffer.from(chunked ? '\r\n0\r\n\r\n' : '')]),
    digitsAt: digitsAt.map((at) => at + shift),
    checksum: checksum && { ...checksum, at: checksum.at + shift },
  };
}

function writeDigits(target: Buffer, at: number, count: number): void {
  for (let place = 0; place < DIGITS; place++)
    target[at + place] = HEX[(count >>> (28 - 4 * place)) & 15] as number;
}

/**
 * Returns an uncompressed OTLP request whose id ends in `count`.
 * @param id as in {@link BodyOptions}
 */
export function stamped(plain: Buffer, id: string, count: number): Buffer {
  const copy = Buffer.from(plain);
  for (const at of findDigits(plain, id)) writeDigits(copy, at, count);
  return copy;
}

/**
 * Changes the id in a copy of `body`, which begins at `start` of `target`: the id's last eight hex
 * digits become `count`. Corrects the checksum of a gzip body.
 */
export function stamp(target: Buffer, start: number, { body, count }: { body: Body; count: number }): void {
  const { digitsAt, checksum } = body;
  for (let i = 0; i < digitsAt.length; i++) writeDigits(target, start + (digitsAt[i] as number), count);
  if (!checksum) return;
  let crc = checksum.zeroed;
  for (let place = 0; place < DIGITS; place++)
    crc ^= checksum.changes[place * 16 + ((count >>> (28 - 4 * place)) & 15)] as number;
  target.writeUInt32LE(crc >>> 0, start + checksum.at);
}
