import { jetstream } from '@nats-io/jetstream';
import { type KV, Kvm } from '@nats-io/kv';
import { BROKER_REPLY_MS_MAX } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';
import type { Delivery } from './delivery.ts';
import { orUnavailable } from './unavailable.ts';

/**
 * How often each suspicious frame has ended a process. The count is written before the frame is touched and taken
 * back after it was handled, so what stands there is the number of times that nobody came back. A process that is
 * killed from outside counts as well: it cannot be told apart, and a frame would have to be in hand at three such
 * moments.
 *
 * Keys cannot meet those of counters, which begin with a project's id.
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

  /** Counts this attempt. @returns how many before it ended their process. @throws UnavailableError */
  begin(delivery: Delivery): Promise<number> {
    return orUnavailable('crashes of a frame cannot be counted', async () => {
      const kv = await this.#kv();
      const entry = await kv.get(keyOf(delivery));
      const before = entry?.operation === 'PUT' ? Number(entry.string()) || 0 : 0;
      await kv.put(keyOf(delivery), `${before + 1}`);
      return before;
    });
  }

  /** The frame is handled, and will not come again. @throws UnavailableError */
  clear(delivery: Delivery): Promise<void> {
    return this.restore(delivery, 0);
  }

  /** The attempt ended without ending the process. @throws UnavailableError */
  restore(delivery: Delivery, before: number): Promise<void> {
    return orUnavailable('crashes of a frame cannot be counted', async () => {
      if (before > 0) {
        await (await this.#kv()).put(keyOf(delivery), `${before}`);
        return;
      }
      // Out of the bucket's stream altogether: deleting a key would leave a marker for ever.
      const filter = `$KV.${COUNTERS_BUCKET}.${keyOf(delivery)}`;
      await (await this.#link.manager()).streams.purge(`KV_${COUNTERS_BUCKET}`, { filter });
    });
  }
}

const keyOf = ({ stream, sequence }: Delivery): string => `crashes.${stream}.${sequence}`;
