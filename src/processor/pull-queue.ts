import type { ConsumerInfo, JetStreamManager } from '@nats-io/jetstream';
import { type Msg, millis, nanos } from '@nats-io/transport-node';
import type { Log } from '../lib/log.ts';
import {
  ACK_WAIT_MS,
  FRAME_BYTES_MAX,
  GONE_LOOK_MS,
  PREFETCH_FRAMES_MAX,
  PULL_EXPIRES_MS,
  PULL_RETRY_MS,
  SINK_BATCH_BYTES_MAX,
  SINK_BATCH_FRAMES_MAX,
  SUSPECTS_IN_TURN_MAX,
} from '../limits.ts';
import { acknowledgeGone, isGone } from '../stream/backlog.ts';
import type { LastingSubscription, NatsLink } from '../stream/nats.ts';
import { CONSUMER } from '../stream/topology.ts';
import { Delivery } from './delivery.ts';
import { FrameBlocks, type KeptFrame } from './frame-blocks.ts';

/**
 * The least that a pull asks for: room for a frame with its subject, reply subject and headers,
 * which the broker counts too.
 */
const PULL_BYTES_MIN = 2 * FRAME_BYTES_MAX;
/** The broker's answer to a pull may be under way when its time is up. */
const PULL_GRACE_MS = 1_000;
/** The broker hears of a frame at the second look, after half of the ack wait at the latest. */
const LOOKS_PER_ACK_WAIT = 4;

const Status = { heartbeat: 100, timeout: 408, notFound: 404, conflict: 409 } as const;

export type PullQueueOptions = {
  link: NatsLink;
  stream: string;
  bytesMax: number;
  log: Log;
  goneLookMs?: number;
};

function oldestOf(frames: Iterable<Delivery>): number {
  let oldest = Number.POSITIVE_INFINITY;
  for (const { storedAt } of frames) oldest = Math.min(oldest, storedAt);
  return oldest;
}

/**
 * Frames of one stream, fetched ahead of their use.
 *
 * A pull request is open at the broker whenever there is room. So a frame that comes alone is
 * delivered at once, and under load the next frames arrive while the last are written. Bytes and
 * number of all frames in hand, fetched or taken, are bounded: a pull asks for the free room, one
 * pull at a time. For a frame that is still here at a second look, the broker gets `working()`:
 * after five seconds at the latest, then every 2.5 s. So frames may wait here as long as a sink
 * fails, and frames that pass quickly cost no message.
 *
 * A message larger than the free room, which no worker of ours sends, is fetched alone, when no
 * frame is in hand.
 *
 * A pull ends with the last frame that it asked for, with a status from the broker, or after its
 * time when the status was lost. While the stream or the consumer is missing, this class looks for
 * it once a second.
 *
 * A consumer may wait for messages that are gone (nats-server 2.9 after a kill). That is seen when
 * a pull's time is over though frames wait. Under load pulls are filled all the same: then the
 * consumer is asked from time to time whether that may be so. What is gone is acknowledged.
 */
