import { jetstream } from '@nats-io/jetstream';
import { type KV, Kvm } from '@nats-io/kv';
import { BROKER_REPLY_MS_MAX, FRAME_CRASHES_MAX, STORING_DEATHS_PER_CRASH } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';
import type { Delivery } from './delivery.ts';
import { orUnavailable } from './unavailable.ts';

/** How often a process ended while it handled a frame alone, by what it was doing. */
export type Deaths = Readonly<{ decoding: number; storing: number }>;

const NONE: Deaths = { decoding: 0, storing: 0 };

export const deathsOf = ({ decoding, storing }: Deaths): number => decoding + storing;

/** Whether the frame ends processes, rather than kills from outside. */
export const isPoison = (deaths: Deaths): boolean => weightOf(deaths) >= FRAME_CRASHES_MAX;

/**
 * Whether processes also ended while they set the frame aside: even its layout is not to be read
 * again.
 */
export const isUnreadable = (deaths: Deaths): boolean => weightOf(deaths) >= 2 * FRAME_CRASHES_MAX;

const weightOf = ({ decoding, storing }: Deaths): number => decoding + storing / STORING_DEATHS_PER_CRASH;

/**
 * How often each suspicious frame has ended a process. A phase is counted before it begins, and the
 * count is taken back after the frame was handled. So the count is the number of processes that did
 * not finish.
 *
 * A kill from outside counts as well, because it looks the same. But kills fall where time is
 * spent, and that is the sink. Poison works in the millisecond in which the bytes are decoded. So a
 * death while decoding weighs four times a death while storing (with equal weights kills set good
 * frames aside: bench/HISTORY.md). A bug that throws while storing counts like a death while
 * decoding, because its cause is known.
 *
 * Keys differ from those of counters, which begin with `checkpoints` or `outcomes`. The value:
 * `<decoding> <storing>`.
 */
export class CrashLedger {
  readonly #link: NatsLink;
  #bucket: Promise<KV> | undefined;

  constructor(link: NatsLink) {
    this.#link = link;
  }

  #kv(): Promise<KV> {
    this.#bucket ??= new Kvm(jetstream(this.#link.connection, { timeout: BROKER_REPLY_MS_MAX })).open(
      COUNTERS_BUCKET,
    );
    this.#bucket.catch(() => {
      this.#bucket = undefined;
    });
    return this.#bucket;
  }

  /** @throws UnavailableError */
  read(delivery: Delivery): Promise<Deaths> {
    return this.#counting(async () => {
      const entry = await (await this.#kv()).get(keyOf(delivery));
      if (entry?.operation !== 'PUT') return NONE;
      const [decoding, storing] = entry.string().split(' ').map(Number);
      return { decoding: decoding || 0, storing: storing || 0 };
    });
  }

  /** @throws UnavailableError */
  write(delivery: Delivery, deaths: Deaths): Promise<void> {
    if (deathsOf(deaths) === 0) return this.clear(delivery);
    return this.#counting(async () => {
      await (await this.#kv()).put(keyOf(delivery), `${deaths.decoding} ${deaths.storing}`);
    });
  }

  /** The frame is handled, and will not come again. @throws UnavailableError */
  clear(delivery: Delivery): Promise<void> {
    return this.#counting(async () => {
      // Out of the bucket's stream altogether: deleting a key would leave a marker for ever.
      const filter = `$KV.${COUNTERS_BUCKET}.${keyOf(delivery)}`;
      await (await this.#link.manager()).streams.purge(`KV_${COUNTERS_BUCKET}`, { filter });
    });
  }

  #counting<T>(work: () => Promise<T>): Promise<T> {
    return orUnavailable('crashes of a frame cannot be counted', work);
  }
}

const keyOf = ({ stream, sequence }: Delivery): string => `crashes.${stream}.${sequence}`;
