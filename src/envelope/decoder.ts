/**
 * Decompression of a body that comes in chunks. A decoder borrows its input; the receiver owns the
 * output.
 */
import { BODY_BYTES_SETTING_MAX, DECODER_QUEUE_BYTES_MAX, DECODER_QUEUE_BYTES_TIGHT } from '../limits.ts';
import type { Holding } from './budget.ts';
import { ByteQueue } from './byte-queue.ts';
import { DEFLATE_SNIFF_BYTES, type ZlibEncoding, type ZlibStream, zlibStream } from './decompress.ts';

export interface Decoder {
  feed(chunk: Uint8Array): void;
  /** The last byte has been fed. */
  end(): void;
  /** No more bytes until `resume`: what comes meanwhile waits here. */
  pause(): void;
  resume(): void;
  /** Nothing is told any more, nothing is held; idempotent. */
  destroy(): void;
}

export type DecoderOptions = {
  holding: Holding;
  onBytes(bytes: Buffer): void;
  /** All bytes have been told. */
  onEnd(): void;
  onFailed(kind: 'invalid' | 'overloaded', detail: string): void;
  /**
   * More or less than DECODER_QUEUE_BYTES_MAX waits; than DECODER_QUEUE_BYTES_TIGHT while the
   * worker holds much.
   */
  onBehind(behind: boolean): void;
};

/** What the engine itself allocates, about: window, tables and one piece of output. */
const ENGINE_BYTES = 128 * 1024;
/** A brotli window grows with its output up to here. */
const BROTLI_WINDOW_BYTES_MAX = 16 * 1024 * 1024;
const NOTHING = Buffer.alloc(0);

/**
 * gzip, deflate and brotli by Node's zlib, on a thread beside the event loop.
 *
 * One write is in flight. Chunks that come meanwhile are joined into the next write, so that single
 * bytes do not cost a trip to the other thread each.
 */
export class ZlibDecoder implements Decoder {
  readonly #encoding: ZlibEncoding;
  readonly #options: DecoderOptions;
  /** Undefined until the first bytes have told which one. */
  #stream: ZlibStream | undefined;
  readonly #waiting = new ByteQueue(BODY_BYTES_SETTING_MAX);
  #charged = 0;
  #queued = 0;
  #inFlight = 0;
  #fed = 0;
  #windowBytes = 0;
  #ended = false;
  #paused = false;
  #behind = false;
  #destroyed = false;

  constructor(encoding: ZlibEncoding, options: DecoderOptions) {
    this.#encoding = encoding;
    this.#options = options;
  }

  feed(chunk: Uint8Array): void {
    this.#fed += chunk.length;
    this.#waiting.append(chunk);
    this.#writeNext();
  }

  end(): void {
    this.#ended = true;
    this.#writeNext();
  }

  pause(): void {
    this.#paused = true;
    this.#stream?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#stream?.resume();
  }

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
    const bytes = canWrite ? this.#waiting.take() : NOTHING;
    this.#inFlight += bytes.length;
    this.#account();
    if (this.#destroyed || !canWrite) return;
    this.#stream ??= this.#open(bytes);
    if (bytes.length > 0) this.#stream.write(bytes, () => this.#onWritten());
    else if (this.#ended) this.#stream.end();
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
    if (this.#encoding === 'br')
      this.#windowBytes = Math.min(this.#windowBytes + bytes.length, BROTLI_WINDOW_BYTES_MAX);
    this.#options.onBytes(bytes);
  }

  /** The engine also stops where its stream is complete and other bytes follow. */
  #onStreamEnd(stream: ZlibStream): void {
    if (this.#destroyed) return;
    if (this.#ended && stream.bytesWritten === this.#fed) this.#options.onEnd();
    else this.#options.onFailed('invalid', 'other bytes follow the compressed body');
  }

  #onError(error: NodeJS.ErrnoException): void {
    if (this.#destroyed) return;
    if (error.code === 'Z_MEM_ERROR') this.#options.onFailed('overloaded', 'no memory for the decoder');
    else this.#options.onFailed('invalid', `the compressed body is corrupt: ${error.code ?? error.message}`);
  }

  /** Charges what is held by now and says whether we are behind. */
  #account(): void {
    const charge = ENGINE_BYTES + this.#windowBytes + this.#waiting.capacity + this.#inFlight;
    const delta = charge - this.#charged;
    this.#charged = charge;
    if (!this.#options.holding.hold(delta))
      return this.#options.onFailed('overloaded', 'the worker holds too many bytes');
    const queued = this.#waiting.length + this.#inFlight;
    this.#options.holding.queue(queued - this.#queued);
    this.#queued = queued;
    const most = this.#options.holding.budget.isTight ? DECODER_QUEUE_BYTES_TIGHT : DECODER_QUEUE_BYTES_MAX;
    const behind = queued > most;
    if (behind === this.#behind) return;
    this.#behind = behind;
    this.#options.onBehind(behind);
  }
}
