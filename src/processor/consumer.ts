import { setTimeout as pause } from 'node:timers/promises';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import type { OutageLog } from '../lib/outage-log.ts';
import {
  DELIVERIES_BEFORE_ALONE,
  SINK_FILE_MS_MIN,
  SINK_RETRY_MS_MAX,
  SINK_RETRY_MS_MIN,
  STOP_STORE_MS_MAX,
} from '../limits.ts';
import { UnavailableError } from '../sink/unavailable.ts';
import { CRASH_WEIGHT, type CrashCounts, isPoison, mustStayUnread } from './crash-counts.ts';
import type { Delivery } from './delivery.ts';
import type { FrameWriter, WriteReport } from './frame-writer.ts';
import type { Gate } from './gate.ts';
import type { HeavyFrames } from './heavy-frames.ts';
import type { PullQueue } from './pull-queue.ts';

export type StreamConsumerOptions = {
  queue: PullQueue;
  writer: FrameWriter;
  /** Shared by all consumers of the process. */
  heavyFrames: HeavyFrames;
  crashCounts: CrashCounts;
  /**
   * Shared by all consumers of the process, so that a suspicious frame is handled while no other
   * frame is.
   */
  gate: Gate;
  clock: Clock;
  /**
   * Shared by all consumers of the process. Logs attempts that failed for another reason than a
   * sink: a sink logs its own failures.
   */
  outage: OutageLog;
  log: Log;
};

const crashReason = (crashes: number): string =>
  `ended the processor at least ${Math.floor(crashes)} times; not looked into`;
const mayShare = ({ count }: Delivery): boolean => count < DELIVERIES_BEFORE_ALONE;

/**
 * Brings the frames of one stream into the sink: takes frames, writes them as one batch,
 * acknowledges them, and takes the next.
 *
 * The first batch after a quiet second leaves at once. The next one begins a second after the last
 * one began, or as soon as the frames fill it. So an item waits about a second at most, and a sink
 * writes few files. No frame is skipped: while the disk or the broker fails, the same frames are
 * tried again with growing pauses, and `working()` keeps the broker from delivering them a second
 * time.
 *
 * Poison: a frame that is delivered for the third time may have ended the process before. The
 * process handles such a frame alone. First it asks the sink whether the frame is stored: a process
 * may have stored it and died before the acknowledgement. If so, the frame is only acknowledged.
 * Otherwise, before each phase of its work on the frame, the process raises a count in the broker
 * (crash-counts.ts). It removes the count when the frame is handled. So a count that is found at
 * the next delivery shows that a process ended with this frame. At three (FRAME_CRASHES_MAX) the
 * frame is set aside: it becomes dead letters, and its items are not decoded. If processes end even
 * then, the frame is set aside unread at six.
 */
export class StreamConsumer {
  readonly #options: StreamConsumerOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> = Promise.resolve();
  #lastBatchAt = Number.NEGATIVE_INFINITY;
  /**
   * Whether the broker may still hold frames that came since the last batch. If so, the queue
   * gathers them before the next batch.
   */
  #mayGather = false;
  /**
   * Until when frames are stored after stop() was called, monotonic ms. Frames left then are given
   * back.
   */
  #stopBy = Number.POSITIVE_INFINITY;
  /**
   * Frames that were taken from the queue and not stored. stop() gives them back to the broker.
   */
  readonly #unstored: Delivery[] = [];
  /**
   * Heavy frames that are decoded beside the frames behind them, each with a promise that resolves
   * when it is decoded.
   */
  readonly #ahead = new Map<Delivery, Promise<void>>();
  /** Frames that were decoded in advance. This is done only once for each frame. */
  readonly #wereAhead = new WeakSet<Delivery>();
  /** The crash count of each frame, as read at this process's first attempt at the frame. */
  readonly #crashes = new WeakMap<Delivery, number>();
  /** Whether the last attempt failed. The next success clears it. */
  failing = false;

  constructor(options: StreamConsumerOptions) {
    this.#options = options;
  }

  /**
   * Starts to take frames.
   * @param onBug gets an error that no waiting will fix
   */
  start(onBug: (error: unknown) => void): void {
    this.#options.queue.start();
    this.#running = this.#run().catch(onBug);
  }

  /**
   * Stores the frames in hand. After STOP_STORE_MS_MAX, or after an attempt has failed, no further
   * attempt begins and the remaining frames are given back. A frame that is given back counts as
   * delivered: from its third delivery on it is handled alone.
   */
  async stop(): Promise<void> {
    this.#stopBy = this.#options.clock.monotonic() + STOP_STORE_MS_MAX;
    this.#stopping.abort();
    const { queue, log } = this.#options;
    const { frames } = queue;
    await queue.stop();
    await this.#running;
    await Promise.all(this.#ahead.values()); // decoders still read these frames
    this.#unstored.push(...this.#ahead.keys());
    // Frames are given back only now: a broker that does not know of the stop yet would hand them
    // to our own pull.
    for (const frame of this.#unstored) frame.giveBack();
    frames.settle(this.#unstored);
    if (frames.heldCount > 0)
      await this.#storeHeld().catch((err) =>
        log.warn({ err, frames: frames.heldCount }, 'processor: frames are given back'),
      );
    frames.close();
  }

  /**
   * Makes the sink store what it holds, without waiting for more.
   * @throws UnavailableError
   */
  #storeHeld(): Promise<void> {
    return this.#options.writer.write([], { now: true, done: () => undefined });
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Whether the consumer stops, and cannot store the frames in hand in time. */
  get #mustGiveBack(): boolean {
    return this.#stopped && (this.failing || this.#options.clock.monotonic() >= this.#stopBy);
  }

  get #isOver(): boolean {
    return this.#mustGiveBack || (this.#stopped && this.#options.queue.frames.isOver);
  }

