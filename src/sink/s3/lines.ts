import { promisify } from 'node:util';
import * as zlib from 'node:zlib';
import { SINK_BLOCK_BYTES } from '../../limits.ts';
import type { SinkRow } from '../sink.ts';
import type { Compression } from './address.ts';

const BLOCK_BYTES = 64 * 1024;
/** Longer values are not copied; they are packed at once. */
const VIEWED_BYTES = SINK_BLOCK_BYTES;
/** Bytes that a character of a string may take in UTF-8. */
const CHARACTER_BYTES_MAX = 3;
const GZIP = { level: 1 };
const gzip = promisify(zlib.gzip) as (data: Uint8Array, options: zlib.ZlibOptions) => Promise<Buffer>;
type ZstdCompress = (data: Uint8Array, done: (error: Error | null, packed: Buffer) => void) => void;

/** By name, since types and runtimes before Node.js 22.15 do not have it. */
const zstd = (data: Uint8Array): Promise<Buffer> =>
  promisify((zlib as unknown as { zstdCompress: ZstdCompress }).zstdCompress)(data);

async function packed(data: Uint8Array, compression: Compression): Promise<Uint8Array> {
  if (compression === 'none') return data;
  return compression === 'gzip' ? gzip(data, GZIP) : zstd(data);
}

/**
 * Lines of one hour on their way into an object: first as they are, then packed in blocks of
 * SINK_BLOCK_BYTES. A block is a gzip member or zstd frame of its own, and several in a row are one
 * file. So lines of a batch can be added to those of others, or forgotten, without being unpacked.
 */
export class Lines {
  readonly #compression: Compression;
  readonly #members: Uint8Array[] = [];
  #pieces: Uint8Array[] = [];
  #pieceBytes = 0;
  #hasView = false;
  #block: Buffer | undefined;
  #cut = 0;
  #at = 0;
  packedBytes = 0;
  /** Of all lines, before they are packed. */
  bytes = 0;
  /** Their row keys in hex, in order: they name the object. */
  readonly keys: string[] = [];

  constructor(compression: Compression) {
    this.#compression = compression;
  }

  add({ head, json }: Pick<SinkRow, 'head' | 'json'>, key: string): void {
    this.keys.push(key);
    this.#text(head);
    if (json.length >= VIEWED_BYTES) this.#view(json);
    else this.#data(json);
    this.#text(`,"row_key":"${key}"}\n`);
  }

  /** Whether lines should be packed: they are many, or point to memory that others will use. */
  get isFull(): boolean {
    return this.#hasView || this.#pieceBytes + this.#at - this.#cut >= SINK_BLOCK_BYTES;
  }

  async pack(): Promise<void> {
    this.#cutPiece();
    if (this.#pieces.length === 0) return;
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#pieceBytes = 0;
    this.#hasView = false;
    const member = await packed(
      pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces),
      this.#compression,
    );
    this.#members.push(member);
    this.packedBytes += member.length;
  }

  /** Appends what the other has, which is not used any more. */
  async absorb(other: Lines): Promise<void> {
    if (other.#members.length > 0) {
      await this.pack();
      this.#members.push(...other.#members);
      this.packedBytes += other.packedBytes;
    }
    this.#cutPiece();
    other.#cutPiece();
    this.#pieces.push(...other.#pieces);
    this.#pieceBytes += other.#pieceBytes;
    for (const key of other.keys) this.keys.push(key);
    this.bytes += other.bytes;
    if (this.isFull) await this.pack();
  }

  /** All of it, packed. */
  async content(): Promise<readonly Uint8Array[]> {
    await this.pack();
    return this.#members;
  }

  #text(text: string): void {
    const at = this.#room(text.length * CHARACTER_BYTES_MAX);
    const length = this.#block?.write(text, at) ?? 0;
    this.#at += length;
    this.bytes += length;
  }

  #data(data: Uint8Array): void {
    const at = this.#room(data.length);
    this.#block?.set(data, at);
    this.#at += data.length;
    this.bytes += data.length;
  }

  #view(data: Uint8Array): void {
    this.#cutPiece();
    this.#pieces.push(data);
    this.#pieceBytes += data.length;
    this.bytes += data.length;
    this.#hasView = true;
  }

  /** @returns where in the block so many bytes may go */
  #room(bytes: number): number {
    if (!this.#block || this.#at + bytes > this.#block.length) {
      this.#cutPiece();
      this.#block = Buffer.allocUnsafeSlow(Math.max(BLOCK_BYTES, bytes));
      this.#cut = 0;
      this.#at = 0;
    }
    return this.#at;
  }

  #cutPiece(): void {
    if (!this.#block || this.#at === this.#cut) return;
    this.#pieces.push(this.#block.subarray(this.#cut, this.#at));
    this.#pieceBytes += this.#at - this.#cut;
    this.#cut = this.#at;
  }
}
