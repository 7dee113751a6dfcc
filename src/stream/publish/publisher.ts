import type { Clock } from '../../lib/clock.ts';
import { FairShare } from '../../lib/fair-share.ts';
import type { ByteSource } from '../../lib/files/byte-source.ts';
import { hashOf } from '../../lib/hash.ts';
import type { Log } from '../../lib/log.ts';
import { COUNT_BOUNDS, Distribution } from '../../lib/metrics/distribution.ts';
import type { Slotted } from '../../lib/slots.ts';
import {
  FRAME_BYTES_MAX,
  FRAME_OVERHEAD_BYTES,
  PUBLISH_BYTES_IN_FLIGHT_MAX,
  PUBLISH_ENTRIES_IN_FLIGHT_MAX,
  STREAM_BYTES_IN_FLIGHT_MAX,
} from '../../limits.ts';
import { type Entry, encodedBytesBound } from '../frame.ts';
import type { NatsLink } from '../nats.ts';
import { sourceOf } from '../parts.ts';
import { TailFeed } from '../tail.ts';
import { FRAME_STREAMS, type FrameStream, STREAM_OF_TYPE, streamName, streamSubject } from '../topology.ts';
import { isHeavy, WorkShares, workOf } from '../work.ts';
import { LargeEntries } from './large-entries.ts';
import { PartShares } from './part-shares.ts';
import { Sender } from './sender.ts';
import { type PublishResult, type QueuedEntry, ShardQueue } from './shard-queue.ts';

export type { PublishResult } from './shard-queue.ts';

type PublishOptions = {
  /** Monotonic ms after which no further attempt is made. */
  deadline: number;
  /** Holds all payloads, one after the other. The items then have none. */
  source?: ByteSource | undefined;
  /** The traceparent of a sampled entry. It names the parent of the processor's span. */
  traceparent?: string;
  /** Project of the entry; undefined for a heartbeat. */
  project?: Slotted;
};

export type PublisherOptions = {
  link: NatsLink;
  /**
   * A connection for parts alone. A broker stores the messages of one connection in order, so on a
   * shared connection frames would wait for parts.
   */
  partsLink?: NatsLink;
  shards: number;
  /** Number of workers of this machine that publish. */
  workers?: number;
  /**
   * Whether there may be more than one project. Only then is the work of a project for the
   * processors bounded (work.ts).
   */
  isShared?: () => boolean;
  clock: Clock;
  log: Log;
};

const streamOf = (entry: Entry): FrameStream => {
  const [first] = entry.kind === 'envelope' ? entry.items : [];
  return first ? STREAM_OF_TYPE[first.type] : 'heartbeats';
};

/**
 * Brings entries into their streams and reports the result of each entry exactly once:
 *
 * - `stored`: JetStream acknowledged the frame that holds the whole entry.
 * - `refused`: the entry is certainly in no stream, and will be in none.
 * - `unknown`: the entry may be in a stream, now or later.
 *
 * Before an entry's frame is sent, the publisher, the shard's queue or large-entries.ts may refuse
 * the entry. From then on sender.ts decides, at the frame's deadline at the latest.
 *
 * An entry goes to the stream of its first item and to the shard of its event id, so that a resend
 * meets its original. An entry that fits into a frame joins the next frame of its shard
 * (shard-queue.ts). A larger one first writes its payloads as parts (large-entries.ts). A sender
 * sends frames and parts, and repeats those that were not acknowledged.
 *
 * Every wait is bounded. The number of entries between `publish` and `done` has a bound. The bytes
 * of entries that are queued or in flight have bounds, for each shard and in all. Beyond the
 * bounds, and while NATS is away, entries are refused at once. When the connection is lost, entries
 * wait up to BROKER_AWAY_MS_MAX for another connection. Parts in flight have bounds of their own:
 * LARGE_ENTRIES_ACTIVE_MAX entries with PARTS_IN_FLIGHT_MAX parts each.
 */
