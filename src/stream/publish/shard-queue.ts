import type { Distribution } from '../../lib/metrics/distribution.ts';
import type { Slotted } from '../../lib/slots.ts';
import {
  FRAME_DEADLINES_APART_MS_MAX,
  FRAME_ENTRIES_MAX,
  FRAMES_IN_FLIGHT_EAGER,
  FRAMES_IN_FLIGHT_MAX,
  STREAM_BYTES_IN_FLIGHT_MAX,
} from '../../limits.ts';
import { type Entry, encodeFrame, FRAME_BYTES_PER_ENTRY, traceLines } from '../frame.ts';
import type { Sender } from './sender.ts';

export type PublishResult = 'stored' | 'refused' | 'unknown';

/** An entry that waits for its frame. */
export type QueuedEntry = {
  entry: Entry;
  /** At most so many bytes when it is encoded. */
  bytes: number;
  /** Monotonic ms. */
  deadline: number;
  /** Of the entry's project, where there are shares. */
  project?: Slotted | undefined;
  /** Its frame holds no other entry. */
  isAlone?: boolean;
  /** Of a sampled entry. */
  traceparent?: string | undefined;
  done(result: PublishResult): void;
};

/** After a refusal large entries write no parts for so long, unless a frame is stored. */
const REFUSING_MS = 1_000;

export type ShardQueueOptions = {
  sender: Sender;
  stream: string;
  subject: string;
  /** Bytes of entries that fit one frame at this moment. */
  frameBytesMax(): number;
  frameEntries: Distribution;
  /** Told of each entry, once. */
  onEnd(entry: QueuedEntry, result: PublishResult): void;
  /** Told of each frame that the stream acknowledged, before its entries are. */
  onStored(frame: Uint8Array): void;
};

/**
 * The frames of one stream and shard. Entries gather in a queue, leave in frames, and learn the
 * result of their frame.
 *
 * Smart batching: no frame waits to be filled, and none leaves half-full beside another. While
 * fewer than FRAMES_IN_FLIGHT_EAGER are on their way, the queue leaves at the end of the turn. At
 * or above that, entries gather until a frame returns or until they fill one (then up to
 * FRAMES_IN_FLIGHT_MAX). So at rest an entry does not wait, and under load frames grow with the
 * round trip instead of multiplying.
 *
 * The end of the turn is setImmediate, after the sockets' callbacks of one poll: a microtask would
 * run between two callbacks and send one frame for each.
 *
 * Without a connection entries gather too, until there is one or the broker counts as away.
 *
 * Bytes in flight are those of entries from the queue to the answer. Each queue has its own
 * bound, so that a stream that is full or has no leader cannot starve the others.
 */
