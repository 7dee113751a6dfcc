import { ZstdFrames } from '../../../lib/zstd-frames.ts';
import { BODY_BYTES_SETTING_MAX, OUTPUT_GARBAGE_BYTES_MAX, ZSTD_WINDOW_BYTES_MAX } from '../../../limits.ts';
import type { Holding } from '../budget.ts';
import { ByteQueue } from '../byte-queue.ts';
import {
  type Compression,
  DEFLATE_SNIFF_BYTES,
  withoutRoom,
  type ZlibStream,
  zlibStream,
} from './inflate.ts';

export type InflaterOptions = {
  holding: Holding;
  onBytes(bytes: Buffer): void;
  /** Called when all inflated bytes have been handed out. */
  onEnd(): void;
  onFailed(kind: 'invalid' | 'overloaded', detail: string): void;
  /**
   * Called with `true` when too many compressed bytes wait (INFLATER_QUEUE_BYTES_MAX, or
   * INFLATER_QUEUE_BYTES_TIGHT while the worker holds more than HELD_BYTES_TIGHT), and with `false`
   * once few enough wait.
   */
  onBehind(behind: boolean): void;
};

/** Approximate memory of one zlib engine: its window, its tables and one piece of output. */
const ENGINE_BYTES = 128 * 1024;
/**
 * Most bytes of a window beyond ENGINE_BYTES, by encoding. A window grows with the engine's output
 * up to this bound.
 */
const WINDOW_BYTES_MAX = { gzip: 0, deflate: 0, br: 16 * 1024 * 1024, zstd: ZSTD_WINDOW_BYTES_MAX } as const;
const NOTHING = Buffer.alloc(0);

/**
 * Bytes that the inflaters of this worker have handed out since the young space was last collected.
 */
let garbageBytes = 0;
/**
 * Counts the garbage of the inflaters, and asks V8 to collect its young space when there is much.
 * zlib makes a new buffer for each piece of output, and the buffer is garbage once it was copied.
 * V8 of Node 24, unless asked, marks the worker's whole heap before it frees such buffers. Marking
 * takes 10 to 20 ms, collecting the young space 1 or 2 ms (measured).
 */
function noteGarbage(bytes: number): void {
  garbageBytes += bytes;
  if (garbageBytes < OUTPUT_GARBAGE_BYTES_MAX) return;
  garbageBytes = 0;
  // A worker has `gc` by a flag (ingest/worker-pool.ts).
  globalThis.gc?.({ type: 'minor' });
}

/**
 * Inflates one body by Node's zlib, which works on a thread beside the event loop.
 *
 * One write is in flight at a time. Chunks that come meanwhile are joined for the next write, so
 * that a client that sends single bytes does not cost a trip to the other thread for each byte. No
 * write goes beyond the end of a zstd frame.
 *
 * A chunk need be valid only during the call of `feed`. The bytes that an inflater hands out belong
 * to the receiver.
 */
export class Inflater {
  readonly #encoding: Compression;
  readonly #options: InflaterOptions;
  /** zlib's engine; undefined until the first bytes are there, which tell the form of `deflate`. */
  #stream: ZlibStream | undefined;
  readonly #waiting = new ByteQueue(BODY_BYTES_SETTING_MAX);
  /** Bytes that were taken from the queue and are written next. */
  #taken: Buffer = NOTHING;
  readonly #zstdFrames: ZstdFrames | undefined;
  #charged = 0;
  #queued = 0;
  #inFlight = 0;
  #fed = 0;
  #windowBytes = 0;
  #ended = false;
  #paused = false;
  #behind = false;
  #destroyed = false;

  constructor(encoding: Compression, options: InflaterOptions) {
    this.#encoding = encoding;
    this.#options = options;
    if (encoding === 'zstd') this.#zstdFrames = new ZstdFrames();
  }

  feed(chunk: Uint8Array): void {
    this.#fed += chunk.length;
    this.#waiting.append(chunk);
    this.#writeNext();
  }

