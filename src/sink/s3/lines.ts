import { promisify } from 'node:util';
import * as zlib from 'node:zlib';
import { SINK_BLOCK_BYTES } from '../../limits.ts';
import type { SinkRecord } from '../sink.ts';
import type { Compression } from './address.ts';

/** A block with this many bytes is compressed. */
const FULL_BYTES = SINK_BLOCK_BYTES * 0.75;
/** Lines longer than this do not go into a block. Others fit into a block that is not full. */
const LARGE_BYTES = SINK_BLOCK_BYTES - FULL_BYTES;
/** Bytes that one UTF-16 unit of a string takes in UTF-8, at most. */
const CHARACTER_BYTES_MAX = 3;
/** Most bytes that the row key takes at the end of a line. */
const TAIL_BYTES = 64;
/** Size of the pieces in which zlib gives its output. A compressed block has some 150 KiB. */
const CHUNK_BYTES = 256 * 1024;

type Pack = (data: Uint8Array, options: object) => Promise<Buffer>;
const gzip: Pack = (data, options) => promisify(zlib.gzip)(data, options);
/** Node.js has zstd from 22.15 on, but our types lack it. */
const { zstdCompress, constants } = zlib as unknown as {
  zstdCompress(data: Uint8Array, options: object, done: (error: Error | null, packed: Buffer) => void): void;
  constants: Record<string, number>;
};
const zstd: Pack = (data, options) => promisify(zstdCompress)(data, options);
const GZIP = { level: 1, chunkSize: CHUNK_BYTES };
/**
 * Level 1 of zstd makes items 8.3 times smaller and takes 1.6 µs for a KiB. Level 3 is worse in
 * both: 7.7 times, and 3.4 µs (measured, bench/HISTORY.md).
 */
const ZSTD = { params: { [constants.ZSTD_c_compressionLevel ?? 0]: 1 }, chunkSize: CHUNK_BYTES };

/**
 * Compresses lines; without compression it copies them.
 * @returns bytes that share no memory with `data`
 */
async function packed(data: Uint8Array, compression: Compression): Promise<Uint8Array> {
  if (compression === 'none') return Buffer.from(data);
  return compression === 'gzip' ? gzip(data, GZIP) : zstd(data, ZSTD);
}

/** Blocks of SINK_BLOCK_BYTES that are used again, so that few are allocated. */
export class Blocks {
  readonly #spare: Buffer[] = [];
  readonly #kept: number;

  /** @param kept how many unused blocks are kept */
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
 * Lines of one hour that will become part of an object. Lines gather in a block, which is packed
 * (compressed) when it is full. Each packed block is a gzip member or zstd frame of its own, and
 * several of these in a row are a valid file. So a batch's lines can be added to those of other
 * batches, or dropped, without being unpacked.
 */
export class Lines {
  readonly #compression: Compression;
  readonly #blocks: Blocks;
  readonly #members: Uint8Array[] = [];
  #block: Buffer | undefined;
  #used = 0;
  /** Lines that are too long for a block, until the next pack(). */
  #large: Uint8Array[] = [];
  packedBytes = 0;
  /** Bytes of all lines before packing. */
  bytes = 0;
  /** Row keys of the lines in hex, in order. They determine the object's name. */
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

  /** Takes all lines of `other`, in any order. `other` must not be used any more. */
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

  /** Packs the remaining lines and returns all lines, packed. */
  async content(): Promise<readonly Uint8Array[]> {
    await this.pack();
    return this.#members;
  }

  /** Gives the block back for other lines. */
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
