import { AssertionError } from '../../lib/assert.ts';
import { nextInTurn } from '../../lib/fair-share.ts';
import type { ByteSource } from '../../lib/files/byte-source.ts';
import { remove } from '../../lib/in-flight.ts';
import { LARGE_ENTRIES_ACTIVE_MAX, PARTS_AGE_MS_MAX } from '../../limits.ts';
import { type EnvelopeEntry, encodedBytesBound } from '../frame.ts';
import { joinParts, splitEntry, writeParts } from '../parts.ts';
import type { PartShares } from './part-shares.ts';
import type { Sender } from './sender.ts';
import type { PublishResult, QueuedEntry } from './shard-queue.ts';

export type LargeEntry = {
  entry: EnvelopeEntry;
  source: ByteSource;
  /** Monotonic ms. */
  deadline: number;
  /** Where the frame entry goes that names the parts. */
  push(queued: QueuedEntry): void;
  /** No frame was stored there since one was refused, a moment ago: mostly, the stream is full. */
  isRefusing(): boolean;
  done(result: PublishResult): void;
};

/** The same with a timer for its deadline. */
type TimedEntry = LargeEntry & { isOver(): boolean };

export type LargeEntriesOptions = {
  sender: Sender;
  partBytesMax(): number;
  shares: PartShares;
  onError(error: unknown): void;
};

/**
 * Entries whose payloads leave as parts before their frame. A few of them write at a time, so that
 * parts in flight are bounded. The others wait here and hold no memory: their payloads are in
 * files. The next is the oldest of the project that has the fewest at work, and one whose project
 * holds more than its share of the chunks stream is refused.
 *
 * Each entry has its own deadline timer, because reading a file has none. At the deadline the entry
 * is over, and later results are dropped. The result is then `unknown` if its frame entry was
 * pushed, else `refused`: without a frame it is certainly not queued, whatever became of its parts.
 * Where the disk is late, ingest/http/request.ts answers such a refusal with 500 instead of 503.
 */
export class LargeEntries {
  readonly #options: LargeEntriesOptions;
  #waiting: TimedEntry[] = [];
  readonly #active: TimedEntry[] = [];

  constructor(options: LargeEntriesOptions) {
    this.#options = options;
  }

  add(large: LargeEntry): void {
    const timed = this.#withDeadline(large);
    if (this.#active.length < LARGE_ENTRIES_ACTIVE_MAX) void this.#run(timed);
    else this.#waiting.push(timed);
  }

  /** There has been no connection for too long: entries that have not begun are refused at once. */
  refuseWaiting(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { done } of waiting) done('refused');
  }

  /**
   * The same entry, with a `done` that is called once, by the deadline. Nothing is pushed after it.
   */
  #withDeadline(large: LargeEntry): TimedEntry {
    let finished = false;
    const done = (result: PublishResult): void => {
      if (finished) return;
      finished = true;
      clearTimeout(timer);
      large.done(result);
    };
    let pushed = false;
    const push = (queued: QueuedEntry): void => {
      if (finished) return;
      pushed = true;
      large.push(queued);
    };
    const timed = { ...large, done, push, isOver: () => finished };
    const atDeadline = (): void => {
      remove(this.#waiting, timed);
      done(pushed ? 'unknown' : 'refused');
    };
    const timer = setTimeout(atDeadline, Math.max(1, large.deadline - this.#options.sender.monotonic()));
    return timed;
  }

  async #run(large: TimedEntry): Promise<void> {
    this.#active.push(large);
    try {
      await this.#write(large);
    } catch (error) {
      if (error instanceof AssertionError) throw error;
      // The source of an entry that is over is closed.
      if (!large.isOver()) this.#options.onError(error);
      large.done('refused');
    } finally {
      remove(this.#active, large);
      this.#startNext();
    }
  }

  #startNext(): void {
    const next = nextInTurn(
      this.#waiting,
      ({ entry: { projectId } }) => this.#active.filter(({ entry }) => entry.projectId === projectId).length,
    );
    if (!next) return;
    remove(this.#waiting, next);
    void this.#run(next);
  }

  async #write({ entry, source, deadline, push, isRefusing, done }: LargeEntry): Promise<void> {
    const { sender, shares } = this.#options;
    const partBytesMax = this.#options.partBytesMax();
    // Spooled, and yet it fits a frame: 128 to some 500 KiB, or less while memory was short.
    if (source.length + encodedBytesBound(entry) <= partBytesMax) {
      const whole = await source.read(0, source.length);
      const joined = joinParts(entry, whole);
      return push({ entry: joined, bytes: encodedBytesBound(joined), deadline, done });
    }
    const { projectId } = entry;
    // An entry that will be refused is refused before its parts are written: the parts would stay
    // until the sweep, in the room of large entries for other streams.
    if (isRefusing() || !shares.allows(projectId)) return done('refused');
    const startedAt = sender.monotonic();
    const split = splitEntry({ entry, source }, partBytesMax);
    const { source: whole } = split;
    shares.begin(projectId, whole.length);
    const options = { projectId, source: whole, partBytesMax, deadline };
    const written = await writeParts(sender, options).finally(() => shares.end(projectId, whole.length));
    if (!written.ok) return done('refused');
    const named = { ...split.entry, parts: written.parts };
    push({
      entry: named,
      bytes: encodedBytesBound(named),
      deadline,
      done: (result) => {
        // Parts are swept after a while: a frame that was stored too late may name some that are
        // gone.
        const late = sender.monotonic() - startedAt > PARTS_AGE_MS_MAX;
        done(result === 'stored' && late ? 'unknown' : result);
      },
    });
  }
}
