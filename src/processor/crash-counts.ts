import { BROKER_REPLY_MS_MAX, FRAME_CRASHES_MAX } from '../limits.ts';
import { orUnavailable } from '../sink/unavailable.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';
import type { Delivery } from './delivery.ts';
import type { Phase } from './frame-writer.ts';

/**
 * How much one ended process adds to a frame's crash count, by the phase of its work. A kill from
 * outside cannot be told from a crash. But kills mostly hit storing, which takes the most time,
 * while a poisonous frame ends the process as soon as it is decoded. With equal weights, one of
 * three test runs with 200 kills over 100,000 items set good frames aside.
 */
export const CRASH_WEIGHT: Readonly<Record<Phase, number>> = { decoding: 1, storing: 1 / 4 };

/**
 * Whether the count is so high that the frame itself must have ended the processes. Kills from
 * outside alone rarely bring a frame to this count ({@link CRASH_WEIGHT}).
 */
export const isPoison = (crashes: number): boolean => crashes >= FRAME_CRASHES_MAX;

/**
 * Whether processes kept ending even while they set the frame aside. Then the frame is not even
 * read again.
 */
export const mustStayUnread = (crashes: number): boolean => crashes >= 2 * FRAME_CRASHES_MAX;

const BUCKET_STREAM = `KV_${COUNTERS_BUCKET}`;
/** Subject of a frame's count in the counters bucket, where no other key begins with `crashes`. */
const subjectOf = ({ stream, sequence }: Delivery): string =>
  `$KV.${COUNTERS_BUCKET}.crashes.${stream}.${sequence}`;

/**
 * Counts how often each suspicious frame has ended a process, weighted by {@link CRASH_WEIGHT}.
 * consumer.ts says when it is written and removed.
 */
export class CrashCounts {
  readonly #link: NatsLink;

  constructor(link: NatsLink) {
    this.#link = link;
  }

  /**
   * Returns the frame's count; 0 when there is none.
   * @throws UnavailableError
   */
  read(frame: Delivery): Promise<number> {
    return this.#counting(async () => {
      const manager = await this.#link.manager();
      const message = await manager.streams.getMessage(BUCKET_STREAM, { last_by_subj: subjectOf(frame) });
      return Number(message?.string()) || 0;
    });
  }

  /**
   * Sets the frame's count to `crashes`.
   * @throws UnavailableError
   */
  write(frame: Delivery, crashes: number): Promise<void> {
    return this.#counting(async () => {
      await this.#link.js.publish(subjectOf(frame), `${crashes}`, { timeout: BROKER_REPLY_MS_MAX });
    });
  }

  /**
   * Removes the count of a frame that is handled and will not come again. The purge leaves no
   * marker in the bucket; deleting the key would.
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
