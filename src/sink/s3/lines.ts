import { promisify } from 'node:util';
import * as zlib from 'node:zlib';
import { SINK_BLOCK_BYTES } from '../../limits.ts';
import type { SinkRecord } from '../sink.ts';
import type { Compression } from './address.ts';

/** A block with this much is packed. */
const FULL_BYTES = SINK_BLOCK_BYTES * 0.75;
/** Longer lines do not go through a block; below it any line fits one that is not full. */
const LARGE_BYTES = SINK_BLOCK_BYTES - FULL_BYTES;
/** Bytes that a character of a string may take in UTF-8. */
const CHARACTER_BYTES_MAX = 3;
/** Bytes of a row key at the end of a line. */
const TAIL_BYTES = 64;
/** Bytes of zlib's output at a time: a packed block is some 150 KiB. */
const CHUNK_BYTES = 256 * 1024;

type Pack = (data: Uint8Array, options: object) => Promise<Buffer>;
const gzip: Pack = (data, options) => promisify(zlib.gzip)(data, options);
/** Node.js has zstd from 22.15 on, and our types have not. */
const { zstdCompress, constants } = zlib as unknown as {
  zstdCompress(data: Uint8Array, options: object, done: (error: Error | null, packed: Buffer) => void): void;
  constants: Record<string, number>;
};
const zstd: Pack = (data, options) => promisify(zstdCompress)(data, options);
const GZIP = { level: 1, chunkSize: CHUNK_BYTES };
/** Level 1 packs items better than the levels beside it, in half the time. */
const ZSTD = { params: { [constants.ZSTD_c_compressionLevel ?? 0]: 1 }, chunkSize: CHUNK_BYTES };

/** @returns memory of its own */
async function packed(data: Uint8Array, compression: Compression): Promise<Uint8Array> {
  if (compression === 'none') return Buffer.from(data);
  return compression === 'gzip' ? gzip(data, GZIP) : zstd(data, ZSTD);
}

/** Blocks of SINK_BLOCK_BYTES that are used again: new memory costs more than the work in it. */
export class Blocks {
  readonly #spare: Buffer[] = [];
  readonly #kept: number;

  /** @param kept how many are kept while they are not in use */
  constructor(kept: number) {
    this.#kept = kept;
  }

  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(SINK_BLOCK_BYTES);
  }

  giveBack(block: Buffer): void {
    if (this.#spare.length < this.#kept) this.#spare.push(block);
  }
}

/**
 * Lines of one hour on their way into an object: first in a block as they are, then packed. Each
 * packed block is a gzip member or zstd frame of its own, and several in a row are one file. So
 * lines of a batch can be added to those of others, or forgotten, without being unpacked.
 */
export class Lines {
  readonly #compression: Compression;
  readonly #blocks: Blocks;
  readonly #members: Uint8Array[] = [];
  #block: Buffer | undefined;
  #used = 0;
  /** Lines that are no block's, until the next pack(). */
  #large: Uint8Array[] = [];
  packedBytes = 0;
  /** Bytes of all lines, before they are packed. */
  bytes = 0;
  /** Their row keys in hex, in order: they name the object. */
  readonly keys: string[] = [];

  constructor(compression: Compression, blocks: Blocks) {
    this.#compression = compression;
    this.#blocks = blocks;
  }

  add({ head, json }: Pick<SinkRecord, 'head' | 'json'>, key: string): void {
    this.keys.push(key);
    const tail = `,"row_key":"${key}"}\n`;
    if (head.length * CHARACTER_BYTES_MAX + json.length + TAIL_BYTES > LARGE_BYTES) {
      const pieces = [Buffer.from(head), json, Buffer.from(tail)];
      this.#large.push(...pieces);
      for (const { length } of pieces) this.bytes += length;
      return;
    }
    this.#block ??= this.#blocks.take();
    let at = this.#used;
    at += this.#block.write(head, at);
    this.#block.set(json, at);
    at += json.length;
    at += this.#block.write(tail, at, 'latin1');
    this.bytes += at - this.#used;
    this.#used = at;
  }

  /** Whether lines must be packed before others are added. */
  get isFull(): boolean {
    return this.#used >= FULL_BYTES || this.#large.length > 0;
  }

  async pack(): Promise<void> {
    const block = this.#block;
    if (block && this.#used > 0) await this.#add(block.subarray(0, this.#used));
    this.#used = 0;
    const large = this.#large;
    this.#large = [];
    if (large.length > 0) await this.#add(Buffer.concat(large));
  }

  /** Takes what the other has, which is over. The order of lines does not matter. */
  async absorb(other: Lines): Promise<void> {
    if (other.isFull) await other.pack();
    this.#members.push(...other.#members);
    this.packedBytes += other.packedBytes;
    if (other.#used + this.#used > FULL_BYTES) await this.pack();
    if (other.#block && other.#used > 0) {
      this.#block ??= this.#blocks.take();
      this.#block.set(other.#block.subarray(0, other.#used), this.#used);
      this.#used += other.#used;
    }
    for (const key of other.keys) this.keys.push(key);
    this.bytes += other.bytes;
    other.release();
  }

  /** All of it, packed. */
  async content(): Promise<readonly Uint8Array[]> {
    await this.pack();
    return this.#members;
  }

  /** Its block goes back to the others. */
  release(): void {
    if (this.#block) this.#blocks.giveBack(this.#block);
    this.#block = undefined;
    this.#used = 0;
  }

  async #add(lines: Uint8Array): Promise<void> {
    const member = await packed(lines, this.#compression);
    this.#members.push(member);
    this.packedBytes += member.length;
  }
}
