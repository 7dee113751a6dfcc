import { setImmediate as afterPoll } from 'node:timers/promises';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import {
  REGISTRY_CHECK_MS,
  REGISTRY_REQUEST_MS,
  REGISTRY_RETRY_MS_MAX,
  REGISTRY_RETRY_MS_MIN,
  REGISTRY_STALL_MS,
  REGISTRY_TIMEOUT_FACTOR_MAX,
} from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { type BucketState, bucketState, isMissingBucket, registryManager } from './bucket.ts';
import type { BucketCopy } from './bucket-copy.ts';
import { type BucketEntry, BucketWatch } from './bucket-watch.ts';

export type MirrorOptions = {
  link: NatsLink;
  bucket: string;
  copy: BucketCopy;
  log: Log;
  clock: Clock;
};

/** How much of a bucket has come. */
type Position = {
  /** Of the bucket: another figure means another bucket of this name. */
  createdMs: number;
  /** The newest revision that has come, and when the broker stored it. */
  revision: number;
  stamp: string;
  /**
   * Nothing is missing up to here; more than `revision` where the newest entries were purged.
   * UNREAD: not even what the bucket held at first.
   */
  wholeUpTo: number;
};
const UNREAD = -1;

/**
 * Keeps a copy of a bucket in this process's memory, so that a look-up costs no I/O and an outage
 * of the broker costs nothing.
 *
 * A change reaches the copy through a watch, within milliseconds. But a watch can go stale in
 * silence: a restart or an election may lose its consumer. So the watch is never trusted alone. A
 * fresh one is opened after every reconnect, and when the server's own figures differ from ours
 * over a whole REGISTRY_CHECK_MS. The price is one small request per bucket and second.
 *
 * A fresh watch goes on at the position of the one before, so a reconnect costs no more than what
 * has changed. Everything is read again, over the old content, when the position is no longer
 * valid: the bucket was made anew, its broker went back to an earlier state, or keys were purged
 * without a trace. What fails is repeated for ever, an opening with longer time-outs each time, and
 * the copy keeps its content.
 *
 * States: no position → (open) → reading a snapshot → following → (reconnect, stale or ended) →
 * open → following; without a position a snapshot again.
 */
export class BucketMirror {
  readonly #options: MirrorOptions;
  /** The one that is followed or being read; undefined before the first. */
  #watch: BucketWatch | undefined;
  #position: Position | undefined;
  /** The server's figures and ours at the previous check, while they differed. */
  #suspect: { isAhead: boolean; revision: number } | undefined;
  #stopped = false;
  /** Wakes the loop from its wait for the next check. */
  #wake: (() => void) | undefined;
  #renewal = true;
  /** The time-outs are multiplied by it; it doubles with each failure. */
  #timeoutFactor = 1;
  #loop: Promise<void> | undefined;
  #firstSnapshot: (() => void) | undefined;
  /** What the last question found: `away` where the broker did not answer it. */
  #found: 'ok' | 'away' | 'missing' = 'away';

  constructor(options: MirrorOptions) {
    this.#options = options;
    options.link.onReconnect(() => {
      this.#timeoutFactor = 1;
      this.#renew('reconnected');
    });
  }

  /** Resolves when the copy has the first snapshot (or the mirror was stopped). Never rejects. */
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
    this.#stopped = true;
    this.#wake?.();
    await this.#watch?.stop();
    await this.#loop;
    this.#firstSnapshot?.();
  }

  async #run(): Promise<void> {
    const { bucket, log, link } = this.#options;
    let retryMs = REGISTRY_RETRY_MS_MIN;
    while (!this.#stopped) {
      try {
        if (link.connected) {
          await (this.#renewal ? this.#open() : this.#check());
          this.#found = 'ok';
        }
        retryMs = REGISTRY_RETRY_MS_MIN;
        this.#timeoutFactor = 1;
        await this.#sleep(this.#renewal && link.connected ? 0 : REGISTRY_CHECK_MS);
      } catch (error) {
        if (this.#stopped) return;
        this.#found = isMissingBucket(error) ? 'missing' : 'away';
        // One line for each streak of failures: an outage must not fill the log.
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

  /**
   * Opens a fresh watch and waits until it has brought what is missing. A renewal asked for
   * meanwhile makes the loop come back here.
   */
  async #open(): Promise<void> {
    this.#renewal = false;
    // One that failed while it was read, or was opened as the connection broke.
    void this.#watch?.stop();
    this.#watch = undefined;
    try {
      const { link, bucket } = this.#options;
      const manager = await registryManager(link, this.#requestMs);
      const state = await bucketState(manager, bucket);
      const position = this.#positionFor(state);
      const onEntry = (entry: BucketEntry, stamp: string): void => this.#put(position, entry, stamp);
      const watch = await BucketWatch.open({ link, bucket, manager }, { from: position.revision, onEntry });
      if (this.#stopped) return await watch.stop();
      this.#watch = watch;
      void watch.ended.then((reason) => this.#renew(reason.message));
      await this.#catchUp(watch, position, state);
    } catch (error) {
      this.#renewal = true;
      throw error;
    }
  }

  /** Where the next watch goes on; a new position when the one that we have is no longer valid. */
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
      // The keys of a whole copy say nothing: they were there before.
      else await watch.reach(state, () => 0, this.#stallMs);
    } catch (error) {
      // What it waits for was purged, for all we know.
      if (position.revision === before) this.#readAgain('nothing comes');
      throw error;
    }
    // Else what has not come stays: it is only late, or the next check finds one key too many.
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

  /** Compares what has come with what the server holds. */
  async #check(): Promise<void> {
    const { link, bucket, copy } = this.#options;
    const server = await bucketState(await registryManager(link), bucket);
    const position = this.#position;
    if (this.#renewal || !position) return;
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

  /** Reads everything again. */
  #readAgain(reason: string): void {
    this.#position = undefined;
    this.#renew(reason);
  }

  #renew(reason: string): void {
    if (this.#stopped) return;
    this.#options.log.debug({ bucket: this.#options.bucket, reason }, 'projects: opening a fresh watch');
    void this.#watch?.stop();
    this.#watch = undefined;
    this.#renewal = true;
    this.#wake?.();
  }

  async #sleep(ms: number): Promise<void> {
    if (this.#stopped || ms === 0) return;
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
