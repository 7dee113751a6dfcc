import type { KV } from '@nats-io/kv';
import type { Log } from '../lib/log.ts';
import { COUNTER_WRITES_IN_FLIGHT_MAX } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';
import { isConflict, openBucket } from './bucket.ts';

const WRITE_TRIES_MAX = 4;

type Place = { projectId: string; key: string };

/** Our last write of a project, which may be out of date. `contested`: others write it too, so it is not worth remembering. */
type Own = { key: string; written: { count: number; revision: number } | undefined; contested: boolean };

/** What stands under a key. Revision 0: the key was never written; a spoiled figure counts as none. */
type Stored = { count: number | undefined; revision: number };

/** `<projectId>.<YYYY-MM>` */
const counterKey = (projectId: string, month: string): string => `${projectId}.${month}`;

/**
 * Checkpoints of the monthly usage, from which counting resumes when Redis comes back empty.
 *
 * Usage only grows within a month, so of two figures the larger is the newer: a write looks at what stands there and gives way
 * to a larger one, by compare-and-set. Without that, a worker that was slow for a moment could set the figure back, and a start
 * from it would let through requests that were already counted. A worker that is alone with a project remembers what it wrote
 * and need not look.
 * Writes are fire and forget: each key has at most one under way and remembers only the largest figure that waits, so that an
 * outage costs no memory; what is lost is written again with the next checkpoint.
 */
export class CounterBucket {
  readonly #link: NatsLink;
  readonly #log: Log;
  readonly #kv: Promise<KV>;
  /** The write that is under way, by key, and the largest figure that came meanwhile. */
  readonly #underWay = new Map<string, { next: number | undefined; done: Promise<void> }>();
  /** By project: no more than there are projects, all of which a worker holds anyway. */
  readonly #own = new Map<string, Own>();

  constructor({ link, log }: { link: NatsLink; log: Log }) {
    this.#link = link;
    this.#log = log;
    this.#kv = openBucket(link, COUNTERS_BUCKET);
  }

  /**
   * `month` is `YYYY-MM`. Nobody needs to wait for it; it never rejects, a failure is logged.
   * @returns when the figure, or a larger one, is stored or given up
   */
  write(projectId: string, month: string, count: number): Promise<void> {
    const key = counterKey(projectId, month);
    const underWay = this.#underWay.get(key);
    if (underWay) {
      underWay.next = Math.max(count, underWay.next ?? 0);
      return underWay.done;
    }
    if (!this.#link.connected || this.#underWay.size >= COUNTER_WRITES_IN_FLIGHT_MAX)
      return Promise.resolve();
    const done = this.#raiseUntilDone({ projectId, key }, count);
    this.#underWay.set(key, { next: undefined, done });
    return done;
  }

  /** The newest checkpoint; undefined when there is none. @throws when the bucket does not answer */
  async read(projectId: string, month: string): Promise<number | undefined> {
    return (await this.#stored(counterKey(projectId, month))).count;
  }

  /** Sets the figure whatever stands there: for a reconciliation. */
  async replace(projectId: string, month: string, count: number): Promise<void> {
    await (await this.#kv).put(counterKey(projectId, month), `${count}`);
  }

  async #raiseUntilDone(place: Place, count: number): Promise<void> {
    const { key } = place;
    try {
      for (let figure: number | undefined = count; figure !== undefined; figure = this.#takeNext(key))
        await this.#raise(place, figure);
    } catch (error) {
      this.#log.warn({ key, err: error }, 'counters: checkpoint not written');
    }
    this.#underWay.delete(key);
  }

  #takeNext(key: string): number | undefined {
    const underWay = this.#underWay.get(key);
    const next = underWay?.next;
    if (underWay) underWay.next = undefined;
    return next;
  }

  async #raise({ projectId, key }: Place, count: number): Promise<void> {
    const kv = await this.#kv;
    for (let tries = 1; ; tries++) {
      const own = this.#ownOf({ projectId, key });
      const { written } = own;
      own.written = undefined;
      const stored = written && written.count < count ? written : await this.#stored(key);
      if (stored.count !== undefined && stored.count >= count) return;
      try {
        const revision = await kv.put(key, `${count}`, { previousSeq: stored.revision });
        if (!own.contested) own.written = { count, revision };
        return;
      } catch (error) {
        if (!isConflict(error) || tries === WRITE_TRIES_MAX) throw error;
        own.contested = true;
      }
    }
  }

  #ownOf({ projectId, key }: Place): Own {
    let own = this.#own.get(projectId);
    if (own?.key === key) return own;
    own = { key, written: undefined, contested: false };
    this.#own.set(projectId, own);
    return own;
  }

  async #stored(key: string): Promise<Stored> {
    const entry = await (await this.#kv).get(key);
    if (!entry) return { count: undefined, revision: 0 };
    const text = entry.operation === 'PUT' ? entry.string() : '';
    return { count: /^\d{1,16}$/.test(text) ? Number(text) : undefined, revision: entry.revision };
  }
}
