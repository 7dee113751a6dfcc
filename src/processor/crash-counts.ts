import { BROKER_REPLY_MS_MAX, FRAME_CRASHES_MAX } from '../limits.ts';
import { orUnavailable } from '../sink/unavailable.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';
import type { Delivery } from './delivery.ts';
import type { Phase } from './frame-writer.ts';

/**
 * What a death counts by what the process was doing. A process that is killed from outside cannot
 * be told apart, but kills fall where time is spent, and that is the sink; poison works in the
 * millisecond in which the bytes are decoded. With equal weights, one of three runs of 200 kills
 * over 100,000 items set good frames aside.
 */
export const CRASH_WEIGHT: Readonly<Record<Phase, number>> = { decoding: 1, storing: 1 / 4 };

/** Whether it is the frame that ends processes, rather than kills from outside. */
export const isPoison = (crashes: number): boolean => crashes >= FRAME_CRASHES_MAX;

/**
 * Whether processes went on ending while they set the frame aside: even its layout is not to be
 * read again.
 */
export const mustStayUnread = (crashes: number): boolean => crashes >= 2 * FRAME_CRASHES_MAX;

const BUCKET_STREAM = `KV_${COUNTERS_BUCKET}`;
/** No key of a counter begins so. */
const subjectOf = ({ stream, sequence }: Delivery): string =>
  `$KV.${COUNTERS_BUCKET}.crashes.${stream}.${sequence}`;

/**
 * Counts how often each suspicious frame has ended a process, weighted by {@link CRASH_WEIGHT}. The
 * count is written before each phase begins and removed after the frame was handled. So a count
 * that is left comes from processes that ended while they handled the frame.
 */
export class CrashCounts {
  readonly #link: NatsLink;

  constructor(link: NatsLink) {
    this.#link = link;
  }

  /** @throws UnavailableError */
  read(frame: Delivery): Promise<number> {
    return this.#counting(async () => {
      const manager = await this.#link.manager();
      const message = await manager.streams.getMessage(BUCKET_STREAM, { last_by_subj: subjectOf(frame) });
      return Number(message?.string()) || 0;
    });
  }

  /** @throws UnavailableError */
  write(frame: Delivery, crashes: number): Promise<void> {
    return this.#counting(async () => {
      await this.#link.js.publish(subjectOf(frame), `${crashes}`, { timeout: BROKER_REPLY_MS_MAX });
    });
  }

  /**
   * The frame is handled, and will not come again. Leaves no marker, as deleting a key would.
   * @throws UnavailableError
   */
  clear(frame: Delivery): Promise<void> {
    return this.#counting(async () => {
      await (await this.#link.manager()).streams.purge(BUCKET_STREAM, { filter: subjectOf(frame) });
    });
  }

  #counting<T>(work: () => Promise<T>): Promise<T> {
    return orUnavailable('crashes of a frame cannot be counted', work);
  }
}
