/**
 * Spool: the payloads of one large envelope, in a file without a name. A worker thus holds a slice
 * of each upload in memory, never a body, and nothing reaches the broker before the envelope is
 * accepted.
 *
 * Bytes are copied into blocks, and full blocks wait for the disk. One write is in flight at a
 * time. A write takes all blocks that wait, so that a client that sends single bytes does not cost
 * a write for each byte. `onBehind(true)` asks for a pause when the waiting blocks reach
 * SPOOL_QUEUE_BYTES_MAX (SPOOL_QUEUE_BYTES_TIGHT while the worker holds much). `onBehind(false)`
 * tells that at most half of this bound still waits.
 *
 * A descriptor must not be closed while a call uses it, because its number could then belong to
 * another file. So `close` waits for the calls.
 */
import { close, read, writev } from 'node:fs';
import { assert } from '../../lib/assert.ts';
import type { ByteSource } from '../../lib/files/byte-source.ts';
import { SPOOL_BLOCK_BYTES, SPOOL_QUEUE_BYTES_MAX, SPOOL_QUEUE_BYTES_TIGHT } from '../../limits.ts';
import type { Holding } from './budget.ts';
import type { Done } from './spool-disk.ts';

export type SpoolOptions = {
  holding: Holding;
  onBehind(behind: boolean): void;
  /**
   * Called at most once, when the disk has refused a call or the worker has no room for more bytes.
   */
  onFailed(detail: string): void;
};

type Block = { bytes: Buffer; length: number };
type State = 'open' | 'failed' | 'closed';

/**
 * Consecutive bytes of the file that {@link Spool.only} reads. The bytes between two stretches are
 * skipped.
 */
type Stretch = { start: number; length: number };

/**
 * Returns where the payloads of `kept` lie in the file, which has the payloads of `items` in order.
 * Adjacent payloads are one stretch.
 */
function stretchesOf<T extends { length: number }>(items: readonly T[], kept: readonly T[]): Stretch[] {
  const stretches: Stretch[] = [];
  let start = 0;
  let next = 0;
  for (const item of items) {
    if (item === kept[next]) {
      next++;
      const last = stretches.at(-1);
      if (last && last.start + last.length === start) last.length += item.length;
      else stretches.push({ start, length: item.length });
    }
    start += item.length;
  }
  return stretches;
}

export class Spool {
  /**
   * Descriptor, open for reading and writing; undefined until the disk has opened the file, and
   * again once the file is closed.
   */
  #fd: number | undefined;
  readonly #holding: Holding;
  readonly #options: SpoolOptions;
  #state: State = 'open';
  #length = 0;
  /** The block being filled; undefined until the next byte comes. */
  #filling: Block | undefined;
  /**
   * Full blocks that are not written yet. A write in flight writes the first block, perhaps also
   * the next ones.
   */
  readonly #waiting: Block[] = [];
  /** Bytes of the first waiting block that are already in the file. */
  #firstWritten = 0;
  /** Whether no write can begin, because one is in flight or the file is not open yet. */
  #writing = true;
  #written = 0;
  #behind = false;
  #onFlushed: (() => void) | undefined;
  /** Calls to the file system that have not returned. */
  #calls = 0;

  constructor(options: SpoolOptions) {
    this.#holding = options.holding;
    this.#options = options;
  }

  /** Bytes appended so far. */
  get length(): number {
    return this.#length;
  }

  /** Opens the file. Before that, blocks wait in memory. Called once. */
  start(): void {
    if (this.#state !== 'open') return;
    this.#call<number>(
      (done) => this.#holding.budget.disk.open(done),
      (error, fd) => this.#opened(error, fd),
    );
  }

