import { type Msg, nanos } from '@nats-io/transport-node';
import type { Log } from '../lib/log.ts';
import {
  FRAME_BYTES_MAX,
  GONE_LOOK_MS,
  PREFETCH_FRAMES_MAX,
  PULL_EXPIRES_MS,
  PULL_RETRY_MS,
  SINK_BATCH_BYTES_MAX,
  SINK_FILE_MS_MIN,
} from '../limits.ts';
import { GoneFrames, pullMsMax } from '../stream/backlog.ts';
import type { LastingSubscription, NatsLink } from '../stream/nats.ts';
import { CONSUMER } from '../stream/topology.ts';
import { Delivery } from './delivery.ts';
import { FramesInHand } from './frames-in-hand.ts';

/**
 * Least bytes that a pull asks for: room for a frame with its subject, reply subject and headers,
 * which the broker counts, too.
 */
const PULL_BYTES_MIN = 2 * FRAME_BYTES_MAX;
/** Extra wait after a pull's time is up, because the broker's answer may be under way. */
const PULL_GRACE_MS = 1_000;
/** How long the broker keeps a pull open that *gathers* ({@link PullQueue}). */
const GATHER_MS = 20;
/**
 * If at least this many bytes came in a *rest* ({@link PullQueue}), no rest follows. Otherwise the
 * broker would hold what piles up in memory, and send it in one go.
 */
const REST_BYTES_MAX = SINK_BATCH_BYTES_MAX / 2;

const Status = { heartbeat: 100, timeout: 408, notFound: 404, conflict: 409 } as const;

export type PullQueueOptions = {
  link: NatsLink;
  stream: string;
  bytesMax: number;
  log: Log;
  goneLookMs?: number;
};

type PullState =
  /** No pull is open, because there is no room or no connection. */
  | { readonly is: 'idle' }
  /**
   * A pull is open. `wanted`: number of frames that the pull still waits for. `pending`: number of
   * frames that the stream had left at the last delivery; undefined until the pull has brought a
   * frame.
   */
  | {
      readonly is: 'open';
      readonly number: number;
      readonly expiresMs: number;
      /** Monotonic ms. */
      readonly openedAt: number;
      wanted: number;
      pending: number | undefined;
      /** Bytes of the frames that the pull has brought. */
      bytes: number;
    }
  /** No pull is open, because the last one has brought the frames that there were. */
  | { readonly is: 'resting' }
  /**
   * The stream or the consumer is missing or does not answer. The next look comes after
   * PULL_RETRY_MS.
   */
  | { readonly is: 'missing' }
  /** Frames are fetched no more. */
  | { readonly is: 'stopped' };

/**
 * Fetches frames of one stream ahead of their use.
 *
 * A pull has one of three forms:
 *
 * - A pull that *gathers* asks for as many frames as there is room for, and ends after GATHER_MS.
 *   If the stream has more, another one gathers at once. If not, this class *rests* until
 *   {@link gather} is called, and the broker keeps the frames that come meanwhile: one delivery of
 *   many frames costs both sides far less than many deliveries.
 * - A pull that *waits* asks for one frame, after a pull that brought none. So a frame that comes
 *   alone is delivered at once.
 * - A pull that *follows* replaces the rest under load (REST_BYTES_MAX). It stays open for as many
 *   frames as there is room for, so the next frames arrive while the last ones are written.
 *
 * The bytes and the number of all frames in hand are bounded: one pull is open at a time, and it
 * asks for the free room at most. A message larger than the free room is fetched alone, when no
 * frame is in hand.
 *
 * A pull ends with the last frame that it asked for, or with a status from the broker, or when its
 * time is up and the status was lost. A pull that waited in vain may mean that the consumer is
 * missing, that messages are gone (stream/backlog.ts), or that sinks hold as many unacknowledged
 * frames as the broker allows. So the broker is then asked about the consumer.
 */
