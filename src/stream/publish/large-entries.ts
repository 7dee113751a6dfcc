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
  /** Monotonic ms at which the result is due. */
  deadline: number;
  /** Queues the frame entry that names the parts. */
  push(queued: QueuedEntry): void;
  /**
   * Whether the stream refused a frame a moment ago and has stored none since. Usually the stream
   * is full then.
   */
  isRefusing(): boolean;
  done(result: PublishResult): void;
};

/**
 * A large entry with a timer for its deadline. `isOver` tells whether its result has been given.
 */
type TimedEntry = LargeEntry & { isOver(): boolean };

export type LargeEntriesOptions = {
  sender: Sender;
  partBytesMax(): number;
  shares: PartShares;
  onError(error: unknown): void;
};

/**
 * Writes the payloads of entries as parts, before their frames. At most LARGE_ENTRIES_ACTIVE_MAX
 * entries write their parts at the same time; the others wait here. Waiting takes little memory,
 * since large payloads are in files. The next to begin is the oldest entry of the project that is
 * writing the fewest. An entry is refused when its project holds more than its share of the chunks
 * stream.
 *
 * Each entry has its own deadline timer, because reading a file has no time-out. At the deadline
 * the result is `unknown` if the entry was queued for a frame, otherwise `refused`. A refused
 * envelope is certainly not queued, even if its parts are stored.
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

  /**
   * Refuses all entries that have not begun. Called when there has been no connection for too long.
   */
  refuseWaiting(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { done } of waiting) done('refused');
  }

  /**
   * Adds a timer to an entry. The new `done` passes on only the first result, which comes at the
   * deadline at the latest. Nothing is pushed after it.
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
      // Once an entry's result was given, its source is closed, so reading the source fails. That
      // error is not reported.
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
    // Some spooled entries fit a frame: those of 128 to some 500 KiB, and smaller ones that came
    // while memory was short.
    if (source.length + encodedBytesBound(entry) <= partBytesMax) {
      const whole = await source.read(0, source.length);
      const joined = joinParts(entry, whole);
      return push({ entry: joined, bytes: encodedBytesBound(joined), deadline, done });
    }
    const { projectId } = entry;
    // Refused before its parts are written: they would stay in the chunks stream until the sweep.
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
        // The sweep (processor/part-sweeper.ts) removes old parts. So a frame that was stored late
        // may name parts that are gone.
        const late = sender.monotonic() - startedAt > PARTS_AGE_MS_MAX;
        done(result === 'stored' && late ? 'unknown' : result);
      },
    });
  }
}