export class ShardQueue {
  readonly #options: ShardQueueOptions;
  #queue: QueuedEntry[] = [];
  #queuedBytes = 0;
  #bytesInFlight = 0;
  #framesInFlight = 0;
  /** Set while a flush is due at the end of this turn. */
  #flushing = false;
  /**
   * Runs while entries wait for the answer to a frame or for a connection, until the deadline of
   * the entry that was first in the queue.
   */
  #expiry: NodeJS.Timeout | undefined;
  /** When a frame was refused last, monotonic ms. */
  #refusedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ShardQueueOptions) {
    this.#options = options;
  }

  push(entry: QueuedEntry): void {
    if (!this.#options.sender.hasRoom || this.#bytesInFlight + entry.bytes > STREAM_BYTES_IN_FLIGHT_MAX)
      return this.#options.onEnd(entry, 'refused');
    this.#queue.push(entry);
    this.#queuedBytes += entry.bytes;
    this.#bytesInFlight += entry.bytes;
    this.#flushSoon();
  }

  /** A frame was refused within the last second, and none was stored since. */
  get isRefusing(): boolean {
    return this.#options.sender.monotonic() - this.#refusedAt < REFUSING_MS;
  }

  /** There is a connection again. */
  resume(): void {
    this.#flushSoon();
  }

  /** There has been no connection for too long: what was never sent is refused. */
  refuseQueued(): void {
    this.#settle(this.#take(this.#queue.length), 'refused');
  }

  #flushSoon(): void {
    if (this.#flushing) return;
    if (!this.#maySend()) return this.#watchHead();
    this.#flushing = true;
    setImmediate(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  #maySend(): boolean {
    if (this.#queue.length === 0 || !this.#options.sender.connected) return false;
    if (this.#framesInFlight < FRAMES_IN_FLIGHT_EAGER) return true;
    return this.#framesInFlight < FRAMES_IN_FLIGHT_MAX && this.#fillsFrame();
  }

  #fillsFrame(): boolean {
    return (
      this.#queue.length >= FRAME_ENTRIES_MAX ||
      this.#queuedBytes + this.#queue.length * FRAME_BYTES_PER_ENTRY >= this.#options.frameBytesMax()
    );
  }

  #flush(): void {
    this.#expire();
    while (this.#maySend()) this.#sendFrame();
    this.#watchHead();
  }

  #sendFrame(): void {
    const { sender, stream, subject, frameEntries, onStored } = this.#options;
    const entries = this.#take(this.#countForFrame());
    const deadline = entries.reduce((earliest, entry) => Math.min(earliest, entry.deadline), Infinity);
    const data = encodeFrame(entries.map(({ entry }) => entry));
    frameEntries.observe(entries.length);
    this.#framesInFlight++;
    const traces = traceLines(entries);
    sender.send({ stream, subject, data, deadline, traces }, ({ result }) => {
      this.#framesInFlight--;
      if (result === 'refused') this.#refusedAt = sender.monotonic();
      if (result === 'stored') {
        this.#refusedAt = Number.NEGATIVE_INFINITY;
        onStored(data);
      }
      this.#settle(entries, result);
      this.#flushSoon();
    });
  }

  /**
   * How many entries from the head share the next frame: at least one. They fit it, and their
   * deadlines are close together, because the first deadline ends the attempts for all: a late
   * upload must not spoil its neighbours. A heavy one is alone.
   */
  #countForFrame(): number {
    const head = this.#queue[0] as QueuedEntry;
    const bytesMax = this.#options.frameBytesMax();
    let bytes = 0;
    let count = 0;
    for (const entry of this.#queue) {
      bytes += entry.bytes + FRAME_BYTES_PER_ENTRY;
      const apart = Math.abs(entry.deadline - head.deadline) > FRAME_DEADLINES_APART_MS_MAX;
      if (count > 0 && (bytes > bytesMax || apart || entry.isAlone)) break;
      count++;
      if (count === FRAME_ENTRIES_MAX || entry.isAlone) break;
    }
    return count;
  }

  #take(count: number): QueuedEntry[] {
    const taken = this.#queue.splice(0, count);
    for (const { bytes } of taken) this.#queuedBytes -= bytes;
    return taken;
  }

  #settle(entries: readonly QueuedEntry[], result: PublishResult): void {
    for (const { bytes } of entries) this.#bytesInFlight -= bytes;
    for (const entry of entries) this.#options.onEnd(entry, result);
  }

  /** Entries at the head whose time ran out unsent: certainly in no stream. */
  #expire(): void {
    const now = this.#options.sender.monotonic();
    let count = 0;
    while (count < this.#queue.length && (this.#queue[count] as QueuedEntry).deadline - now < 1) count++;
    if (count > 0) this.#settle(this.#take(count), 'refused');
  }

  #watchHead(): void {
    const head = this.#queue[0];
    if (!head || this.#expiry) return;
    const ms = Math.max(1, head.deadline - this.#options.sender.monotonic());
    this.#expiry = setTimeout(() => {
      this.#expiry = undefined;
      this.#flush();
    }, ms).unref();
  }
}
