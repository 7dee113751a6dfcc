import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { REGISTRY_CHECK_MS, REGISTRY_RETRY_MS_MAX, REGISTRY_RETRY_MS_MIN } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { type BucketState, bucketState, openBucket, registryManager } from './bucket.ts';
import { type BucketAccess, type BucketEntry, BucketWatch } from './bucket-watch.ts';

/** What a mirror keeps up to date. Neither call may throw. */
export interface BucketView {
  /**
   * The bucket's whole content, which replaces the view's. `createdMs` tells a bucket from its
   * successor.
   */
  replace(entries: readonly BucketEntry[], createdMs: number): void;
  apply(entry: BucketEntry): void;
}

export type MirrorOptions = {
  link: NatsLink;
  bucket: string;
  view: BucketView;
  log: Log;
  clock: Clock;
};

/**
 * Keeps a view of a bucket in this process's memory, so that a look-up costs no I/O and an outage
 * of the broker costs nothing.
 *
 * A change reaches the view through a watch, within milliseconds. But a watch can go stale in
 * silence: a restart or an election may lose its consumer, and when a bucket is deleted and made
 * again, the watch waits for sequence numbers that are far ahead. So the watch is never trusted
 * alone. A fresh watch is opened after every reconnect, and when the server's own figures differ
 * from the watch's over a whole REGISTRY_CHECK_MS. The view is replaced only when the new snapshot
 * is complete. While that fails it is repeated for ever, and the view keeps its content. The price
 * is one small request per bucket and second.
 *
 * States: never loaded → (snapshot) → following → (reconnect, stale or ended) → loading beside the
 * old view → following.
 */
export class BucketMirror {
  readonly #options: MirrorOptions;
  #access: BucketAccess | undefined;
  /**
   * The watch being followed; undefined until the first snapshot and while a fresh one is loading.
   */
  #watch: BucketWatch | undefined;
  /** The server's figures at the previous check, while they differed from ours. */
  #suspect: { server: BucketState; sequence: number; keys: number } | undefined;
  #loaded = false;
  #stopped = false;
  /** Wakes the loop from its wait for the next check. */
  #wake: (() => void) | undefined;
  #renewal = true;
  #loop: Promise<void> | undefined;
  #firstSnapshot: (() => void) | undefined;

  constructor(options: MirrorOptions) {
    this.#options = options;
    options.link.onReconnect(() => this.#renew('reconnected'));
  }

  get loaded(): boolean {
    return this.#loaded;
  }

  /** Resolves when the view has the first snapshot (or the mirror was stopped). Never rejects. */
  start(): Promise<void> {
    const first = new Promise<void>((resolve) => {
      this.#firstSnapshot = resolve;
    });
    this.#loop = this.#run();
    return first;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#watch?.stop();
    this.#wake?.();
    await this.#loop;
    this.#firstSnapshot?.();
  }

  async #run(): Promise<void> {
    const { bucket, log } = this.#options;
    let retryMs = REGISTRY_RETRY_MS_MIN;
    while (!this.#stopped) {
      try {
        if (this.#renewal) await this.#load();
        else await this.#check();
        retryMs = REGISTRY_RETRY_MS_MIN;
        await this.#sleep(this.#renewal ? 0 : REGISTRY_CHECK_MS);
      } catch (error) {
        // One line for each streak of failures: an outage must not fill the log.
        const level = retryMs === REGISTRY_RETRY_MS_MIN ? 'warn' : 'debug';
        log[level]({ bucket, err: error }, 'projects: bucket not readable, trying again');
        await this.#sleep(retryMs);
        retryMs = Math.min(retryMs * 2, REGISTRY_RETRY_MS_MAX);
      }
    }
  }

  /**
   * Opens a fresh watch, swaps the view, follows. A renewal asked for meanwhile makes the loop come
   * back here.
   */
  async #load(): Promise<void> {
    const { link, bucket, view, log, clock } = this.#options;
    const began = clock.monotonic();
    this.#renewal = false;
    try {
      this.#access = {
        bucket,
        kv: await openBucket(link, bucket),
        manager: await registryManager(link),
      };
      const { watch, snapshot } = await BucketWatch.open(this.#access);
      if (this.#stopped) return watch.stop();
      this.#watch?.stop();
      this.#watch = watch;
      this.#suspect = undefined;
      view.replace(snapshot, watch.createdMs);
      void this.#follow(watch);
    } catch (error) {
      this.#renewal = true;
      throw error;
    }
    const ms = Math.round(clock.monotonic() - began);
    log.info({ bucket, keys: this.#watch?.keys.size, ms }, 'projects: bucket loaded');
    this.#loaded = true;
    this.#firstSnapshot?.();
  }

  async #follow(watch: BucketWatch): Promise<void> {
    try {
      await watch.follow((entry) => this.#options.view.apply(entry));
    } catch (error) {
      this.#options.log.warn({ bucket: this.#options.bucket, err: error }, 'projects: watch failed');
    }
    if (!watch.stopped) this.#renew('watch ended');
  }

  /** Compares what the watch has delivered with what the server holds. */
  async #check(): Promise<void> {
    const { link, bucket } = this.#options;
    const watch = this.#watch;
    if (!link.connected || !this.#access || !watch) return;
    const server = await bucketState(this.#access.manager, bucket);
    if (server.createdMs !== watch.createdMs) return this.#renew('bucket was made anew');
    const suspect = this.#suspect;
    const keys = watch.keys.size;
    const same = server.lastSequence === watch.lastSequence && (server.keys ?? keys) === keys;
    this.#suspect = same ? undefined : { server, sequence: watch.lastSequence, keys };
    if (same || !suspect) return;
    // Behind: what the server had a check ago has still not come. Still: no figure moved, and they
    // differ.
    const behind = watch.lastSequence < suspect.server.lastSequence;
    const still =
      watch.lastSequence === suspect.sequence && server.lastSequence === suspect.server.lastSequence;
    if (behind || still) this.#renew('watch is stale');
  }

  #renew(reason: string): void {
    if (this.#stopped) return;
    this.#options.log.debug({ bucket: this.#options.bucket, reason }, 'projects: opening a fresh watch');
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
