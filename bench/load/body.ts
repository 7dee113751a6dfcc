/**
 * The part of a request that does not depend on the project: the last header lines and the body, made once and sent many times.
 *
 * Every request that is sent carries an id of its own, or the processor would take it for a resend: an event id in an envelope, any
 * text in a request of OTLP. So the id's last eight digits are written into the bytes anew each time. In a gzip body that works
 * because the bytes up to them stand in a stored (uncompressed) block, and because CRC-32 is linear: what a changed digit does to the
 * checksum is a table look-up and an XOR.
 */
import * as zlib from 'node:zlib';
import { brotliCompressSync, crc32, deflateRawSync, deflateSync } from 'node:zlib';
import { ID_PLACEHOLDER } from '../payloads.ts';

export type Encoding = 'none' | 'gzip' | 'deflate' | 'br' | 'zstd';
export type BodyOptions = {
  encoding: Encoding;
  chunked: boolean;
  contentType: string | undefined;
  /** Whether the bytes are an envelope, whose header can do without an id. */
  isEnvelope?: boolean;
  /** How the id is written in the envelope; its last eight digits are zeros. */
  id?: string;
};
export type Body = {
  /** From the headers that belong to the body up to the last byte of the request. */
  bytes: Buffer;
  /** Where the eight digits stand in `bytes`; empty where ids are left to the server. */
  digitsAt: readonly number[];
  checksum: Checksum | undefined;
};
type Checksum = { at: number; zeroed: number; changes: Uint32Array };

const DIGITS = 8;
const DIGITS_IN_ID = ID_PLACEHOLDER.length - DIGITS;
const HEX = Buffer.from('0123456789abcdef');
const ZERO = 0x30;

type Compress = (bytes: Buffer) => Buffer;
/** Node.js has it from 22.15 on. */
const zstd = (zlib as { zstdCompressSync?: Compress }).zstdCompressSync;
export const hasZstd = zstd !== undefined;

/** Offsets of the id's last eight digits. */
function findDigits(bytes: Buffer, id: string): number[] {
  const found: number[] = [];
  for (let at = bytes.indexOf(id); at >= 0; at = bytes.indexOf(id, at + 1)) found.push(at + DIGITS_IN_ID);
  return found;
}

/** The same envelope with another id in the placeholder's places. */
export function withId(envelope: Buffer, id: string): Buffer {
  const copy = Buffer.from(envelope);
  for (const at of findDigits(envelope, ID_PLACEHOLDER)) copy.write(id, at - DIGITS_IN_ID, 'latin1');
  return copy;
}

/** `plain` with the digits of its first part open to change, as gzip of a stored and several compressed blocks. */
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

/** By place and digit: what the checksum of `length` bytes changes by when the `0` at `at + place` becomes that digit. */
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
  // No place in these bytes stands for a digit of the id: the server mints one.
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

/** The bytes of a request after the lines that name project and key. @param envelope or another body with an id in it */
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

/** The bytes of a request of OTLP as the server reads them. @param id as in {@link BodyOptions} */
export function stamped(plain: Buffer, id: string, count: number): Buffer {
  const copy = Buffer.from(plain);
  for (const at of findDigits(plain, id)) writeDigits(copy, at, count);
  return copy;
}

/** Gives the copy of `body` that begins at `start` of `target` the id that ends in `count`, as eight hex digits. */
export function stamp(target: Buffer, start: number, { body, count }: { body: Body; count: number }): void {
  const { digitsAt, checksum } = body;
  for (let i = 0; i < digitsAt.length; i++) writeDigits(target, start + (digitsAt[i] as number), count);
  if (!checksum) return;
  let crc = checksum.zeroed;
  for (let place = 0; place < DIGITS; place++)
    crc ^= checksum.changes[place * 16 + ((count >>> (28 - 4 * place)) & 15)] as number;
  target.writeUInt32LE(crc >>> 0, start + checksum.at);
}
