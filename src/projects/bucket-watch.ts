/** One watch of one bucket: its present content, then every change, until it is stopped. */
import type { JetStreamManager } from '@nats-io/jetstream';
import type { KV, KvWatchEntry } from '@nats-io/kv';
import { REGISTRY_STALL_MS } from '../limits.ts';
import { type BucketState, bucketState } from './bucket.ts';

/** `text` is undefined when the key was deleted. */
export type BucketEntry = { key: string; text: string | undefined; revision: number };

export type BucketAccess = { bucket: string; kv: KV; manager: JetStreamManager };

/**
 * Something was removed while the bucket was read, or the server fell silent. Reading again helps.
 */
class SnapshotError extends Error {
  override name = 'SnapshotError';
}

const READ_TRIES_MAX = 3;

type Watching = Awaited<ReturnType<KV['watch']>>;

export class BucketWatch {
  readonly createdMs: number;
  /** The newest change seen, or that the snapshot took for granted. */
  lastSequence: number;
  /** Every key seen, deleted ones included: the server counts those too. */
  readonly keys = new Set<string>();
  readonly #watching: Watching;
  /**
   * The one iterator that a watch allows; a for-await loop would close it on leaving, so it is
   * stepped by hand.
   */
  readonly #steps: AsyncIterator<KvWatchEntry>;
  #stopped = false;

  private constructor(watching: Watching, state: BucketState) {
    this.#watching = watching;
    this.#steps = watching[Symbol.asyncIterator]();
    this.createdMs = state.createdMs;
    this.lastSequence = state.lastSequence;
  }

  /**
   * Opens a watch and reads its snapshot.
   * @returns the watch and the last entry of each key that is not deleted
   * @throws when the bucket is missing, the server does not answer, or the snapshot stalls
   */
  static async open(access: BucketAccess): Promise<{ watch: BucketWatch; snapshot: BucketEntry[] }> {
    const state = await bucketState(access.manager, access.bucket);
    const watch = new BucketWatch(await access.kv.watch(), state);
    try {
      // An empty bucket sends nothing at all, so its end could not be seen.
      return { watch, snapshot: state.keys === 0 ? [] : await watch.#readSnapshot(state) };
    } catch (error) {
      watch.stop();
      throw error;
    }
  }

  /** Hands over changes until the watch is stopped or the server ends it. */
  async follow(onChange: (entry: BucketEntry) => void): Promise<void> {
    for (let step = await this.#steps.next(); !step.done; step = await this.#steps.next()) {
      if (this.#stopped) return;
      onChange(this.#note(step.value));
    }
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  stop(): void {
    this.#stopped = true;
    this.#watching.stop();
  }

  /**
   * Ends when as many keys have come as the server had when it was asked. A key that was
   * overwritten meanwhile comes a little later than its turn. `pending` cannot be trusted:
   * nats-server 2.9 lets it drift while keys are overwritten, so that it may never be 0, or be 0
   * too early.
   */
  async #readSnapshot(state: BucketState): Promise<BucketEntry[]> {
    const last = new Map<string, BucketEntry>();
    const stall = setTimeout(() => this.#watching.stop(), REGISTRY_STALL_MS);
    try {
      for (let step = await this.#steps.next(); !step.done; step = await this.#steps.next()) {
        const entry = this.#note(step.value);
        last.set(entry.key, entry);
        const isAll = state.keys === undefined ? step.value.delta === 0 : last.size >= state.keys;
        if (isAll) return [...last.values()].filter(({ text }) => text !== undefined);
        // Later changes are not progress: keys that were purged will not come, and must not be
        // waited for.
        if (entry.revision <= state.lastSequence) stall.refresh();
      }
    } finally {
      clearTimeout(stall);
    }
    throw new SnapshotError('the snapshot of the bucket ended early');
  }

  #note(entry: KvWatchEntry): BucketEntry {
    this.keys.add(entry.key);
    if (entry.revision > this.lastSequence) this.lastSequence = entry.revision;
    return {
      key: entry.key,
      text: entry.operation === 'PUT' ? entry.string() : undefined,
      revision: entry.revision,
    };
  }
}

/** The present content of a bucket. */
export async function readBucket(access: BucketAccess): Promise<BucketEntry[]> {
  for (let tries = 1; ; tries++) {
    try {
      const { watch, snapshot } = await BucketWatch.open(access);
      watch.stop();
      return snapshot;
    } catch (error) {
      if (!(error instanceof SnapshotError) || tries === READ_TRIES_MAX) throw error;
    }
  }
}