export class Publisher {
  readonly stats: {
    /** Messages sent, by stream. Parts are included, repetitions are not. */
    publishes: Readonly<Record<string, number>>;
    /** Seconds from the first attempt of a message to its acknowledgement. */
    duration: Distribution;
    frameEntries: Distribution;
  };
  readonly #sender: Sender;
  readonly #partsSender: Sender;
  readonly #queues: Record<FrameStream, readonly ShardQueue[]>;
  readonly #large: LargeEntries;
  readonly #shards: number;
  readonly #frameBytesMax: () => number;
  readonly #partShares: PartShares;
  readonly #workShares: WorkShares;
  /**
   * Fair share of the bytes in flight over all streams. The bound is that of one stream, because a
   * project's entries usually go to one stream.
   */
  readonly #share = new FairShare(STREAM_BYTES_IN_FLIGHT_MAX);
  #entriesInFlight = 0;
  #bytesInFlight = 0;
  #whenDrained: (() => void)[] = [];

  constructor(options: PublisherOptions) {
    const { link, partsLink = link, shards, clock, log } = options;
    const { workers = 1, isShared = () => false } = options;
    const sender = new Sender({ link, clock, log });
    const partsSender =
      partsLink === link ? sender : new Sender({ link: partsLink, clock, log, like: sender });
    const tail = new TailFeed({ link, clock, of: 'frames' });
    const frameEntries = new Distribution(COUNT_BOUNDS);
    // Half of the largest message, because the broker may return a part in base64.
    const frameBytesMax = (): number =>
      Math.min(FRAME_BYTES_MAX, Math.floor(sender.maxPayload / 2)) - FRAME_OVERHEAD_BYTES;
    const queuesOf = (kind: FrameStream): ShardQueue[] =>
      Array.from({ length: shards }, (_, shard) => {
        const stream = streamName(kind, shard, shards);
        const subject = streamSubject(kind, shard);
        const onStored = (frame: Uint8Array): void => tail.show(kind, frame);
        const onEnd = (entry: QueuedEntry, result: PublishResult): void => {
          this.#countBytes(entry, -1);
          entry.done(result);
        };
        return new ShardQueue({ sender, stream, subject, frameBytesMax, frameEntries, onEnd, onStored });
      });
    this.#queues = Object.fromEntries(FRAME_STREAMS.map((kind) => [kind, queuesOf(kind)])) as Record<
      FrameStream,
      ShardQueue[]
    >;
    this.#partShares = new PartShares(link);
    this.#workShares = new WorkShares({ link, clock, workers, isShared });
    this.#large = new LargeEntries({
      sender: partsSender,
      shares: this.#partShares,
      partBytesMax: frameBytesMax,
      onError: (error) =>
        log.error({ err: error }, 'stream: the payloads of a large entry could not be read'),
    });
    this.#sender = sender;
    this.#partsSender = partsSender;
    this.#shards = shards;
    this.#frameBytesMax = frameBytesMax;
    this.stats = { publishes: sender.publishes, duration: sender.duration, frameEntries };
    link.onReconnect(() => this.#eachQueue((queue) => queue.resume()));
    link.onAway(() => this.#refuseUnsent());
    partsLink.onAway(() => this.#large.refuseWaiting());
  }

  /**
   * False while NATS is away, and while entries in flight, bytes in flight or unsent bytes are at
   * their bound. Requests are then refused before they use a token.
   */
  get available(): boolean {
    return (
      this.#sender.hasRoom &&
      this.#entriesInFlight < PUBLISH_ENTRIES_IN_FLIGHT_MAX &&
      this.#bytesInFlight < PUBLISH_BYTES_IN_FLIGHT_MAX
    );
  }

  /**
   * Whether the publisher takes an envelope of the project. The publisher must be {@link
   * available}. The project must be within its shares of the bytes in flight and of the processors'
   * work; for a large envelope, also within its share of the chunks stream.
   * @param bytes approximate size of the envelope
   */
  hasRoomFor(projectId: string, project: Slotted, bytes: number): boolean {
    if (!this.available || !this.#share.allows(project) || !this.#workShares.allows(projectId)) return false;
    if (bytes <= this.#frameBytesMax()) return true;
    return this.#partsSender.hasRoom && this.#partShares.allows(projectId);
  }

  /** Whether each connection is up. Without `parts`, only large envelopes are refused. */
  get connections(): Readonly<Record<'frames' | 'parts', boolean>> {
    return { frames: this.#sender.connected, parts: this.#partsSender.connected };
  }

  /**
   * Upper bound of the bytes of entries that are queued or in flight; text is counted at three
   * bytes a character.
   */
  get inFlightBytes(): number {
    return this.#bytesInFlight;
  }

  /**
   * Queues an entry, and reports its result.
   * @param entry its items hold their payloads, unless `source` holds all of them. The bytes must
   * not change until `done`: they are copied only when the frame leaves
   * @param done is called exactly once, perhaps before this method returns
   */
  publish(
    entry: Entry,
    { deadline, source, project, traceparent }: PublishOptions,
    done: (result: PublishResult) => void,
  ): void {
    // Several requests may have passed `hasRoomFor` before any of them was counted, so the share is
    // checked again.
    if (!this.available || (project && !this.#share.allows(project))) return done('refused');
    const projectId = entry.kind === 'envelope' ? entry.projectId : undefined;
    if (projectId !== undefined && !this.#workShares.allows(projectId)) return done('refused');
    const owed = entry.kind === 'envelope' ? this.#workShares.add(entry.projectId, workOf(entry)) : 0;
    this.#entriesInFlight++;
    const finish = (result: PublishResult): void => {
      this.#entriesInFlight--;
      if (result === 'refused' && projectId !== undefined) this.#workShares.takeBack(projectId, owed);
      done(result);
      if (this.#entriesInFlight === 0) this.#drained();
    };
    const queue = this.#queueOf(entry);
    const bytes = encodedBytesBound(entry);
    const isAlone = entry.kind === 'envelope' && isHeavy(entry);
    if (entry.kind === 'envelope' && (source || bytes > this.#frameBytesMax())) {
      const push = (queued: QueuedEntry): void =>
        this.#push(queue, { ...queued, project, isAlone, traceparent });
      const isRefusing = (): boolean => queue.isRefusing;
      const large = { entry, source: source ?? sourceOf(entry), deadline, push, isRefusing };
      return this.#large.add({ ...large, done: finish });
    }
    this.#push(queue, { entry, bytes, project, isAlone, deadline, traceparent, done: finish });
  }

  /** Resolves when no entry is queued or in flight. */
  drain(): Promise<void> {
    if (this.#entriesInFlight === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenDrained.push(resolve));
  }

  #push(queue: ShardQueue, queued: QueuedEntry): void {
    if (this.#bytesInFlight + queued.bytes > PUBLISH_BYTES_IN_FLIGHT_MAX) return queued.done('refused');
    this.#countBytes(queued, 1);
    queue.push(queued);
  }

  #countBytes({ bytes, project }: QueuedEntry, sign: 1 | -1): void {
    this.#bytesInFlight += sign * bytes;
    if (project) this.#share.add(project, sign * bytes);
  }

  #queueOf(entry: Entry): ShardQueue {
    const queues = this.#queues[streamOf(entry)];
    const shard = this.#shards === 1 ? 0 : hashOf(entry.kind === 'envelope' ? entry.eventId : entry.token);
    return queues[shard % this.#shards] as ShardQueue;
  }

  #refuseUnsent(): void {
    this.#eachQueue((queue) => queue.refuseQueued());
    this.#large.refuseWaiting();
  }

  #eachQueue(step: (queue: ShardQueue) => void): void {
    for (const queues of Object.values(this.#queues)) for (const queue of queues) step(queue);
  }

  #drained(): void {
    const waiting = this.#whenDrained;
    this.#whenDrained = [];
    for (const resolve of waiting) resolve();
  }
}
