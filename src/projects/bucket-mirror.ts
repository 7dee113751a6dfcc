/**
 * Follows a bucket: {@link BucketWatch} reads its entries, {@link BucketMirror} keeps a copy of it
 * up to date, {@link readBucket} reads it once.
 */
import { setImmediate as afterPoll } from 'node:timers/promises';
import { AckPolicy, DeliverPolicy, type JetStreamManager } from '@nats-io/jetstream';
import { type Msg, nanos, nuid, type Subscription } from '@nats-io/transport-node';
import { assert } from '../lib/assert.ts';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import {
  REGISTRY_CHECK_MS,
  REGISTRY_REQUEST_MS,
  REGISTRY_RETRY_MS_MAX,
  REGISTRY_RETRY_MS_MIN,
  REGISTRY_SLICE_ENTRIES,
  REGISTRY_STALL_MS,
  REGISTRY_TIMEOUT_FACTOR_MAX,
} from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { type BucketState, bucketState, isMissingBucket, registryManager } from './bucket.ts';
import type { BucketCopy, BucketEntry } from './bucket-copy.ts';

// ---- A watch ----

export type BucketAccess = { link: NatsLink; bucket: string; manager: JetStreamManager };

type WatchOptions = {
  /** The last revision that the caller has, which is delivered again; 0: none. */
  from: number;
  /**
   * Called for each entry. `stamp`: when the broker stored the entry. By it we notice that the
   * broker has given one revision to two entries.
   */
  onEntry(entry: BucketEntry, stamp: string): void;
};

/**
 * An entry was removed while the bucket was read, or the server fell silent. Reading again helps.
 */
class SnapshotError extends Error {
  override name = 'SnapshotError';
}

const READ_TRIES_MAX = 3;
/**
 * Most times that one reading asks for the bucket's state again, because keys were overwritten
 * meanwhile.
 */
const SNAPSHOT_LOOKS_MAX = 5;
const PULL_MS = 30_000;
/** Extra time for the broker's answer when the time of a pull is up. */
const PULL_GRACE_MS = 5_000;
/** The broker deletes a consumer that had no pull for this long: its process was killed. */
const CONSUMER_IDLE_MS = 5_000;
/** Codes of answers that end a pull without a fault, for example when its time is up. */
const PULL_ENDED: ReadonlySet<number | undefined> = new Set([404, 408]);

/**
 * One consumer of one bucket, which reads the bucket's stream in order. A bucket keeps only the
 * last entry of each key. So a reading from revision 1 gives the bucket's content, and a reading
 * from a later revision gives the changes since. A consumer of the kind "last of each subject" is
 * not used, because some servers take seconds to make it (docs/broker-quirks.md).
 *
 * Entries are pulled in slices, and the next slice is requested in a later turn of the event loop.
 * So no turn handles more than one slice, however fast the broker is.
 *
 * A watch that stops deletes its consumer. If the request is lost or the process is killed, the
 * broker deletes the consumer after CONSUMER_IDLE_MS.
 */
export class BucketWatch {
  readonly #access: BucketAccess;
  readonly #options: WatchOptions;
  readonly #name = `sluice_${nuid.next()}`;
  readonly #stream: string;
  readonly #keyAt: number;
  readonly #inbox: string;
  readonly #subscription: Subscription;
  /** Revision of the newest entry that has come. */
  #revision: number;
  /**
   * Number of entries that have come. The consumer numbers its entries; a gap means that one was
   * lost.
   */
  #entries = 0;
  /** How many entries the open pull still asks for. */
  #wanted = 0;
  readonly #silence: NodeJS.Timeout;
  #isStopped = false;
  /** Resolves with the reason when the watch ends by itself, not by {@link stop}. */
  readonly ended: Promise<Error>;
  #end: (reason: Error) => void = () => undefined;
  /** Makes {@link reach} check again. */
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
      void watch.stop(); // the consumer may exist, if only the answer was late
      throw error;
    }
    watch.#pull();
    return watch;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /**
   * Resolves when all that the bucket held at `state` has come, except keys that were overwritten
   * since. That is so when the last revision of `state` or a later one has come, or, in case the
   * last entry was purged since, as many keys as the bucket had. The consumer's `pending` cannot be
   * trusted (docs/broker-quirks.md).
   * @param seen returns how many keys have come so far
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
   * Resolves when every key of the bucket has come. A key that is overwritten during the reading
   * moves behind the last revision of `state`, so the bucket's state is asked for again.
   * @param state from before the watch was opened
   * @returns false when a key was still missing after SNAPSHOT_LOOKS_MAX looks; it comes later
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

  /** Resolves when the consumer has been deleted, or the deletion has failed. Never rejects. */
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

