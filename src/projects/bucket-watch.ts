/** Reads one bucket: its content, then every change. */
import { AckPolicy, DeliverPolicy, type JetStreamManager } from '@nats-io/jetstream';
import { type Msg, nanos, nuid, type Subscription } from '@nats-io/transport-node';
import { assert } from '../lib/assert.ts';
import { REGISTRY_SLICE_ENTRIES, REGISTRY_STALL_MS } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { type BucketState, bucketState } from './bucket.ts';

/**
 * `text` is undefined when the key was deleted. `revision`: the bucket's own, from 1 on.
 */
export type BucketEntry = { key: string; text: string | undefined; revision: number };

export type BucketAccess = { link: NatsLink; bucket: string; manager: JetStreamManager };

type WatchOptions = {
  /** The last revision that the caller has, which comes again; 0: none. */
  from: number;
  /** `stamp`: when the broker stored it, so that a revision that was given twice is recognised. */
  onEntry(entry: BucketEntry, stamp: string): void;
};

/**
 * Something was removed while the bucket was read, or the server fell silent. Reading again helps.
 */
class SnapshotError extends Error {
  override name = 'SnapshotError';
}

const READ_TRIES_MAX = 3;
/** While one record is overwritten without a pause, it may be missing again and again. */
const SNAPSHOT_LOOKS_MAX = 5;
const PULL_MS = 30_000;
/** The broker's answer to a pull may be under way when its time is up. */
const PULL_GRACE_MS = 5_000;
/** The broker forgets a consumer without a pull for this long: its process was killed. */
const CONSUMER_IDLE_MS = 5_000;
/** The pull has ended, by itself: nothing came in its time, or it was given up. */
const PULL_ENDED: ReadonlySet<number | undefined> = new Set([404, 408]);

/**
 * One consumer of one bucket, which reads the stream in its order. Since a bucket keeps the last
 * entry of each key, all entries from the first one are its content, and all from a later one are
 * the changes since then. So a reader that was cut off goes on where it was, and no consumer of
 * the kind "last of each subject" is needed: to make one takes nats-server 2.9 four seconds with a
 * million keys.
 *
 * Entries are pulled by slices, and the next slice is asked for in another turn of the loop. So no
 * turn handles more than one, however fast the broker is.
 *
 * The consumer is deleted with the watch. When that request is lost, or this process is killed, the
 * broker forgets the consumer after CONSUMER_IDLE_MS, or with its own end, since it is in memory.
 */
export class BucketWatch {
  readonly #access: BucketAccess;
  readonly #options: WatchOptions;
  readonly #name = `sluice_${nuid.next()}`;
  readonly #stream: string;
  readonly #keyAt: number;
  readonly #inbox: string;
  readonly #subscription: Subscription;
  /** The newest revision that has come. */
  #revision: number;
  /** Entries that have come; the consumer numbers them. */
  #entries = 0;
  /** That the open pull still asks for. */
  #wanted = 0;
  readonly #silence: NodeJS.Timeout;
  #isStopped = false;
  /** Why the watch ended; {@link stop} is no reason. */
  readonly ended: Promise<Error>;
  #end: (reason: Error) => void = () => undefined;
  /** {@link reach} looks again. */
  #look: (() => void) | undefined;

