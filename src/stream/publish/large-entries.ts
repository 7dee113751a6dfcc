import { AssertionError } from '../../lib/assert.ts';
import { CHUNKED_ANSWER_MS_MAX, LARGE_ENTRIES_ACTIVE_MAX } from '../../limits.ts';
import { joinParts, type PartSource, splitEntry, writeParts } from '../chunks.ts';
import { type EnvelopeEntry, encodedBytesBound, encodeEntry } from '../frame.ts';
import type { Sender } from './sender.ts';
import type { PublishResult, QueuedEntry } from './shard-window.ts';

export type LargeEntry = {
  entry: EnvelopeEntry;
  source: PartSource;
  /** Monotonic ms. */
  deadline: number;
  /** Where the frame entry goes that names the parts. */
  push(queued: QueuedEntry): void;
  done(result: PublishResult): void;
};

export type LargeEntriesOptions = {
  sender: Sender;
  partBytesMax(): number;
  onError(error: unknown): void;
};

/**
 * Entries whose payloads leave as parts before their frame. A few of them write at a time, so that
 * parts in flight are bounded. The others wait here and hold no memory: their payloads are in
 * files.
 *
 * Each entry has its own deadline timer, because reading a file has none. At the deadline the entry
 * is over, and later results are dropped. An entry whose parts were not all stored has no frame and
 * is not queued. Its result is still `unknown` when an answer was missing, as for any other
 * publish.
 */
export class LargeEntries {
  readonly #options: LargeEntriesOptions;
  #waiting: LargeEntry[] = [];
  #active = 0;

  constructor(options: LargeEntriesOptions) {
    this.#options = options;
  }

  add(large: LargeEntry): void {
    const limited = this.#withDeadline(large);
    if (this.#active < LARGE_ENTRIES_ACTIVE_MAX) void this.#run(limited);
    else this.#waiting.push(limited);
  }

  /** The connection is gone: what has not begun is refused at once. */
  refuseWaiting(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { done } of waiting) done('refused');
  }

  /**
   * The same entry, with a `done` that is called once, by the deadline. Nothing is pushed after it.
   */
  #withDeadline(large: LargeEntry): LargeEntry {
    let finished = false;
    const done = (result: PublishResult): void => {
      if (finished) return;
      finished = true;
      clearTimeout(timer);
      large.done(result);
    };
    const push = (queued: QueuedEntry): void => {
      if (!finished) large.push(queued);
    };
    const limited = { ...large, done, push };
    const atDeadline = (): void => {
      const at = this.#waiting.indexOf(limited);
      if (at >= 0) this.#waiting.splice(at, 1);
      done(at >= 0 ? 'refused' : 'unknown');
    };
    const timer = setTimeout(atDeadline, Math.max(1, large.deadline - this.#options.sender.monotonic()));
    return limited;
  }

  async #run(large: LargeEntry): Promise<void> {
    this.#active++;
    try {
      await this.#write(large);
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      this.#options.onError(error);
      large.done('refused');
    } finally {
      this.#active--;
      const next = this.#waiting.shift();
      if (next) void this.#run(next);
    }
  }

  async #write({ entry, source, deadline, push, done }: LargeEntry): Promise<void> {
    const { sender } = this.#options;
    const partBytesMax = this.#options.partBytesMax();
    // Spooled because memory was short, and small all the same.
    if (source.length + encodedBytesBound(entry) <= partBytesMax) {
      const whole = await source.read(0, source.length);
      return push({ bytes: encodeEntry(joinParts(entry, whole)), deadline, done });
    }
    const startedAt = sender.monotonic();
    const split = splitEntry({ entry, source }, partBytesMax);
    const written = await writeParts(sender, { source: split.source, partBytesMax, deadline });
    if (!written.ok) return done(written.result);
    push({
      bytes: encodeEntry({ ...split.entry, parts: written.parts }),
      deadline,
      done: (result) => {
        // Parts are swept after a while: a frame that was stored too late may name some that are
        // gone.
        const late = sender.monotonic() - startedAt > CHUNKED_ANSWER_MS_MAX;
        done(result === 'stored' && late ? 'unknown' : result);
      },
    });
  }
}
