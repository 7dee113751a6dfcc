/**
 * The payloads of a large envelope in a file without a name. A worker holds a slice of each upload,
 * never a body, and nothing reaches the broker before acceptance.
 *
 * Bytes are copied into blocks. A full block waits for the disk, and one write is in flight at a
 * time, so that single bytes cost no write each. The waiting bytes are the memory of an upload:
 * `onBehind(true)` asks for a pause when they reach SPOOL_QUEUE_BYTES_MAX (less while the worker
 * holds much), `onBehind(false)` says that half of them are written. The price is one more copy,
 * about 0.1 ms per MiB.
 *
 * A descriptor must not be closed under a running call, for its number could belong to another file
 * by then: `close` waits for the calls.
 */
import { close, read, write } from 'node:fs';
import { SPOOL_BLOCK_BYTES, SPOOL_QUEUE_BYTES_MAX, SPOOL_QUEUE_BYTES_TIGHT } from '../limits.ts';
import type { Holding } from './budget.ts';

export type SpoolOptions = {
  /** Open for reading and writing, empty; owned by the spool from now on. */
  fd: number;
  holding: Holding;
  onBehind(behind: boolean): void;
  /** The disk refused, or the worker's spools are at their bound. At most once. */
  onFailed(detail: string): void;
};

type Block = { bytes: Buffer; length: number };
type State = 'open' | 'failed' | 'closed';

export class Spool {
  readonly #fd: number;
  readonly #holding: Holding;
  readonly #options: SpoolOptions;
  #state: State = 'open';
  #length = 0;
  /** The block being filled; undefined until the next byte comes. */
  #filling: Block | undefined;
  /** Full blocks, the first of which is being written while `writing`. */
  readonly #waiting: Block[] = [];
  #writing = false;
  #written = 0;
  #behind = false;
  #onFlushed: (() => void) | undefined;
  /** Calls to the file system that have not returned. */
  #calls = 0;

  constructor(options: SpoolOptions) {
    this.#fd = options.fd;
    this.#holding = options.holding;
    this.#options = options;
  }

  /** Bytes appended. */
  get length(): number {
    return this.#length;
  }

  /** Copies `bytes`. Does nothing after a failure or `close`. */
  append(bytes: Uint8Array): void {
    if (this.#state !== 'open') return;
    this.#length += bytes.length;
    if (!this.#holding.spool(bytes.length)) return this.#fail('the spool files are at their bound');
    for (let at = 0; at < bytes.length; ) at += this.#fill(bytes.subarray(at));
    if (this.#state === 'open') this.#writeNext();
  }

  /**
   * Calls `onFlushed` once the file has everything that was appended; never after a failure or
   * `close`.
   */
  flush(onFlushed: () => void): void {
    if (this.#state !== 'open') return;
    this.#onFlushed = onFlushed;
    if (this.#filling) this.#enqueue(this.#filling);
    this.#filling = undefined;
    this.#writeNext();
  }

  /** @throws RangeError outside what was written, else the file system's error */
  async read(offset: number, length: number): Promise<Uint8Array> {
    if (this.#state !== 'open') throw new Error(`the spool is ${this.#state}`);
    if (offset < 0 || length < 0 || offset + length > this.#written)
      throw new RangeError(`bytes ${offset} to ${offset + length} of a spool of ${this.#written}`);
    const bytes = Buffer.allocUnsafeSlow(length);
    for (let at = 0; at < length; ) {
      const count = await this.#readInto(bytes.subarray(at), offset + at);
      if (count === 0) throw new Error('the spool file is shorter than what was written to it');
      at += count;
    }
    return bytes;
  }

  /** Gives the file back; idempotent. */
  close(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#waiting.length = 0;
    this.#filling = undefined;
    this.#closeWhenIdle();
  }

  // ---- filling ----

  /** @returns how many bytes went into the block being filled */
  #fill(bytes: Uint8Array): number {
    this.#filling ??= this.#startBlock();
    const block = this.#filling;
    const count = Math.min(bytes.length, block.bytes.length - block.length);
    block.bytes.set(bytes.subarray(0, count), block.length);
    block.length += count;
    if (block.length === block.bytes.length) {
      this.#enqueue(block);
      this.#filling = undefined;
    }
    return count;
  }

  #startBlock(): Block {
    if (!this.#holding.hold(SPOOL_BLOCK_BYTES)) this.#fail('the worker holds too many bytes');
    return { bytes: this.#holding.budget.takeBlock(), length: 0 };
  }

  // ---- writing ----

  #enqueue(block: Block): void {
    this.#waiting.push(block);
    this.#holding.queue(SPOOL_BLOCK_BYTES);
  }

  #writeNext(): void {
    this.#tellBehind();
    if (this.#writing) return;
    const block = this.#waiting[0];
    if (block) this.#write(block, 0);
    else if (this.#onFlushed) {
      const onFlushed = this.#onFlushed;
      this.#onFlushed = undefined;
      onFlushed();
    }
  }

  #write(block: Block, from: number): void {
    this.#writing = true;
    this.#calls++;
    write(this.#fd, block.bytes, from, block.length - from, this.#written, (error, count) => {
      this.#calls--;
      this.#writing = false;
      if (this.#state !== 'open') return this.#closeWhenIdle();
      if (error || count === 0)
        return this.#fail(`the spool cannot be written: ${error?.code ?? 'no bytes taken'}`);
      this.#written += count;
      if (from + count < block.length) return this.#write(block, from + count);
      this.#waiting.shift();
      this.#holding.budget.giveBlock(block.bytes);
      this.#holding.hold(-SPOOL_BLOCK_BYTES);
      this.#holding.queue(-SPOOL_BLOCK_BYTES);
      this.#writeNext();
    });
  }

  #tellBehind(): void {
    const waiting = this.#waiting.length * SPOOL_BLOCK_BYTES;
    const most = this.#holding.budget.isTight ? SPOOL_QUEUE_BYTES_TIGHT : SPOOL_QUEUE_BYTES_MAX;
    const behind = this.#behind ? waiting > most / 2 : waiting >= most;
    if (behind === this.#behind) return;
    this.#behind = behind;
    this.#options.onBehind(behind);
  }

  #fail(detail: string): void {
    if (this.#state !== 'open') return;
    this.#state = 'failed';
    this.#options.onFailed(detail);
  }

  // ---- reading, closing ----

  #readInto(bytes: Buffer, position: number): Promise<number> {
    this.#calls++;
    return new Promise((resolve, reject) => {
      read(this.#fd, bytes, 0, bytes.length, position, (error, count) => {
        this.#calls--;
        this.#closeWhenIdle();
        if (error) reject(error);
        else resolve(count);
      });
    });
  }

  #closeWhenIdle(): void {
    // An error here has no consequence: the file has no name and no reader.
    if (this.#state === 'closed' && this.#calls === 0) close(this.#fd, () => undefined);
  }
}
