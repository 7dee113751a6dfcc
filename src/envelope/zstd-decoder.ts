/**
 * Zstandard on the event loop, a slice at a time: after ZSTD_SLICE_BYTES of work the rest waits for the next turn, so that a body
 * that inflates a thousandfold delays nobody else by more than some milliseconds. A small body is decoded within `feed` and `end`.
 */
import {
  BODY_BYTES_SETTING_MAX,
  DECODER_QUEUE_BYTES_MAX,
  DECODER_QUEUE_BYTES_TIGHT,
  ZSTD_SLICE_BYTES,
} from '../limits.ts';
import { ByteQueue } from './byte-queue.ts';
import type { Decoder, DecoderOptions } from './decoder.ts';
import { ZstdCorrupt } from './zstd/bits.ts';
import { type Step, ZstdFrames } from './zstd/frame.ts';

/** What a block costs beside its output: tables, some 20 µs at worst (18 measured). */
const BLOCK_WORK_BYTES = 4 * 1024;

export class ZstdDecoder implements Decoder {
  readonly #options: DecoderOptions;
  readonly #frames = new ZstdFrames();
  readonly #waiting = new ByteQueue(BODY_BYTES_SETTING_MAX);
  #charged = 0;
  #queued = 0;
  #ended = false;
  #paused = false;
  #behind = false;
  #done = false;
  /** A further slice is due in the next turn. */
  #scheduled: NodeJS.Immediate | undefined;

  constructor(options: DecoderOptions) {
    this.#options = options;
  }

  feed(chunk: Uint8Array): void {
    if (this.#done) return;
    this.#waiting.append(chunk);
    this.#work();
  }

  end(): void {
    if (this.#done) return;
    this.#ended = true;
    this.#work();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#schedule();
  }

  destroy(): void {
    this.#done = true;
    if (this.#scheduled) clearImmediate(this.#scheduled);
    this.#scheduled = undefined;
    this.#options.holding.hold(-this.#charged);
    this.#options.holding.queue(-this.#queued);
    this.#charged = 0;
    this.#queued = 0;
  }

  #schedule(): void {
    if (this.#done || this.#scheduled) return;
    this.#scheduled = setImmediate(() => {
      this.#scheduled = undefined;
      this.#work();
    });
  }

  #work(): void {
    const isThrough = this.#paused || this.#scheduled ? false : this.#slice();
    if (this.#done) return;
    this.#account();
    if (!isThrough || !this.#ended || this.#done) return;
    this.#done = true;
    if (this.#waiting.length === 0 && this.#frames.isComplete) this.#options.onEnd();
    else this.#options.onFailed('invalid', 'the compressed body is cut short');
  }

  /** @returns whether all input that can be used has been used */
  #slice(): boolean {
    const input = this.#waiting.view();
    let at = 0;
    for (let work = 0; work < ZSTD_SLICE_BYTES && !this.#paused; work += BLOCK_WORK_BYTES) {
      const step = this.#step(input.subarray(at));
      if (this.#done) return false;
      if (!step) {
        this.#waiting.drop(at);
        return true;
      }
      at += step.used;
      work += step.output.length;
    }
    this.#waiting.drop(at);
    if (!this.#paused) this.#schedule();
    return false;
  }

  #step(input: Uint8Array): Step | undefined {
    try {
      const step = this.#frames.step(input);
      if (step && step.output.length > 0) this.#options.onBytes(Buffer.from(step.output));
      return step;
    } catch (error) {
      if (!(error instanceof ZstdCorrupt)) throw error;
      this.#done = true;
      this.#options.onFailed('invalid', `the compressed body is corrupt: ${error.message}`);
      return undefined;
    }
  }

  /** Charges what is held by now and says whether we are behind. */
  #account(): void {
    const charge = this.#waiting.capacity + this.#frames.historyBytes;
    const delta = charge - this.#charged;
    this.#charged = charge;
    if (!this.#options.holding.hold(delta))
      return this.#options.onFailed('overloaded', 'the worker holds too many bytes');
    this.#options.holding.queue(this.#waiting.length - this.#queued);
    this.#queued = this.#waiting.length;
    const most = this.#options.holding.budget.isTight ? DECODER_QUEUE_BYTES_TIGHT : DECODER_QUEUE_BYTES_MAX;
    const behind = this.#queued > most;
    if (behind === this.#behind) return;
    this.#behind = behind;
    this.#options.onBehind(behind);
  }
}