export class PullQueue {
  readonly #link: NatsLink;
  readonly stream: string;
  readonly #bytesMax: number;
  readonly #log: Log;
  readonly #goneLookMs: number;
  readonly #inbox: string;
  #subscription: LastingSubscription | undefined;
  /** Fetched, not taken yet. */
  #queued: Delivery[] = [];
  #queuedBytes = 0;
  /** Fetched and not settled. */
  readonly #inHand = new Map<Delivery, KeptFrame>();
  /** Without their bytes: the sink holds them until it makes them durable. */
  readonly #held = new Set<Delivery>();
  /** The broker gives out no more before some frames are acknowledged. */
  #isStarved = false;
  readonly #memory = new FrameBlocks();
  #inHandBytes = 0;
  /** Frames that were in hand at the last look. */
  #lingering: ReadonlySet<Delivery> = new Set();
  /** The open pull: its number, and the frames it still asks for. 0 when there is none. */
  #pull = 0;
  #pulls = 0;
  #wanted = 0;
  /** It brought nothing yet. */
  #barren = true;
  #pullTimer: NodeJS.Timeout | undefined;
  /**
   * How long a pull is open. At most half of the ack wait, so that no pull outlives its process
   * until a redelivery is due: nats-server 2.9 gives the redelivery to the dead process's pull, and
   * counts deliveries from one again.
   */
  #expiresMs = PULL_EXPIRES_MS;
  #workingTimer: NodeJS.Timeout | undefined;
  #missing = false;
  /** When it was last looked for messages that are gone, on the monotonic clock. */
  #lookedForGone = Number.NEGATIVE_INFINITY;
  /** The next {@link #checkUnderLoad}; infinity while one is under way. */
  #checkUnderLoadAt: number;
  /** The next message is larger than what was free. */
  #oversized = false;
  #stopped = false;
  /** Stopped, and what was on its way is here. */
  #isComplete = false;
  #wake: (() => void) | undefined;

  constructor(options: PullQueueOptions) {
    const { goneLookMs = GONE_LOOK_MS } = options;
    this.#link = options.link;
    this.#inbox = options.link.inbox();
    this.stream = options.stream;
    this.#bytesMax = options.bytesMax;
    this.#log = options.log;
    this.#goneLookMs = goneLookMs;
    this.#checkUnderLoadAt = performance.now() + goneLookMs;
  }

  start(): void {
    this.#subscription = this.#link.subscribe(`${this.#inbox}.*`, (msg) => this.#receive(msg));
    this.#link.onReconnect(() => this.#endPull());
    this.#workingTimer = setInterval(() => {
      const waiting = [...this.#inHand.keys(), ...this.#held];
      for (const delivery of waiting) if (this.#lingering.has(delivery)) delivery.working();
      this.#lingering = new Set(waiting);
    }, ACK_WAIT_MS / LOOKS_PER_ACK_WAIT);
    void this.#check();
  }