export class PullQueue {
  readonly frames: FramesInHand;
  readonly stream: string;
  readonly #link: NatsLink;
  readonly #bytesMax: number;
  readonly #log: Log;
  readonly #gone: GoneFrames;
  readonly #inbox: string;
  #subscription: LastingSubscription | undefined;
  #state: PullState = { is: 'idle' };
  /** Timer of the next {@link #check}, while a pull is open or the consumer is missing. */
  #timer: NodeJS.Timeout | undefined;
  #pulls = 0;
  /** How long the broker keeps a pull open that waits or follows. */
  #expiresMs = PULL_EXPIRES_MS;
  /** Whether the next message is larger than the free room. */
  #isOversized = false;
  /** Form of the pull that is open, or of the next pull while none is. */
  #form: 'gathers' | 'waits' | 'follows' = 'gathers';
  /** Bytes of the frames that were gathered since the last rest. */
  #gathered = 0;
  /** Called once, at the next change of the state. */
  #onChange: (() => void) | undefined;

  constructor({ link, stream, bytesMax, log, goneLookMs = GONE_LOOK_MS }: PullQueueOptions) {
    this.#link = link;
    this.#inbox = link.inbox();
    this.stream = stream;
    this.#bytesMax = bytesMax;
    this.#log = log;
    this.#gone = new GoneFrames(link, { stream, consumer: CONSUMER, log, lookMs: goneLookMs });
    this.frames = new FramesInHand(() => this.#ask());
  }

  start(): void {
    this.#subscription = this.#link.subscribe(`${this.#inbox}.*`, (msg) => this.#receive(msg));
    this.#link.onReconnect(() => (this.#state.is === 'missing' ? void this.#check() : this.#endPull()));
    void this.#check();
  }

  /**
   * Ends the rest. Resolves when the frames that the broker has at this moment have come, or as
   * many as there is room for.
   */
  async gather(): Promise<void> {
    const isResting = this.#state.is === 'resting';
    if (!isResting) return;
    this.#endPull();
    if (this.#state.is !== 'open') return;
    await new Promise<void>((resolve) => {
      this.#onChange = resolve;
    });
  }

  /** Fetches no more frames. Resolves when the frames that are on their way have come. */
  async stop(): Promise<void> {
    this.#become({ is: 'stopped' });
    if (this.#link.connected) await this.#subscription?.drain();
    else this.#subscription?.unsubscribe();
    this.frames.complete();
  }

  #become(next: PullState): void {
    if (this.#state.is === 'stopped') return;
    clearTimeout(this.#timer);
    this.#state = next;
    this.#onChange?.();
    this.#onChange = undefined;
    const checkAfter = (ms: number): void => {
      this.#timer = setTimeout(() => void this.#check(), ms);
    };
    if (next.is === 'open') checkAfter(next.expiresMs + PULL_GRACE_MS);
    else if (next.is === 'missing') checkAfter(PULL_RETRY_MS);
  }

  #endPull(): void {
    this.#become({ is: 'idle' });
    this.#ask();
  }

  #ask(): void {
    const { bytes, count } = this.frames;
    const free = this.#bytesMax - bytes;
    const room = this.#isOversized ? 1 : PREFETCH_FRAMES_MAX - count;
    const hasRoom = this.#isOversized ? count === 0 : free >= PULL_BYTES_MIN && room > 0;
    if (this.#state.is !== 'idle' || !hasRoom || !this.#link.connected) return;
    const number = ++this.#pulls;
    const wanted = this.#form === 'waits' ? 1 : room;
    const expiresMs = this.#form === 'gathers' ? GATHER_MS : this.#expiresMs;
    const openedAt = performance.now();
    this.#become({ is: 'open', number, expiresMs, openedAt, wanted, pending: undefined, bytes: 0 });
    const bound = this.#isOversized ? {} : { max_bytes: free };
    const request = { batch: wanted, ...bound, expires: nanos(expiresMs) };
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${this.stream}.${CONSUMER}`;
    this.#link.connection.publish(subject, JSON.stringify(request), { reply: `${this.#inbox}.${number}` });
  }

  /**
   * Looks for the consumer, and then begins the next pull. The broker does not answer a pull to a
   * missing consumer.
   * @param isUnfilled whether the broker ended the last pull because its time was up
   */
  async #check({ isUnfilled = false } = {}): Promise<void> {
    clearTimeout(this.#timer);
    const state = this.#state;
    try {
      const manager = await this.#link.manager();
      const info = await manager.consumers.info(this.stream, CONSUMER);
      this.#expiresMs = Math.min(PULL_EXPIRES_MS, pullMsMax(info));
      if (isUnfilled) await this.#gone.lookAfter(info);
      const isExhausted = info.num_ack_pending >= (info.config.max_ack_pending ?? Infinity);
      if (isUnfilled && isExhausted && info.num_pending > 0) this.frames.starve();
    } catch (error) {
      if (state === this.#state) this.#retryLater((error as Error).message);
      return;
    }
    if (state !== this.#state) return; // a reconnect has changed the state
    if (state.is === 'missing') this.#log.info({ stream: this.stream }, 'processor: the stream is there');
    this.#endPull();
  }

  /**
   * Ends a pull after which more frames may wait, begins the next one, and looks for missing
   * messages.
   */
  #endFilledPull(): void {
    this.#endPull();
    void this.#gone.lookUnderLoad();
  }

  /**
   * Ends a pull whose time was up. `pending`: frames that the stream had left at the last delivery;
   * undefined if the pull brought none.
   */
  #endUnfilledPull({ pending }: { pending: number | undefined }): void {
    if (this.#form === 'waits') return void this.#check({ isUnfilled: true });
    if (pending === undefined && this.#gathered === 0) this.#form = 'waits';
    else if (this.#form === 'follows' || (pending !== undefined && pending > 0)) this.#form = 'gathers';
    else if (this.#gathered < REST_BYTES_MAX) return this.#rest();
    else {
      this.#form = 'follows';
      this.#gathered = 0;
    }
    this.#endFilledPull();
  }

  /**
   * Rests. A consumer that waits for a frame does not call {@link gather}, so a pull waits with it
   * instead. This happens when the end of a pull came late or not at all.
   */
  #rest(): void {
    this.#gathered = 0;
    if (this.frames.isAwaited) {
      this.#form = 'waits';
      return this.#endFilledPull();
    }
    this.#form = 'gathers';
    this.#become({ is: 'resting' });
    void this.#gone.lookUnderLoad();
  }

  #retryLater(reason: string): void {
    if (this.#state.is === 'idle' || this.#state.is === 'open')
      this.#log.warn({ stream: this.stream, reason }, 'processor: no frames to be had, asking again');
    this.#become({ is: 'missing' });
  }

  #receive(msg: Msg): void {
    if (msg.headers?.code) return this.#status(msg, msg.headers.code);
    this.#isOversized = false;
    const { pending } = this.frames.add(msg.data, (bytes) => new Delivery(msg, bytes, this.#link));
    if (this.#form === 'gathers') this.#gathered += msg.data.length;
    const state = this.#state;
    if (state.is !== 'open') return;
    state.pending = pending;
    state.bytes += msg.data.length;
    if (--state.wanted > 0) return;
    if (this.#form === 'waits' && pending === 0) return this.#rest();
    const bytesPerRest = (state.bytes * SINK_FILE_MS_MIN) / (performance.now() - state.openedAt);
    if (this.#form !== 'follows' || bytesPerRest < REST_BYTES_MAX) this.#form = 'gathers';
    this.#endFilledPull();
  }

  #status(msg: Msg, code: number): void {
    const state = this.#state;
    // A status of a pull that is over is ignored.
    if (state.is !== 'open' || msg.subject !== `${this.#inbox}.${state.number}`) return;
    if (code === Status.heartbeat) return;
    const reason = msg.headers?.description ?? '';
    // A cluster may report the end of the batch before it delivers the last frames of the pull, so
    // the pull goes on.
    if (code === Status.conflict && /Batch Completed/.test(reason)) return;
    const isTooLarge = code === Status.conflict && /Size/.test(reason);
    // A pull that has brought frames may only have used up its room: the next message may fit then.
    if (isTooLarge && state.pending === undefined) this.#isOversized = true;
    if (code === Status.timeout) this.#endUnfilledPull(state);
    else if (isTooLarge) this.#endFilledPull();
    else if (code === Status.notFound) this.#endPull();
    else this.#retryLater(`${code} ${reason}`);
  }
}
