import { CHUNKED_ANSWER_MS_MAX, LARGE_ENTRIES_ACTIVE_MAX } from '../limits.ts';
import { type PartSource, writeParts } from './chunks.ts';
import { type EnvelopeEntry, encodeEntry } from './frame.ts';
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

/** Payloads that are in memory, as a source. */
export function sourceOf(entry: EnvelopeEntry): PartSource {
  const whole = Buffer.concat(entry.items.map(({ payload }) => payload ?? Buffer.alloc(0)));
  return {
    length: whole.length,
    read: (offset, length) => Promise.resolve(whole.subarray(offset, offset + length)),
  };
}

export type LargeEntriesOptions = {
  sender: Sender;
  partBytesMax(): number;
  onError(error: unknown): void;
};

/**
 * Entries whose payloads leave as parts before their frame does. A few write at a time, so that the parts in flight are bounded;
 * the others wait here, where they hold nothing: their payloads are in files.
 *
 * The deadline is the entry's own timer, because reading a file has none: whatever is under way then, the entry is over, and what
 * comes later is dropped. An entry whose parts were not all stored has no frame and is not queued; it is still `unknown` when an
 * answer was missing, as for any other publish.
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
    if (this.#active < LARGE_ENTRIES_ACTIVE_MAX) void this.#write(limited);
    else this.#waiting.push(limited);
  }

  /** The connection is gone: what has not begun is refused at once. */
  refuseWaiting(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { done } of waiting) done('refused');
  }

  /** The same entry, with a `done` that is called once, and by the deadline. */
  #withDeadline(large: LargeEntry): LargeEntry {
    let finished = false;
    const done = (result: PublishResult): void => {
      if (finished) return;
      finished = true;
      clearTimeout(timer);
      large.done(result);
    };
    const limited = { ...large, done };
    const timer = setTimeout(
      () => {
        const at = this.#waiting.indexOf(limited);
        if (at >= 0) this.#waiting.splice(at, 1);
        done(at >= 0 ? 'refused' : 'unknown');
      },
      Math.max(1, large.deadline - this.#options.sender.monotonic()),
    );
    return limited;
  }

  async #write({ entry, source, deadline, push, done }: LargeEntry): Promise<void> {
    const { sender, partBytesMax, onError } = this.#options;
    const startedAt = sender.monotonic();
    this.#active++;
    try {
      const written = await writeParts(sender, { source, partBytesMax: partBytesMax(), deadline });
      if (!written.ok) return done(written.result);
      const items = entry.items.map(({ payload: _, ...item }) => item);
      const bytes = encodeEntry({ ...entry, items, parts: written.parts });
      push({
        bytes,
        deadline,
        done: (result) => {
          // Parts are swept after a while: a frame that was stored too late may name some that are gone.
          const late = sender.monotonic() - startedAt > CHUNKED_ANSWER_MS_MAX;
          done(result === 'stored' && late ? 'unknown' : result);
        },
      });
    } catch (error) {
      onError(error);
      done('refused');
    } finally {
      this.#active--;
      const next = this.#waiting.shift();
      if (next) void this.#write(next);
    }
  }
}