  /** Fetches no more. Resolves when the frames that are on their way have come. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#pullTimer);
    if (this.#link.connected) await this.#subscription?.drain();
    else this.#subscription?.unsubscribe();
    this.#isComplete = true;
    this.#wake?.();
  }

  /** Called after all taken frames were settled or held. Gives back the others, and those held. */
  close(): void {
    clearInterval(this.#workingTimer);
    const left = [...this.#queued, ...this.#held];
    for (const delivery of left) delivery.giveBack();
    this.settle(left);
    this.#queued = [];
  }

  // ---- Frames in hand ----

  /** Whether as much is there as one batch takes. */
  get full(): boolean {
    return this.#queuedBytes >= SINK_BATCH_BYTES_MAX || this.#queued.length >= SINK_BATCH_FRAMES_MAX;
  }

  get isEmpty(): boolean {
    return this.#queued.length === 0;
  }

  /** Nothing is left, and nothing more will come. */
  get isOver(): boolean {
    return this.isEmpty && this.#isComplete;
  }

  /** Whether the next frame is one that may not share a batch. */
  hasSuspect(mayShare: (delivery: Delivery) => boolean): boolean {
    const [next] = this.#queued;
    return next !== undefined && !mayShare(next);
  }

  /** When the broker stored the oldest frame in hand, Unix milliseconds; infinity without one. */
  get oldest(): number {
    return oldestOf(this.#inHand.keys());
  }

  /** The same of the frames that the sink holds. */
  get oldestHeld(): number {
    return oldestOf(this.#held);
  }

  get heldFrames(): number {
    return this.#held.size;
  }

  /**
   * The broker gives out no more before the sink has stored what it holds: all processors together
   * hold as many frames as they may, and each may have too few for its sink to store them.
   */
  get isStarved(): boolean {
    return this.#isStarved;
  }

  /** Resolves when a frame comes, when the queue is full or starved, after stop(), or after `ms`. */
  async untilChange(ms?: number): Promise<void> {
    if (this.#isComplete) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (ms !== undefined) timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
    this.#wake = undefined;
  }

  /** The next frames in order: a batch of those that may share one, or a few that may not. */
  take(mayShare: (delivery: Delivery) => boolean): Delivery[] {
    const isShared = !this.hasSuspect(mayShare);
    const most = isShared ? SINK_BATCH_FRAMES_MAX : SUSPECTS_IN_TURN_MAX;
    let count = 0;
    for (let bytes = 0; count < this.#queued.length && count < most; count++) {
      const next = this.#queued[count] as Delivery;
      bytes += next.data.length;
      if (count > 0 && (mayShare(next) !== isShared || bytes > SINK_BATCH_BYTES_MAX)) break;
    }
    const taken = this.#queued.splice(0, count);
    for (const { data } of taken) this.#queuedBytes -= data.length;
    return taken;
  }

  /**
   * These frames are acknowledged or given back, and no code reads their bytes any more: other
   * frames overwrite them.
   */
  settle(deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries) this.#letGo(delivery);
    this.#ask();
  }

  /**
   * The sink holds these frames: no code reads their bytes any more, and they take no room. They
   * are settled like others.
   */
  hold(deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries) {
      this.#letGo(delivery);
      delivery.forget();
      this.#held.add(delivery);
    }
    this.#ask();
  }

  #letGo(delivery: Delivery): void {
    if (this.#held.delete(delivery)) this.#isStarved = false;
    const kept = this.#inHand.get(delivery);
    if (!kept) return;
    this.#inHand.delete(delivery);
    this.#inHandBytes -= delivery.data.length;
    this.#memory.release(kept);
  }

  // ---- Pulls ----

  #ask(): void {
    const bytes = this.#bytesMax - this.#inHandBytes;
    const frames = this.#oversized ? 1 : PREFETCH_FRAMES_MAX - this.#inHand.size;
    const room = this.#oversized ? this.#inHand.size === 0 : bytes >= PULL_BYTES_MIN && frames > 0;
    if (this.#stopped || this.#pull !== 0 || !room || !this.#link.connected) return;
    this.#pull = ++this.#pulls;
    this.#wanted = frames;
    this.#barren = true;
    const bound = this.#oversized ? {} : { max_bytes: bytes };
    const request = { batch: frames, ...bound, expires: nanos(this.#expiresMs) };
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${this.stream}.${CONSUMER}`;
    this.#link.connection.publish(subject, JSON.stringify(request), {
      reply: `${this.#inbox}.${this.#pull}`,
    });
    this.#pullTimer = setTimeout(() => void this.#check(), this.#expiresMs + PULL_GRACE_MS);
  }

  /**
   * The broker does not answer a pull to a missing consumer: look for the consumer, then pull.
   * `unfilled`: the last pull's time was over.
   */
  async #check({ unfilled = false } = {}): Promise<void> {
    clearTimeout(this.#pullTimer);
    const pull = this.#pull;
    try {
      const manager = await this.#link.manager();
      const info = await manager.consumers.info(this.stream, CONSUMER);
      const ackWait = millis(info.config.ack_wait ?? nanos(ACK_WAIT_MS));
      this.#expiresMs = Math.min(PULL_EXPIRES_MS, ackWait / 2);
      if (unfilled && (info.num_pending > 0 || (await this.#mayWaitForGone(manager, info))))
        await this.#lookForGone();
      const isExhausted = info.num_ack_pending >= (info.config.max_ack_pending ?? Infinity);
      this.#isStarved = unfilled && this.#held.size > 0 && info.num_pending > 0 && isExhausted;
      if (this.#isStarved) this.#wake?.();
    } catch (error) {
      if (pull === this.#pull) this.#retryLater((error as Error).message);
      return;
    }
    if (pull !== this.#pull) return; // a reconnect has begun another one meanwhile
    if (this.#missing) this.#log.info({ stream: this.stream }, 'processor: the stream is there');
    this.#missing = false;
    this.#endPull();
  }

  /** Under load frames wait in any case, so that is no reason. Pulls go on meanwhile. */
  async #checkUnderLoad(): Promise<void> {
    this.#checkUnderLoadAt = Number.POSITIVE_INFINITY;
    try {
      const manager = await this.#link.manager();
      const info = await manager.consumers.info(this.stream, CONSUMER);
      if (await this.#mayWaitForGone(manager, info)) await this.#lookForGone();
    } catch (error) {
      this.#log.debug({ stream: this.stream, err: error }, 'processor: not looked for what is gone');
    }
    this.#checkUnderLoadAt = performance.now() + this.#goneLookMs;
  }

  /**
   * Whether the consumer has redeliveries, or its floor is far behind and the message right beyond
   * it is gone.
   */
  async #mayWaitForGone(manager: JetStreamManager, info: ConsumerInfo): Promise<boolean> {
    const { num_redelivered, delivered, ack_floor, num_ack_pending } = info;
    if (num_redelivered > 0) return true;
    const beyondFloor = delivered.consumer_seq - ack_floor.consumer_seq;
    if (beyondFloor - num_ack_pending <= PREFETCH_FRAMES_MAX) return false;
    return isGone(manager, this.stream, ack_floor.stream_seq + 1);
  }

  async #lookForGone(): Promise<void> {
    const now = performance.now();
    if (now - this.#lookedForGone < this.#goneLookMs) return;
    this.#lookedForGone = now;
    const gone = await acknowledgeGone(this.#link, { stream: this.stream, consumer: CONSUMER });
    const what = { stream: this.stream, sequences: gone };
    if (gone > 0) this.#log.info(what, 'processor: acknowledged frames that are gone');
  }

  #endFilledPull(): void {
    this.#endPull();
    if (performance.now() >= this.#checkUnderLoadAt) void this.#checkUnderLoad();
  }

  #endPull(): void {
    clearTimeout(this.#pullTimer);
    this.#pull = 0;
    this.#ask();
  }

  #retryLater(reason: string): void {
    if (this.#stopped) return;
    if (!this.#missing)
      this.#log.warn({ stream: this.stream, reason }, 'processor: no frames to be had, asking again');
    this.#missing = true;
    clearTimeout(this.#pullTimer);
    this.#pullTimer = setTimeout(() => void this.#check(), PULL_RETRY_MS);
  }

  #receive(msg: Msg): void {
    if (msg.headers?.code) return this.#status(msg);
    this.#oversized = false;
    this.#barren = false;
    const kept = this.#memory.keep(msg.data);
    const delivery = new Delivery(msg, kept.bytes, this.#link);
    this.#queued.push(delivery);
    this.#queuedBytes += delivery.data.length;
    this.#inHand.set(delivery, kept);
    this.#inHandBytes += delivery.data.length;
    if (--this.#wanted === 0) this.#endFilledPull();
    if (this.#queued.length === 1 || this.full) this.#wake?.();
  }

  #status(msg: Msg): void {
    // Of a pull that is over.
    if (this.#stopped || msg.subject !== `${this.#inbox}.${this.#pull}`) return;
    const code = msg.headers?.code ?? 0;
    const reason = msg.headers?.description ?? '';
    if (code === Status.heartbeat) return;
    const tooLarge = code === Status.conflict && /Size/.test(reason);
    // Said as well when the messages before it have used up what was free.
    if (tooLarge && this.#barren) this.#oversized = true;
    if (code === Status.timeout) void this.#check({ unfilled: true });
    else if (tooLarge) this.#endFilledPull();
    else if (code === Status.notFound) this.#endPull();
    else this.#retryLater(`${code} ${reason}`);
  }
}