  private constructor(access: BucketAccess, options: WatchOptions) {
    this.#access = access;
    this.#inbox = access.link.inbox();
    this.#options = options;
    this.#stream = `KV_${access.bucket}`;
    this.#keyAt = `$KV.${access.bucket}.`.length;
    this.#revision = options.from;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#subscription = access.link.connection.subscribe(this.#inbox, {
      callback: (error, msg) => (error ? this.#fail(error.message) : this.#receive(msg)),
    });
    this.#silence = setTimeout(() => this.#fail('no answer to a pull'), PULL_MS + PULL_GRACE_MS).unref();
  }

  /** @throws when the bucket is missing or the server does not answer */
  static async open(access: BucketAccess, options: WatchOptions): Promise<BucketWatch> {
    const watch = new BucketWatch(access, options);
    try {
      await access.manager.consumers.add(watch.#stream, {
        name: watch.#name,
        deliver_policy: DeliverPolicy.StartSequence,
        opt_start_seq: Math.max(options.from, 1),
        ack_policy: AckPolicy.None,
        mem_storage: true,
        num_replicas: 1,
        inactive_threshold: nanos(CONSUMER_IDLE_MS),
      });
    } catch (error) {
      void watch.stop(); // it may exist all the same: only the answer was late
      throw error;
    }
    watch.#pull();
    return watch;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /**
   * Resolves when all that the bucket had at `state` has come: its last revision or a later one, or
   * as many keys as it had. An entry may have been purged, or overwritten since, which then comes
   * later. `pending` cannot be trusted: nats-server 2.9 lets it drift while keys are overwritten.
   * @param seen how many keys have come so far
   * @throws SnapshotError when nothing comes for `stallMs`, or the watch ends
   */
  async reach(state: BucketState, seen: () => number, stallMs: number): Promise<void> {
    assert(this.#look === undefined, 'one waits at a time');
    let timer: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        const fail = (): void => reject(new SnapshotError('the snapshot of the bucket ended early'));
        timer = setTimeout(fail, stallMs);
        this.#look = () => {
          if (this.#isStopped) fail();
          else if (this.#revision >= state.lastSequence || seen() >= (state.keys ?? Infinity)) resolve();
          else timer?.refresh();
        };
        this.#look();
      });
    } finally {
      clearTimeout(timer);
      this.#look = undefined;
    }
  }

  /**
   * Resolves when every key has come that the bucket has. A key that is overwritten while it is
   * read comes behind all that the first look knew of, so the bucket is looked at again.
   * @param state from before the watch was opened
   * @returns false when a key was still missing after SNAPSHOT_LOOKS_MAX looks: it comes later
   * @throws as {@link reach}
   */
  async reachAll(state: BucketState, seen: () => number, stallMs: number): Promise<boolean> {
    const { manager, bucket } = this.#access;
    await this.reach(state, seen, stallMs);
    for (let looks = 0; looks < SNAPSHOT_LOOKS_MAX; looks++) {
      const now = await bucketState(manager, bucket);
      await this.reach(now, seen, stallMs);
      if (seen() >= (now.keys ?? 0)) return true;
    }
    return false;
  }

  /** Resolves when the consumer is deleted, or that has failed. Never rejects. */
  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    clearTimeout(this.#silence);
    this.#subscription.unsubscribe();
    this.#look?.();
    if (!this.#access.link.connected) return;
    await this.#access.manager.consumers.delete(this.#stream, this.#name).catch(() => undefined);
  }

  #fail(reason: string): void {
    this.#end(new Error(reason));
    void this.stop();
  }

  #pull(): void {
    const { link } = this.#access;
    if (this.#isStopped || link.connection.isClosed() || link.connection.isDraining()) return;
    this.#wanted = REGISTRY_SLICE_ENTRIES;
    this.#silence.refresh();
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${this.#stream}.${this.#name}`;
    const request = JSON.stringify({ batch: REGISTRY_SLICE_ENTRIES, expires: nanos(PULL_MS) });
    link.connection.publish(subject, request, { reply: this.#inbox });
  }

  #receive(msg: Msg): void {
    if (this.#isStopped) return;
    if (msg.subject === this.#inbox) {
      if (PULL_ENDED.has(msg.headers?.code)) this.#pull();
      else this.#fail(msg.headers?.description || 'the consumer is gone');
      return;
    }
    // $JS.ACK.[domain.account.]stream.consumer.deliveries.revision.number.time.pending[.random]
    const about = `${msg.reply}`.split('.');
    const at = about.length > 9 ? 2 : 0;
    if (Number(about[at + 6]) !== ++this.#entries) return this.#fail('an entry was lost on its way');
    this.#revision = Number(about[at + 5]);
    const key = msg.subject.slice(this.#keyAt);
    const text = isRemoval(msg) ? undefined : msg.string();
    this.#options.onEntry({ key, text, revision: this.#revision }, `${about[at + 7]}`);
    this.#look?.();
    if (--this.#wanted === 0) setImmediate(() => this.#pull());
  }
}

/** A deletion by a client, or the broker's own marker for what has grown too old. */
const isRemoval = ({ headers }: Msg): boolean =>
  headers !== undefined &&
  ((headers.get('KV-Operation') || 'PUT') !== 'PUT' || headers.has('Nats-Marker-Reason'));

/** What `parse` made of each key's newest entry in the bucket; undefined leaves a key out. */
export async function readBucket<T>(
  access: BucketAccess,
  parse: (key: string, text: string) => T | undefined,
): Promise<T[]> {
  for (let tries = 1; ; tries++) {
    const found = new Map<string, T | undefined>();
    const state = await bucketState(access.manager, access.bucket);
    const watch = await BucketWatch.open(access, {
      from: 0,
      onEntry: ({ key, text }) => found.set(key, text === undefined ? undefined : parse(key, text)),
    });
    try {
      if (!(await watch.reachAll(state, () => found.size, REGISTRY_STALL_MS)))
        throw new SnapshotError('keys are overwritten faster than they are read');
      return [...found.values()].filter((one) => one !== undefined);
    } catch (error) {
      if (!(error instanceof SnapshotError) || tries === READ_TRIES_MAX) throw error;
    } finally {
      await watch.stop();
    }
  }
}
