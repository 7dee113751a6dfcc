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
  /** Upper bound of the encoded entry's bytes. */
  bytes: number;
  /** Monotonic ms after which the entry is not sent any more. */
  deadline: number;
  /** The project to whose share the entry's bytes count, if any. */
  project?: Slotted | undefined;
  /** Whether the entry's frame may hold no other entry. */
  isAlone?: boolean;
  /** The traceparent of a sampled entry. */
  traceparent?: string | undefined;
  done(result: PublishResult): void;
};

/** After a refused frame, large entries write no parts for this long, unless a frame is stored. */
const REFUSING_MS = 1_000;

export type ShardQueueOptions = {
  sender: Sender;
  stream: string;
  subject: string;
  /** Most bytes of entries in one frame, at this moment. */
  frameBytesMax(): number;
  frameEntries: Distribution;
  /** Called once for each entry. */
  onEnd(entry: QueuedEntry, result: PublishResult): void;
  /** Called for each frame that the stream acknowledged, before `onEnd` of its entries. */
  onStored(frame: Uint8Array): void;
};

/**
 * Queues the entries of one stream, sends them in frames, and reports to each entry the result of
 * its frame.
 *
 * While fewer than FRAMES_IN_FLIGHT_EAGER frames are in flight, entries leave at the end of the
 * event loop's turn. While more frames are in flight (up to FRAMES_IN_FLIGHT_MAX), entries gather
 * until a frame is acknowledged or until they fill a frame. So under light traffic no entry waits,
 * and under load frames become larger rather than more numerous.
 *
 * The end of the turn is a setImmediate, which runs after all callbacks of the sockets. A microtask
 * would run after each callback, so each would send a frame of its own.
 *
 * While there is no connection, entries gather. They are refused at their deadline, or when
 * BROKER_AWAY_MS_MAX has passed.
 *
 * The bytes of an entry count as in flight from its queuing to its result. Each queue bounds its
 * own bytes, so that a stream that is full or has no leader cannot block the others.
 */
export class ShardQueue {
  readonly #options: ShardQueueOptions;
  #queue: QueuedEntry[] = [];
  #queuedBytes = 0;
  #bytesInFlight = 0;
  #framesInFlight = 0;
  /** True while a flush is due at the end of this turn. */
  #flushing = false;
  /**
   * Runs while entries wait for a connection or for a frame in flight. It fires at the deadline of
   * the entry that was first in the queue when the timer started.
   */
  #expiry: NodeJS.Timeout | undefined;
  /** When a frame was last refused, monotonic ms. */
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

  /** Whether a frame was refused within the last REFUSING_MS and none was stored since. */
  get isRefusing(): boolean {
    return this.#options.sender.monotonic() - this.#refusedAt < REFUSING_MS;
  }

  /** Lets queued entries leave, when there is a connection again. */
  resume(): void {
    this.#flushSoon();
  }

  /**
   * Refuses all entries in the queue, which were never sent. Called when there has been no
   * connection for too long.
   */
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
   * How many entries from the head of the queue share the next frame: at least one. They fit the
   * frame, and a heavy entry is alone in its frame. Their deadlines are close together, because the
   * earliest deadline ends the attempts for all of them.
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

  /**
   * Refuses entries at the head of the queue whose deadline has passed. They were never sent, so
   * they are certainly in no stream.
   */
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