  /** Tells the inflater that the last byte has been fed. */
  end(): void {
    this.#ended = true;
    this.#writeNext();
  }

  /** Hands out no more bytes until `resume`. Compressed bytes that come meanwhile wait here. */
  pause(): void {
    this.#paused = true;
    this.#stream?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#stream?.resume();
  }

  /**
   * Stops zlib's engine and frees all memory of this inflater. No callback is called any more.
   * Idempotent.
   */
  destroy(): void {
    this.#destroyed = true;
    this.#stream?.destroy();
    this.#options.holding.hold(-this.#charged);
    this.#options.holding.queue(-this.#queued);
    this.#charged = 0;
    this.#queued = 0;
  }

  #writeNext(): void {
    if (this.#destroyed) return;
    const canWrite = this.#inFlight === 0 && (this.#ended || this.#fed >= DEFLATE_SNIFF_BYTES);
    const bytes = canWrite ? this.#takeNext() : NOTHING;
    this.#inFlight += bytes.length;
    this.#account();
    if (this.#destroyed || !canWrite) return;
    this.#stream ??= this.#open(bytes);
    if (bytes.length > 0) this.#stream.write(bytes, () => this.#onWritten());
    else if (this.#ended) this.#stream.end();
  }

  #takeNext(): Buffer {
    const taken = this.#taken.length > 0 ? this.#taken : this.#waiting.take();
    const end = this.#zstdFrames?.pass(taken) ?? taken.length;
    this.#taken = taken.subarray(end);
    return taken.subarray(0, end);
  }

  #onWritten(): void {
    this.#inFlight = 0;
    this.#writeNext();
  }

  #open(begin: Uint8Array): ZlibStream {
    const stream = zlibStream(this.#encoding, begin);
    stream.on('data', (bytes: Buffer) => this.#onData(bytes));
    stream.on('end', () => this.#onStreamEnd(stream));
    stream.on('error', (error: NodeJS.ErrnoException) => this.#onError(error));
    if (this.#paused) stream.pause();
    return stream;
  }

  #onData(bytes: Buffer): void {
    if (this.#destroyed) return;
    this.#windowBytes = Math.min(this.#windowBytes + bytes.length, WINDOW_BYTES_MAX[this.#encoding]);
    // A small piece is copied, so that it does not keep the whole buffer of zlib alive.
    this.#options.onBytes(withoutRoom(bytes));
    noteGarbage(bytes.length);
  }

  /**
   * Ends the body, or fails. The engine also ends when its stream is complete but other bytes
   * follow.
   */
  #onStreamEnd(stream: ZlibStream): void {
    if (this.#destroyed) return;
    if (this.#zstdFrames?.isComplete === false)
      this.#options.onFailed('invalid', 'the compressed body is not made of whole zstd frames');
    else if (this.#ended && stream.bytesWritten === this.#fed) this.#options.onEnd();
    else this.#options.onFailed('invalid', 'other bytes follow the compressed body');
  }

  #onError(error: NodeJS.ErrnoException): void {
    if (this.#destroyed) return;
    if (error.code === 'Z_MEM_ERROR') this.#options.onFailed('overloaded', 'no memory for the inflater');
    else this.#options.onFailed('invalid', 'the compressed body is corrupt');
  }

  /**
   * Charges to the upload the memory that this inflater holds now. Tells the upload when the
   * inflater falls behind or catches up.
   */
  #account(): void {
    const taken = this.#taken.length + this.#inFlight;
    const charge = ENGINE_BYTES + this.#windowBytes + this.#waiting.capacity + taken;
    const delta = charge - this.#charged;
    this.#charged = charge;
    if (!this.#options.holding.hold(delta))
      return this.#options.onFailed('overloaded', 'the worker holds too many bytes');
    const queued = this.#waiting.length + taken;
    this.#options.holding.queue(queued - this.#queued);
    this.#queued = queued;
    const behind = queued > this.#options.holding.budget.inflaterQueueBytesMax;
    if (behind === this.#behind) return;
    this.#behind = behind;
    this.#options.onBehind(behind);
  }
}