  /** Appends a copy of `bytes`. Does nothing after a failure or `close`. */
  append(bytes: Uint8Array): void {
    if (this.#state !== 'open') return;
    this.#length += bytes.length;
    if (!this.#holding.spool(bytes.length)) return this.#fail('the spool files are at their bound');
    for (let at = 0; at < bytes.length; ) at += this.#fill(bytes.subarray(at));
    if (this.#state === 'open') this.#writeNext();
  }

  /**
   * Calls `onFlushed` once everything that was appended is in the file; never after a failure or
   * `close`.
   */
  flush(onFlushed: () => void): void {
    if (this.#state !== 'open') return;
    this.#onFlushed = onFlushed;
    if (this.#filling) this.#enqueue(this.#filling);
    this.#filling = undefined;
    this.#writeNext();
  }

  /**
   * Reads bytes that have been written.
   * @throws RangeError when the range is not written yet, else an error of the spool or the file
   * system
   */
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

  /**
   * Returns a source of the payloads of some items alone, one after the other. The payloads of
   * other items stay in the file, unread.
   * @param items all items whose payloads were appended, in order
   * @param kept some of `items`, in the same order
   */
  only<T extends { length: number }>(items: readonly T[], kept: readonly T[]): ByteSource {
    if (kept === items) return this;
    const stretches = stretchesOf(items, kept);
    const length = stretches.reduce((sum, stretch) => sum + stretch.length, 0);
    return { length, read: (offset, count) => this.#readStretches(stretches, offset, offset + count) };
  }

  async #readStretches(stretches: readonly Stretch[], from: number, to: number): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    let at = 0;
    for (const { start, length } of stretches) {
      const [begin, end] = [Math.max(from, at), Math.min(to, at + length)];
      if (begin < end) pieces.push(await this.read(start + begin - at, end - begin));
      at += length;
    }
    const [only] = pieces;
    return pieces.length === 1 && only ? only : Buffer.concat(pieces);
  }

  /** Closes the file when no call uses it any more; idempotent. */
  close(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#waiting.length = 0;
    this.#filling = undefined;
    this.#closeWhenIdle();
  }

  // ---- filling ----

  /**
   * Copies as many of `bytes` as fit into the block being filled.
   * @returns how many bytes were copied
   */
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

  #opened(error: NodeJS.ErrnoException | null, fd: number): void {
    if (error) return this.#fail(`the spool cannot be opened: ${error.code ?? error}`);
    this.#fd = fd;
    this.#writing = false;
    if (this.#state === 'open') this.#writeNext();
  }

  #enqueue(block: Block): void {
    this.#waiting.push(block);
    this.#holding.queue(SPOOL_BLOCK_BYTES);
  }

  #writeNext(): void {
    this.#tellBehind();
    if (this.#writing) return;
    if (this.#waiting.length > 0) this.#writeWaiting();
    else if (this.#onFlushed) {
      const onFlushed = this.#onFlushed;
      this.#onFlushed = undefined;
      onFlushed();
    }
  }

  #writeWaiting(): void {
    this.#writing = true;
    const pieces = this.#waiting.map(({ bytes, length }, at) =>
      bytes.subarray(at === 0 ? this.#firstWritten : 0, length),
    );
    this.#call<number>(
      (done) => writev(this.#openFd, pieces, this.#written, done),
      (error, count) => {
        this.#writing = false;
        if (this.#state !== 'open') return;
        if (error || count === 0)
          return this.#fail(`the spool cannot be written: ${error?.code ?? 'no bytes taken'}`);
        this.#written += count;
        this.#giveBackBlocks(count);
        this.#writeNext();
      },
    );
  }

  /**
   * Gives back the blocks that are in the file.
   * @param count bytes that the last write has written
   */
  #giveBackBlocks(count: number): void {
    this.#firstWritten += count;
    for (let block = this.#waiting[0]; block; block = this.#waiting[0]) {
      if (this.#firstWritten < block.length) return;
      this.#firstWritten -= block.length;
      this.#waiting.shift();
      this.#holding.budget.giveBlock(block.bytes);
      this.#holding.hold(-SPOOL_BLOCK_BYTES);
      this.#holding.queue(-SPOOL_BLOCK_BYTES);
    }
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
    return new Promise((resolve, reject) => {
      this.#call<number>(
        (done) => read(this.#openFd, bytes, 0, bytes.length, position, done),
        (error, count) => (error ? reject(error) : resolve(count)),
      );
    });
  }

  get #openFd(): number {
    assert(this.#fd !== undefined, 'only an open file is written and read');
    return this.#fd;
  }

  /**
   * Makes one call to the file system. A call that still waits when the spool is closed is not
   * made; `then` gets an error instead.
   */
  #call<T>(make: (done: Done<T>) => void, then: Done<T>): void {
    this.#calls++;
    this.#holding.budget.disk.run((returned) => {
      const done: Done<T> = (error, value) => {
        returned();
        this.#calls--;
        then(error, value);
        this.#closeWhenIdle();
      };
      if (this.#state === 'closed') done(new Error('the spool is closed'), undefined as T);
      else make(done);
    });
  }

  #closeWhenIdle(): void {
    const fd = this.#fd;
    if (this.#state !== 'closed' || this.#calls > 0 || fd === undefined) return;
    this.#fd = undefined;
    // An error here has no consequence: the file has no name and is not read any more.
    this.#holding.budget.disk.run((returned) => close(fd, returned));
  }
}