/**
 * Whether an entry deletes its key: a client's deletion, or the broker's own marker for an entry
 * that has expired.
 */
const isRemoval = ({ headers }: Msg): boolean =>
  headers !== undefined &&
  ((headers.get('KV-Operation') || 'PUT') !== 'PUT' || headers.has('Nats-Marker-Reason'));

/**
 * Reads a bucket once.
 * @param parse gets the newest entry of each key; keys for which it returns undefined are left out
 */
export async function readBucket<T>(
  access: BucketAccess,
  parse: (key: string, text: string, revision: number) => T | undefined,
): Promise<T[]> {
  for (let tries = 1; ; tries++) {
    const found = new Map<string, T | undefined>();
    const state = await bucketState(access.manager, access.bucket);
    const watch = await BucketWatch.open(access, {
      from: 0,
      onEntry: ({ key, text, revision }) =>
        found.set(key, text === undefined ? undefined : parse(key, text, revision)),
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

// ---- A copy that follows ----

export type MirrorOptions = {
  link: NatsLink;
  bucket: string;
  copy: BucketCopy;
  log: Log;
  clock: Clock;
};

/** How much of a bucket has come. */
type Position = {
  /** When the bucket was created (Unix ms); another value means that it was made again. */
  createdMs: number;
  /** Revision of the newest entry that has come, and when the broker stored that entry. */
  revision: number;
  stamp: string;
  /**
   * All entries up to this revision have come. It exceeds `revision` when the newest entries were
   * purged. UNREAD: the first reading of the bucket has not ended.
   */
  wholeUpTo: number;
};
const UNREAD = -1;

type MirrorState =
  /**
   * A fresh watch must be opened: at the start, after a reconnect, or because the watch is stale or
   * has ended.
   */
  | 'opening'
  /**
   * The watch brings the missing entries. If the copy has no valid position yet, these are all
   * entries; otherwise they are the changes since that position.
   */
  | 'reading'
  /**
   * Nothing is missing. The watch brings changes. Once a second, the copy's last revision and
   * number of keys are compared with the bucket's.
   */
  | 'following'
  | 'stopped';

/**
 * Keeps a copy of a bucket in this process's memory, so that a look-up costs no I/O and works while
 * the broker is away.
 *
 * A watch brings each change within milliseconds. But a watch can go stale without an error: a
 * restart or an election may lose its consumer. So a fresh watch is opened after each reconnect,
 * and when the bucket's last revision or its number of keys differs from the copy's for a whole
 * REGISTRY_CHECK_MS.
 *
 * A fresh watch goes on at the position of the previous one, so a reconnect costs no more than the
 * changes. Everything is read again, over the old content, when the position is no longer valid:
 * the bucket was made again, its broker went back to an earlier state, or keys were purged without
 * a trace. A step that fails is repeated for ever; the copy keeps its content meanwhile.
 */
export class BucketMirror {
  readonly #options: MirrorOptions;
  /** The watch that is being read or followed; undefined before the first. */
  #watch: BucketWatch | undefined;
  #position: Position | undefined;
  /**
   * Difference that the previous check found between the bucket and the copy; undefined when it
   * found none.
   */
  #suspect: { isAhead: boolean; revision: number } | undefined;
  #state: MirrorState = 'opening';
  /** Wakes the loop from its wait for the next check. */
  #wake: (() => void) | undefined;
  /** Factor of the time-outs. It doubles with each failure, and is 1 again after a success. */
  #timeoutFactor = 1;
  #loop: Promise<void> | undefined;
  #firstSnapshot: (() => void) | undefined;
  /** Result of the last request. `away`: the broker did not answer, or nothing was asked yet. */
  #found: 'ok' | 'away' | 'missing' = 'away';

  constructor(options: MirrorOptions) {
    this.#options = options;
    options.link.onReconnect(() => {
      this.#timeoutFactor = 1;
      this.#renew('reconnected');
    });
  }

  /**
   * Starts to follow the bucket. Resolves when the copy has the first snapshot, or the mirror was
   * stopped. Never rejects.
   */
  start(): Promise<void> {
    const first = new Promise<void>((resolve) => {
      this.#firstSnapshot = resolve;
    });
    this.#loop = this.#run();
    return first;
  }

  get found(): 'ok' | 'away' | 'missing' {
    return this.#found;
  }

  async stop(): Promise<void> {
    this.#become('stopped');
    this.#wake?.();
    await this.#watch?.stop();
    await this.#loop;
    this.#firstSnapshot?.();
  }

  get #isStopped(): boolean {
    return this.#state === 'stopped';
  }

  #become(state: MirrorState): void {
    if (this.#state !== 'stopped') this.#state = state;
  }

  async #run(): Promise<void> {
    const { bucket, log, link } = this.#options;
    let retryMs = REGISTRY_RETRY_MS_MIN;
    while (!this.#isStopped) {
      try {
        if (link.connected) {
          await (this.#state === 'opening' ? this.#open() : this.#check());
          this.#found = 'ok';
        }
        retryMs = REGISTRY_RETRY_MS_MIN;
        this.#timeoutFactor = 1;
        await this.#sleep(this.#state === 'opening' && link.connected ? 0 : REGISTRY_CHECK_MS);
      } catch (error) {
        if (this.#isStopped) return;
        this.#found = isMissingBucket(error) ? 'missing' : 'away';
        // Only the first of a row of failures is logged as a warning, so that an outage does not
        // fill the log.
        const level = retryMs === REGISTRY_RETRY_MS_MIN ? 'warn' : 'debug';
        if (this.#found === 'missing')
          log[level](
            { bucket },
            'projects: the bucket is missing, trying again; on a new cell run sluice setup',
          );
        else log[level]({ bucket, err: error }, 'projects: bucket not readable, trying again');
        await this.#sleep(retryMs);
        retryMs = Math.min(retryMs * 2, REGISTRY_RETRY_MS_MAX);
        this.#timeoutFactor = Math.min(this.#timeoutFactor * 2, REGISTRY_TIMEOUT_FACTOR_MAX);
      }
    }
  }

  /** Opens a fresh watch and waits until it has brought the missing entries. */
  async #open(): Promise<void> {
    this.#become('reading');
    // A previous watch may remain: its reading failed, or it was opened just as the connection
    // broke.
    void this.#watch?.stop();
    this.#watch = undefined;
    try {
      const { link, bucket } = this.#options;
      const manager = await registryManager(link, this.#requestMs);
      const state = await bucketState(manager, bucket);
      const position = this.#positionFor(state);
      const onEntry = (entry: BucketEntry, stamp: string): void => this.#put(position, entry, stamp);
      const watch = await BucketWatch.open({ link, bucket, manager }, { from: position.revision, onEntry });
      if (this.#isStopped) return await watch.stop();
      this.#watch = watch;
      void watch.ended.then((reason) => this.#renew(reason.message));
      await this.#catchUp(watch, position, state);
      if (this.#state === 'reading') this.#become('following');
    } catch (error) {
      this.#become('opening');
      throw error;
    }
  }

  /**
   * The position at which the next watch begins; a new position when the present one is no longer
   * valid.
   */
  #positionFor({ createdMs, lastSequence }: BucketState): Position {
    const position = this.#position;
    if (position && position.createdMs === createdMs && position.revision <= lastSequence) return position;
    this.#options.copy.startSnapshot(createdMs);
    this.#position = { createdMs, revision: 0, stamp: '', wholeUpTo: UNREAD };
    return this.#position;
  }

  #put(position: Position, entry: BucketEntry, stamp: string): void {
    if (position !== this.#position) return;
    if (entry.revision === position.revision && stamp !== position.stamp)
      return this.#readAgain('a revision was given twice');
    position.revision = entry.revision;
    position.stamp = stamp;
    this.#options.copy.put(entry);
  }

  async #catchUp(watch: BucketWatch, position: Position, state: BucketState): Promise<void> {
    const { bucket, copy, log, clock } = this.#options;
    this.#suspect = undefined;
    if (position.wholeUpTo >= state.lastSequence) return;
    const began = clock.monotonic();
    const isSnapshot = position.wholeUpTo === UNREAD;
    const before = position.revision;
    let isWhole = isSnapshot;
    try {
      if (isSnapshot) isWhole = await watch.reachAll(state, () => copy.seen, this.#stallMs);
      // Counting keys would prove nothing here, because the copy had its keys before.
      else await watch.reach(state, () => 0, this.#stallMs);
    } catch (error) {
      // If nothing has come, the missing entries may have been purged, so everything is read again.
      if (position.revision === before) this.#readAgain('nothing comes');
      throw error;
    }
    // An incomplete snapshot removes nothing: a missing key may only be late. If a key was removed,
    // the next check finds one key too many.
    if (isWhole) for (const _ of copy.endSnapshot()) await afterPoll();
    position.wholeUpTo = state.lastSequence;
    const ms = Math.round(clock.monotonic() - began);
    if (isSnapshot) log.info({ bucket, keys: copy.size, ms }, 'projects: bucket loaded');
    this.#firstSnapshot?.();
  }

  get #requestMs(): number {
    return REGISTRY_REQUEST_MS * this.#timeoutFactor;
  }

  get #stallMs(): number {
    return REGISTRY_STALL_MS * this.#timeoutFactor;
  }

  /**
   * Compares the copy with the bucket. If two checks find the same difference, opens a fresh watch,
   * or reads everything again.
   */
  async #check(): Promise<void> {
    const { link, bucket, copy } = this.#options;
    const server = await bucketState(await registryManager(link), bucket);
    const position = this.#position;
    if (this.#state !== 'following' || !position) return;
    if (server.createdMs !== position.createdMs) return this.#readAgain('the bucket was made anew');
    const revision = Math.max(position.revision, position.wholeUpTo);
    const isAhead = server.lastSequence > revision;
    const isSame = server.lastSequence === revision && (server.keys ?? copy.size) === copy.size;
    const before = this.#suspect;
    this.#suspect = isSame ? undefined : { isAhead, revision };
    if (isSame || before?.revision !== revision || before.isAhead !== isAhead) return;
    if (isAhead) this.#renew('the watch is stale');
    else this.#readAgain('the bucket holds something else');
  }

  /** Reads everything again, with a fresh watch. */
  #readAgain(reason: string): void {
    this.#position = undefined;
    this.#renew(reason);
  }

  #renew(reason: string): void {
    if (this.#isStopped) return;
    this.#options.log.debug({ bucket: this.#options.bucket, reason }, 'projects: opening a fresh watch');
    void this.#watch?.stop();
    this.#watch = undefined;
    this.#become('opening');
    this.#wake?.();
  }

  async #sleep(ms: number): Promise<void> {
    if (this.#isStopped || ms === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = undefined;
  }
}
