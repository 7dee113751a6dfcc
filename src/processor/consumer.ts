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
  /** Shared by all consumers of the process: a suspicious frame is handled alone. */
  gate: Gate;
  clock: Clock;
  /** Shared, too: of attempts that failed, and not by a sink, which tells by itself. */
  outage: OutageLog;
  log: Log;
};

const crashReason = (crashes: number): string =>
  `ended the processor at least ${Math.floor(crashes)} times; not looked into`;
const mayShare = ({ count }: Delivery): boolean => count < DELIVERIES_BEFORE_ALONE;

/**
 * One stream's way into the sink: takes frames, writes them as one batch, acknowledges, and takes
 * again.
 *
 * The first batch after a quiet second leaves at once. The next one begins a second after it, or as
 * soon as it is full. So an item waits at most about a second, and files are few. No frame is
 * skipped: when disk or broker fail, the same frames are tried again with growing pauses, and
 * `working()` keeps the broker from delivering them again.
 *
 * Poison: a frame that comes for the third time may have ended the process before. The process
 * handles it alone and counts each phase before it begins (crash-counts.ts). A count that remains
 * shows that a process ended with this frame. At a weight of three (FRAME_CRASHES_MAX) the frame is
 * set aside without decoding its items. That is counted in the same way; at six not even its layout
 * is read, only the number of its entries. But first the sink is asked: entries that it has
 * already, from a process that died before its acknowledgement, are acknowledged.
 */
export class StreamConsumer {
  readonly #options: StreamConsumerOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> = Promise.resolve();
  #lastBatchAt = Number.NEGATIVE_INFINITY;
  /** When a stop gives back what is not stored yet, monotonic ms. */
  #stopBy = Number.POSITIVE_INFINITY;
  /** Frames that were taken and not stored: stop() gives them back. */
  readonly #unstored: Delivery[] = [];
  /** Frames that are decoded beside the stream, each with the end of that. */
  readonly #beside = new Map<Delivery, Promise<void>>();
  /** Frames that were. */
  readonly #wereBeside = new WeakSet<Delivery>();
  /** How often a process ended with the frame, as read at this process's first attempt at it. */
  readonly #crashes = new WeakMap<Delivery, number>();
  /** The last attempt failed; cleared by the next success. */
  failing = false;

  constructor(options: StreamConsumerOptions) {
    this.#options = options;
  }

  /** @param onBug takes an error that no waiting will fix */
  start(onBug: (error: unknown) => void): void {
    this.#options.queue.start();
    this.#running = this.#run().catch(onBug);
  }

  /**
   * Stores what is in hand. After STOP_STORE_MS_MAX, or once an attempt has failed, it begins no
   * further attempt and gives back the rest. A frame that is given back counts as delivered: from
   * its third delivery on it is handled alone.
   */
  async stop(): Promise<void> {
    this.#stopBy = this.#options.clock.monotonic() + STOP_STORE_MS_MAX;
    this.#stopping.abort();
    const { queue, log } = this.#options;
    const { frames } = queue;
    await queue.stop();
    await this.#running;
    await Promise.all(this.#beside.values()); // they are read until then
    this.#unstored.push(...this.#beside.keys());
    // Not earlier: until it knows of the stop, the broker would hand them to our own pull.
    for (const frame of this.#unstored) frame.giveBack();
    frames.settle(this.#unstored);
    if (frames.heldCount > 0)
      await this.#storeHeld().catch((err) =>
        log.warn({ err, frames: frames.heldCount }, 'processor: frames are given back'),
      );
    frames.close();
  }

  /** The sink stores what it holds, without waiting for more. @throws UnavailableError */
  #storeHeld(): Promise<void> {
    return this.#options.writer.write([], { now: true, done: () => undefined });
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Stopped, and what is left in hand cannot be stored, or not in time. */
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
      if (frames.isEmpty) {
        if (frames.isStarved) await this.#untilStored([]);
        else await frames.untilChange();
        continue;
      }
      const early = this.#lastBatchAt + SINK_FILE_MS_MIN - clock.monotonic();
      if (early > 0 && !frames.full && !frames.hasSuspect(mayShare) && !this.#stopped) {
        await frames.untilChange(early);
        continue;
      }
      const taken = frames.take(mayShare).filter((frame) => !this.#goesBeside(frame));
      if (taken.length === 0) continue;
      this.#lastBatchAt = clock.monotonic();
      await this.#untilStored(taken);
    }
  }

  /** A heavy frame is decoded beside the stream, and comes back when it is. */
  #goesBeside(frame: Delivery): boolean {
    const { queue, writer, heavyFrames } = this.#options;
    if (!mayShare(frame) || this.#wereBeside.has(frame) || this.#stopped) return false;
    const projectId = writer.heavyProjectOf(frame);
    if (projectId === undefined) return false;
    this.#wereBeside.add(frame);
    const decode = async (): Promise<void> => {
      if (!this.#stopped) await writer.decodeAhead(frame);
    };
    const back = heavyFrames
      .run(projectId, frame.data.length, decode)
      .catch(() => undefined) // it is decoded again with its batch, and fails there
      .then(() => {
        if (this.#stopped) return;
        this.#beside.delete(frame);
        queue.frames.putBack(frame);
      });
    this.#beside.set(frame, back);
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
   * A few while the others wait anyway: after some kills thousands of sound frames come for the
   * third time.
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
    // What an attempt of this process leaves there, because the broker is away, is no crash.
    const crashes = this.#crashes.get(frame) ?? (await crashCounts.read(frame));
    this.#crashes.set(frame, crashes);
    const isStored = await writer.acknowledgeStored(frame);
    if (!isStored) await this.#tryAlone(frame, crashes);
    // A count that is left over would only matter for a frame that comes again, and is known then.
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
      // That the sink or the broker was away is not the frame's fault. A bug is, with the whole
      // weight: it ends the process, and no kill from outside does.
      if (error instanceof UnavailableError) await crashCounts.write(frame, crashes);
      else await crashCounts.write(frame, crashes + CRASH_WEIGHT.decoding).catch(() => undefined);
      throw error;
    }
  }
}
