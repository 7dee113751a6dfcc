import type { KV } from '@nats-io/kv';
import type { Log } from '../lib/log.ts';
import { COUNTER_WRITES_IN_FLIGHT_MAX } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';
import { isConflict, openBucket } from './bucket.ts';

const WRITE_TRIES_MAX = 4;

/** `<projectId>.<YYYY-MM>` */
const counterKey = (projectId: string, month: string): string => `${projectId}.${month}`;

/**
 * Checkpoints of the monthly usage, from which counting resumes when Redis comes back empty.
 *
 * Usage only grows within a month, so of two figures the larger is the newer: a write looks at what stands there and gives way
 * to a larger one, by compare-and-set. Without that, a worker that was slow for a moment could set the figure back, and a start
 * from it would let through requests that were already counted. The price is one more request when another worker wrote last.
 * Writes are fire and forget: each key has at most one under way and remembers only the largest figure that waits, so that an
 * outage costs no memory; what is lost is written again with the next checkpoint.
 */
export class CounterBucket {
  readonly #link: NatsLink;
  readonly #log: Log;
  readonly #kv: Promise<KV>;
  /** Largest figure that waits, by key, while an earlier write of that key is under way. */
  readonly #underWay = new Map<string, number | undefined>();

  constructor({ link, log }: { link: NatsLink; log: Log }) {
    this.#link = link;
    this.#log = log;
    this.#kv = openBucket(link, COUNTERS_BUCKET);
  }

  /** `month` is `YYYY-MM`. Never throws; a failure is logged. */
  write(projectId: string, month: string, count: number): void {
    const key = counterKey(projectId, month);
    if (this.#underWay.has(key)) {
      this.#underWay.set(key, Math.max(count, this.#underWay.get(key) ?? 0));
      return;
    }
    if (!this.#link.connected || this.#underWay.size >= COUNTER_WRITES_IN_FLIGHT_MAX) return;
    this.#underWay.set(key, undefined);
    void this.#writeUntilDone(key, count);
  }

  /** The newest checkpoint; undefined when there is none. @throws when the bucket does not answer */
  async read(projectId: string, month: string): Promise<number | undefined> {
    return (await this.#stored(counterKey(projectId, month))).count;
  }

  /** Sets the figure whatever stands there: for a reconciliation. */
  async replace(projectId: string, month: string, count: number): Promise<void> {
    await (await this.#kv).put(counterKey(projectId, month), `${count}`);
  }

  async #writeUntilDone(key: string, count: number): Promise<void> {
    try {
      for (let next: number | undefined = count; next !== undefined; next = this.#underWay.get(key)) {
        this.#underWay.set(key, undefined);
        await this.#raise(key, next);
      }
    } catch (error) {
      this.#log.warn({ key, err: error }, 'counters: checkpoint not written');
    }
    this.#underWay.delete(key);
  }

  async #raise(key: string, count: number): Promise<void> {
    const kv = await this.#kv;
    for (let tries = 1; ; tries++) {
      const stored = await this.#stored(key);
      if (stored.count !== undefined && stored.count >= count) return;
      try {
        await kv.put(key, `${count}`, { previousSeq: stored.revision });
        return;
      } catch (error) {
        if (!isConflict(error) || tries === WRITE_TRIES_MAX) throw error;
      }
    }
  }

  /** Revision 0 means that the key was never written; a spoiled figure counts as none. */
  async #stored(key: string): Promise<{ count: number | undefined; revision: number }> {
    const entry = await (await this.#kv).get(key);
    if (!entry) return { count: undefined, revision: 0 };
    const text = entry.operation === 'PUT' ? entry.string() : '';
    return { count: /^\d{1,16}$/.test(text) ? Number(text) : undefined, revision: entry.revision };
  }
}