  async #run(): Promise<void> {
    const { queue, clock } = this.#options;
    const { frames } = queue;
    while (!this.#isOver) {
      if (frames.isEmpty && frames.isStarved) {
        await this.#untilStored([]);
        continue;
      }
      const early = this.#lastBatchAt + SINK_FILE_MS_MIN - clock.monotonic();
      if (early > 0 && !frames.full && !frames.hasSuspect(mayShare) && !this.#stopped) {
        await frames.untilChange(early);
        continue;
      }
      if (this.#mayGather) await queue.gather();
      this.#mayGather = false;
      if (frames.isEmpty) {
        await frames.untilChange();
        continue;
      }
      const taken = frames.take(mayShare).filter((frame) => !this.#decodesAhead(frame));
      this.#mayGather = true;
      if (taken.length === 0) continue;
      this.#lastBatchAt = clock.monotonic();
      await this.#untilStored(taken);
    }
  }

  /**
   * Starts to decode a heavy frame in advance, beside the frames behind it. The decoded frame goes
   * back into the queue.
   * @returns false when the frame is to be decoded in its turn: it is not heavy, must be handled
   * alone, or was decoded in advance before; or the consumer stops
   */
  #decodesAhead(frame: Delivery): boolean {
    const { queue, writer, heavyFrames } = this.#options;
    if (!mayShare(frame) || this.#wereAhead.has(frame) || this.#stopped) return false;
    const projectId = writer.heavyProjectOf(frame);
    if (projectId === undefined) return false;
    this.#wereAhead.add(frame);
    const decode = async (): Promise<void> => {
      if (!this.#stopped) await writer.decodeAhead(frame);
    };
    const back = heavyFrames
      .run(projectId, frame.data.length, decode)
      .catch(() => undefined) // the frame's batch will meet the error again
      .then(() => {
        if (this.#stopped) return;
        this.#ahead.delete(frame);
        queue.frames.putBack(frame);
      });
    this.#ahead.set(frame, back);
    return true;
  }

  async #untilStored(frames: Delivery[]): Promise<void> {
    const { queue, outage } = this.#options;
    let left = frames;
    const without = (frames: readonly Delivery[]): void => {
      const gone = new Set(frames);
      left = left.filter((frame) => !gone.has(frame));
    };
    const done = (stored: readonly Delivery[]): void => {
      queue.frames.settle(stored);
      without(stored);
    };
    const held = (frames: readonly Delivery[]): void => {
      queue.frames.hold(frames);
      without(frames);
    };
    let wait = SINK_RETRY_MS_MIN;
    do {
      try {
        await this.#attempt(left, { done, held, now: this.#stopped || queue.frames.isStarved });
        this.failing = false;
        outage.worked(queue.stream);
      } catch (error) {
        if (!(error instanceof UnavailableError)) throw error;
        this.failing = true;
        if (!error.isTold) outage.failed(queue.stream, error.message);
        await pause(wait, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
        wait = Math.min(wait * 2, SINK_RETRY_MS_MAX);
      }
      if (this.#mustGiveBack) return void this.#unstored.push(...left);
    } while (left.length > 0 || this.failing);
  }

  #attempt(frames: readonly Delivery[], report: WriteReport): Promise<void> {
    const { gate, writer } = this.#options;
    const [first] = frames;
    if (first && !mayShare(first)) return gate.alone(() => this.#handleOneByOne(frames, report.done));
    return gate.shared(() => writer.write(frames, report));
  }

  /**
   * Handles suspicious frames one by one while all other consumers wait. Many frames share one such
   * wait, because a few kills from outside make thousands of sound frames come for the third time.
   */
  async #handleOneByOne(
    frames: readonly Delivery[],
    done: (stored: readonly Delivery[]) => void,
  ): Promise<void> {
    for (const frame of frames) {
      if (this.#mustGiveBack) return;
      await this.#handleAlone(frame, done);
    }
  }

  async #handleAlone(frame: Delivery, done: (stored: readonly Delivery[]) => void): Promise<void> {
    const { crashCounts, writer, log } = this.#options;
    // The count is read only at this process's first attempt. A later attempt might find a count
    // that this process itself wrote and could not restore because the broker was away; that is no
    // crash.
    const crashes = this.#crashes.get(frame) ?? (await crashCounts.read(frame));
    this.#crashes.set(frame, crashes);
    const isStored = await writer.acknowledgeStored(frame);
    if (!isStored) await this.#tryAlone(frame, crashes);
    // A count that stays does no harm: if the frame comes again, the sink knows it.
    await crashCounts
      .clear(frame)
      .catch((error) => log.warn({ err: error }, 'processor: count of crashes stays'));
    done([frame]);
  }

  async #tryAlone(frame: Delivery, crashes: number): Promise<void> {
    const { crashCounts, writer } = this.#options;
    const report: WriteReport = {
      done: () => undefined,
      now: true,
      entering: (phase) => crashCounts.write(frame, crashes + CRASH_WEIGHT[phase]),
    };
    try {
      if (mustStayUnread(crashes)) await writer.setAsideUnread(frame, crashReason(crashes));
      else if (isPoison(crashes)) await writer.setAside(frame, crashReason(crashes), report);
      else await writer.write([frame], report);
    } catch (error) {
      // When the sink or the broker is away, the frame is not to blame, and its old count is
      // restored. Any other error is a bug, which ends the process. It weighs as much as a crash in
      // decoding, whatever the phase: it is certainly no kill from outside.
      if (error instanceof UnavailableError) await crashCounts.write(frame, crashes);
      else await crashCounts.write(frame, crashes + CRASH_WEIGHT.decoding).catch(() => undefined);
      throw error;
    }
  }
}
