import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import type { Distribution } from '../../lib/metrics/distribution.ts';
import type { OutageLog } from '../../lib/outage-log.ts';
import {
  RECEIVED_DISORDER_MS_MAX,
  RESEND_WINDOW_MS,
  S3_OBJECT_BYTES_MAX,
  S3_OBJECT_FRAMES_MAX,
  S3_OBJECT_PACKED_BYTES_MAX,
  SINK_RETRY_MS_MAX,
  SINK_STALLED_MS,
} from '../../limits.ts';
import { KeyTable } from '../key-table.ts';
import { RecentFrames } from '../recent-frames.ts';
import type { SinkBatch, StreamSink } from '../sink.ts';
import { UnavailableError } from '../unavailable.ts';
import type { S3Address } from './address.ts';
import { type BatchStream, type Brought, S3Batch } from './batch.ts';
import { type Bucket, IS_NEW } from './bucket.ts';
import { hourFolder, objectName } from './keys.ts';
import { Blocks, Lines } from './lines.ts';
import { Manifests } from './manifests.ts';

/** Unused blocks that are kept: one for the open batch, one for the gathered lines. */
const BLOCKS_KEPT = 2;

/** Records since the last objects were stored. They become one object for each hour. */
class Gathered {
  readonly hours = new Map<number, Lines>();
  frames = 0;
  newest = 0;
  readonly durable: Promise<void>;
  stored: () => void = () => undefined;

  constructor() {
    this.durable = new Promise((resolve) => {
      this.stored = resolve;
    });
  }

  get isFull(): boolean {
    const all = [...this.hours.values()];
    return (
      this.frames >= S3_OBJECT_FRAMES_MAX ||
      all.reduce((sum, { bytes }) => sum + bytes, 0) >= S3_OBJECT_BYTES_MAX ||
      all.reduce((sum, { packedBytes }) => sum + packedBytes, 0) >= S3_OBJECT_PACKED_BYTES_MAX
    );
  }
}

export type S3Parts = {
  address: S3Address;
  bucket: Bucket;
  clock: Clock;
  log: Log;
  outage: OutageLog;
  /** Seconds that it took to store gathered records. */
  writeSeconds: Distribution;
};

/**
 * Brings one stream's batches into the bucket. Batches gather in memory, packed, until they are
 * large or old enough for an object. Until then their frames stay unacknowledged. Objects are
 * stored one after the other, so earlier batches are always durable before later ones.
 *
 * When the bucket is away, the gathered records stay in memory, and no further batch begins before
 * they are stored.
 */
export class S3Stream implements StreamSink, BatchStream {
  readonly #parts: S3Parts;
  readonly #stream: string;
  readonly #manifests: Manifests;
  readonly #recent = new RecentFrames();
  readonly #resends: KeyTable;
  readonly #blocks = new Blocks(BLOCKS_KEPT);
  #newest = 0;
  #gathered = new Gathered();
  /** Gathered records that the last attempt could not store. */
  #unstored: Gathered | undefined;
  #timer: NodeJS.Timeout | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(stream: string, parts: S3Parts) {
    const { address, bucket } = parts;
    this.#stream = stream;
    this.#parts = parts;
    this.#manifests = new Manifests({ bucket, prefix: address.prefix, stream });
    this.#resends = new KeyTable(() => this.#newest - RESEND_WINDOW_MS - RECEIVED_DISORDER_MS_MAX);
  }

  newLines(): Lines {
    return new Lines(this.#parts.address.compression, this.#blocks);
  }

  /** Looks for hours that another process left without a manifest. Nothing waits for this. */
  load(): void {
    const { clock, log } = this.#parts;
    this.#manifests
      .load(clock.now())
      .catch((error) =>
        log.warn({ err: error, stream: this.#stream }, 'sink: older hours are not looked for a manifest'),
      );
  }

  entriesOf(frameId: string): number {
    return this.#recent.entriesOf(frameId);
  }

  storedAt(item: Buffer): number | undefined {
    return this.#resends.get(item)?.time;
  }

  async begin(): Promise<SinkBatch> {
    if (this.#unstored) await this.#flush();
    return new S3Batch(this);
  }

  async commit(
    { hours, frames, resends, ...brought }: Brought,
    { now, held }: { now: boolean; held(): void },
  ): Promise<void> {
    // `newest` is at most our clock's time, because a worker's clock may be ahead of ours.
    const newest = Math.min(brought.newest, this.#parts.clock.now());
    const into = await this.#alone(async () => {
      const gathered = this.#gathered;
      for (const [hour, lines] of hours) {
        const all = gathered.hours.get(hour) ?? this.newLines();
        gathered.hours.set(hour, all);
        await all.absorb(lines);
      }
      gathered.frames += frames.size;
      gathered.newest = Math.max(gathered.newest, newest);
      return gathered;
    });
    this.#recent.note(frames);
    this.#newest = Math.max(this.#newest, newest);
    for (const { key, receivedAt } of resends) this.#resends.set(key, receivedAt);
    if (now) return this.#flush();
    if (into.hours.size === 0 && !this.#unstored) return;
    if (!this.#timer) this.#flushIn(this.#parts.address.objectMs);
    // A failure is ignored here, because begin() stores these records before the next batch.
    if (into.isFull) await this.#flush().catch(() => undefined);
    held();
    await into.durable;
  }

  /**
   * Stores all gathered records.
   * @throws UnavailableError
   */
  #flush(): Promise<void> {
    const { outage } = this.#parts;
    return this.#alone(async () => {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      const stalled = setTimeout(() => {
        outage.failed(this.#stream, `no answer for ${SINK_STALLED_MS / 1000} s`);
      }, SINK_STALLED_MS);
      try {
        if (this.#unstored) await this.#store(this.#unstored);
        this.#unstored = this.#gathered;
        this.#gathered = new Gathered();
        await this.#store(this.#unstored);
        outage.worked(this.#stream);
      } catch (error) {
        outage.failed(this.#stream, (error as Error).message);
        if (!this.#closed) this.#flushIn(SINK_RETRY_MS_MAX);
        throw error;
      } finally {
        clearTimeout(stalled);
      }
    });
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #flushIn(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#flush().catch(() => undefined);
    }, ms);
  }

  async #store(gathered: Gathered): Promise<void> {
    const { bucket, address, clock, writeSeconds } = this.#parts;
    const began = clock.monotonic();
    for (const [hour, lines] of gathered.hours) {
      const folder = `${address.prefix}${hourFolder(this.#stream, hour)}`;
      const key = `${folder}${objectName(lines.keys, address.compression)}`;
      const isTaken = await bucket.put(key, await lines.content(), IS_NEW);
      // When the write does not take effect and the key has an object, that object has the same
      // rows. It was stored before, and the answer was lost.
      if (!isTaken && !(await bucket.has(key)))
        throw new UnavailableError(`s3: another write of ${key} is under way`);
    }
    const hours = [...gathered.hours.keys()];
    if (hours.length > 0) writeSeconds.observe((clock.monotonic() - began) / 1000);
    for (const lines of gathered.hours.values()) lines.release();
    gathered.stored();
    this.#unstored = undefined;
    await this.#manifests
      .stored(hours, gathered.newest)
      .catch((error) =>
        this.#parts.log.warn(
          { err: error, stream: this.#stream },
          'sink: a manifest cannot be written, trying again with the next object',
        ),
      );
  }

  /** Runs `work` when all earlier work has ended. */
  #alone<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }
}
