/**
 * The body of one request on its way to a HeldEnvelope: caps, decompression, parser, collector
 * behind one door. Bytes are pushed in; the verdict comes out once.
 *
 *     arriving ── end ──→ whole ──→ settled ──→ disposed
 *         └──────── a failure ─────────↗
 *
 * *Arriving*: the socket may be paused, by the spool, the inflater or the pacer. *Whole*: the last
 * byte has been fed; inflaters and disk may still be at work. *Settled*: there is a verdict. A
 * failure has freed everything and ignores what is fed later, so that a caller may go on draining
 * the socket; a success holds its bytes until it is *disposed*.
 *
 * Beside these an upload that needs the disk *waits for leave*, once: from then until its owner
 * calls `proceed`, what comes waits in memory as if the disk were slow, and no verdict is told.
 *
 * A body takes one of five ways. What is inflated is parsed and held as a plain body is.
 *
 * 1. Plain, up to 128 KiB of payloads to store (INLINE_BYTES_MAX; 16 KiB while the worker holds
 *    more than 64 MiB): parsed while it arrives, held in memory.
 * 2. Plain, and more: the request takes its token, then the body is spooled while it arrives. The
 *    pacer, or its own spool, may pause its socket.
 * 3. Compressed, up to 64 KiB, and claims to inflate to at most 1 MiB (only gzip can claim) or
 *    claims nothing: kept until it is whole, then inflated in the loop.
 * 4. Compressed, up to 64 KiB, and claims more; or up to 256 KiB (64 KiB while the worker holds
 *    more than 64 MiB); or of the third way, when more comes out than it claimed or than 1 MiB, or
 *    it has several zstd frames: kept until it is whole, waits in the InflationQueue, then inflated
 *    by zlib's threads.
 * 5. Compressed and larger: inflated by zlib's threads while it arrives. The pacer, its inflater or
 *    its spool may pause its socket.
 *
 * A project is *distrusted* after a body of up to 64 KiB that was too much for the loop, by its
 * claim or in fact, one that became more in the queue than was expected, or one that was corrupt
 * and claimed nothing: its next 100 bodies that claim nothing take the fourth way. Whatever the
 * way, the rest of a refused body is read and dropped, up to 200 MiB.
 */
import { assert } from '../../lib/assert.ts';
import { Slot, type Slotted } from '../../lib/slots.ts';
import {
  INFLATER_QUEUE_BYTES_MAX,
  SWELLING_RATIO_MIN,
  SYNC_INFLATE_BYTES_MAX,
  SYNC_INFLATED_BYTES_MAX,
} from '../../limits.ts';
import { Holding, UploadBudget } from './budget.ts';
import { ByteQueue, ownCopy } from './byte-queue.ts';
import { Collector, type HeldEnvelope, type HeldItem, type SkippedItems } from './collector.ts';
import type { Malformed } from './header.ts';
import {
  type Compression,
  claimedBytes,
  type Encoding,
  expectedBytes,
  inflateSync,
  parseEncoding,
} from './inflate/inflate.ts';
import { Inflater } from './inflate/inflater.ts';
import type { QueuedBody } from './inflate/inflation-queue.ts';
import type { ItemReader, NewItemReader } from './parser.ts';
import type { Spool } from './spool.ts';
import type { PacedUpload } from './upload-pacer.ts';

export { type HeldEnvelope, type HeldItem, type SkippedItems, type Spool, UploadBudget };

export type UploadFailure = {
  kind: 'invalid' | 'too_large' | 'overloaded';
  /** A short sentence of a closed set, which the client is told. */
  detail: string;
};

export type UploadResult = { ok: true; envelope: HeldEnvelope } | { ok: false; failure: UploadFailure };

export type UploadOptions = {
  /** Raw Content-Encoding, '' when absent. */
  encoding: string;
  newReader: NewItemReader;
  budget: UploadBudget;
  /** The project whose upload it is. */
  project: Slotted;
  /** Exactly once, perhaps inside `feed`, `end` or `proceed`; never after `dispose`. */
  onResult(result: UploadResult): void;
  /** Pause the socket, or resume it: disk, inflater or stream is behind, or no longer. */
  onPressure(paused: boolean): void;
  /** At most once: nothing goes to disk until `proceed` is called, at once or later. */
  onWaitsForLeave(): void;
};

/**
 * Next bodies of a distrusted project that are inflated beside the loop, where they claim no size:
 * 40 bytes of brotli may take 30 ms, whatever the bound.
 */
const DISTRUSTED_BODIES = 100;
/** How many are left. */
export const DISTRUST = new Slot(
  () => ({ bodies: 0 }),
  () => false,
);

type State = 'arriving' | 'whole' | 'settled' | 'disposed';

/** Who wants the socket to be paused; sums of these are several of them. */
const PAUSED_BY = { spool: 1, inflater: 2, pacer: 4 } as const;

export class Upload {
  readonly #options: UploadOptions;
  readonly #encoding: Encoding | undefined;
  readonly #holding: Holding;
  readonly #collector: Collector;
  readonly #reader: ItemReader;
  #state: State = 'arriving';
  #leave: 'not needed' | 'waited for' | 'given' = 'not needed';
  /** Means something when it is settled. */
  #result: UploadResult | undefined;
  /** A sum of PAUSED_BY; 0: the socket is not paused. */
  #pausedBy = 0;
  #transmitted = 0;
  #inflatedBytes = 0;
  /**
   * The beginning of a compressed body, as long as it may turn out to be the whole body. Most
   * bodies are one chunk, and only others pay for being joined.
   */
  #kept: ByteQueue | undefined;
  /** Set once a compressed body is no longer small, or inflates to much. */
  #inflater: Inflater | undefined;
  /** Set for a body that is whole before an inflater began, and is not inflated in the loop. */
  #queued: QueuedBody | undefined;
  /** From the first byte that is spooled or inflated in pieces to the last of the body. */
  #paced: PacedUpload | undefined;

  constructor(options: UploadOptions) {
    this.#options = options;
    this.#encoding = parseEncoding(options.encoding);
    this.#holding = new Holding(options.budget, options.project);
    this.#collector = new Collector({
      holding: this.#holding,
      onOverload: (detail) => this.fail('overloaded', detail),
      onBehind: (behind) => this.#onSpoolBehind(behind),
    });
    const { storedTypes } = options.budget;
    this.#reader = options.newReader(this.#collector, storedTypes, (bytes) => this.#hold(bytes));
  }

  /**
   * @param chunk bytes of the body as transmitted; borrowed for the call
   * @param isWhole it is the whole body, which waits for no further packet: its copy may be from
   * Node's pool
   */
  feed(chunk: Uint8Array, isWhole = false): void {
    if (this.#state !== 'arriving' || chunk.length === 0) return;
    this.#transmitted += chunk.length;
    if (this.#transmitted > this.#options.budget.maxBodyBytes)
      return this.fail('too_large', `the body exceeds ${this.#options.budget.maxBodyBytes} bytes`);
    const encoding = this.#knownEncoding();
    if (encoding === undefined) return;
    if (encoding !== 'none') this.#feedCompressed(encoding, chunk, isWhole);
    else if (this.#collector.spooling) this.#parse(chunk);
    else this.#parse(isWhole ? Buffer.from(chunk) : ownCopy(chunk));
  }

  /** The last byte has been fed. */
  end(): void {
    if (this.#state !== 'arriving') return;
    this.#enter('whole');
    if (this.#paced) this.#options.budget.pacer.leave(this.#paced);
    if (this.#collector.spooling) this.#onSpooled();
    const encoding = this.#knownEncoding();
    if (encoding === undefined) return;
    if (this.#inflater) this.#inflater.end();
    else if (this.#kept && encoding !== 'none') this.#inflateKept(encoding, this.#kept.bytes);
    else this.#finish();
  }

  /** The items that have begun. */
  get items(): readonly HeldItem[] {
    return this.#collector.items;
  }

  /** Gives the leave that was waited for. */
  proceed(): void {
    assert(this.#leave === 'waited for', 'leave is given once');
    this.#leave = 'given';
    if (this.#state === 'settled') this.#options.onResult(this.#result as UploadResult);
    else this.#collector.startSpool();
  }

  /** Ends it, unless there is a verdict. */
  fail(kind: UploadFailure['kind'], detail: string): void {
    if (this.#isUndecided) this.#settle({ ok: false, failure: { kind, detail } });
  }

  /** Undefined: the upload has failed. */
  #knownEncoding(): Encoding | undefined {
    if (this.#encoding === undefined) this.fail('invalid', 'the content encoding is unknown');
    return this.#encoding;
  }

  /**
   * Frees memory, inflater and spool; idempotent. The owner calls it when the envelope is published
   * or the request has ended.
   */
  dispose(): void {
    this.#enter('disposed');
    this.#release();
  }

  /** The one setter of the state. The socket of a body that no longer arrives is not paused. */
  #enter(state: State): void {
    this.#state = state;
    if (this.#pausedBy === 0) return;
    this.#pausedBy = 0;
    this.#options.onPressure(false);
  }

  get #isUndecided(): boolean {
    return this.#state === 'arriving' || this.#state === 'whole';
  }

  // ---- compressed bodies ----

  #feedCompressed(encoding: Compression, chunk: Uint8Array, isWhole: boolean): void {
    if (this.#inflater) return this.#inflater.feed(chunk);
    if (this.#transmitted <= this.#options.budget.inflaterQueueBytesMax) return this.#keep(chunk, isWhole);
    const inflater = this.#startInflater(encoding);
    if (this.#state === 'arriving') inflater.feed(chunk);
  }

  #keep(chunk: Uint8Array, isWhole: boolean): void {
    const before = this.#kept?.capacity ?? 0;
    if (this.#kept) this.#kept.append(chunk);
    else this.#kept = new ByteQueue(INFLATER_QUEUE_BYTES_MAX, isWhole ? Buffer.from(chunk) : ownCopy(chunk));
    this.#hold(this.#kept.capacity - before);
  }

  #hold(bytes: number): void {
    if (!this.#holding.hold(bytes)) this.fail('overloaded', 'the worker holds too many bytes');
  }

  /** A small body that is whole. */
  #inflateKept(encoding: Compression, body: Buffer): void {
    const claimed = claimedBytes(encoding, body);
    if (body.length > SYNC_INFLATE_BYTES_MAX)
      return this.#inflateInTurn(encoding, expectedBytes(body, claimed));
    const distrust = DISTRUST.of(this.#holding.project);
    // Learning the body's size takes milliseconds.
    if (claimed === undefined && !this.#options.budget.inflationQueue.allows(this.#holding.project))
      return this.fail('overloaded', 'too much is being inflated');
    if (claimed === undefined && distrust.bodies > 0) {
      distrust.bodies--;
      return this.#inflateInTurn(encoding, expectedBytes(body));
    }
    const inflated = inflateSync(encoding, body);
    if (inflated.ok) {
      this.#takeKept();
      this.#parse(inflated.bytes);
      this.#finish();
    } else if (inflated.reason === 'stream') {
      distrust.bodies = DISTRUSTED_BODIES;
      // More has come out than a smaller claim: it is false.
      const isFalse = claimed !== undefined && claimed <= SYNC_INFLATED_BYTES_MAX;
      this.#inflateInTurn(encoding, expectedBytes(body, isFalse ? undefined : claimed));
    } else {
      // 14 bytes of brotli fill a window of 16 MiB before they turn out to be corrupt.
      if (claimed === undefined) distrust.bodies = DISTRUSTED_BODIES;
      this.fail('invalid', 'the compressed body is corrupt');
    }
  }

  /** @param bytes the body's {@link expectedBytes} */
  #inflateInTurn(encoding: Compression, bytes: number): void {
    const { inflationQueue, maxDecompressedBytes } = this.#options.budget;
    this.#queued = {
      project: this.#holding.project,
      bytes: Math.min(bytes, maxDecompressedBytes),
      swells: this.#swells(bytes),
      inflated: () => this.#inflatedBytes,
      start: () => {
        const inflater = this.#startInflater(encoding);
        if (this.#state === 'whole') inflater.end();
      },
      refuse: () => this.fail('overloaded', 'too much is being inflated'),
    };
    inflationQueue.add(this.#queued);
  }

  #swells(bytes: number): boolean {
    return bytes > Math.max(SYNC_INFLATED_BYTES_MAX, SWELLING_RATIO_MIN * this.#transmitted);
  }

  /** An inflater that has been fed what was held back. */
  #startInflater(encoding: Compression): Inflater {
    const inflater = new Inflater(encoding, {
      holding: this.#holding,
      onBytes: (bytes) => this.#parse(bytes),
      onEnd: () => this.#finish(),
      onFailed: (kind, detail) => this.fail(kind, detail),
      onBehind: (behind) => this.#setPaused('inflater', behind),
    });
    this.#inflater = inflater;
    this.#enterPacer();
    const kept = this.#takeKept();
    if (kept) inflater.feed(kept);
    return inflater;
  }

  #takeKept(): Buffer | undefined {
    if (!this.#kept) return undefined;
    this.#holding.hold(-this.#kept.capacity);
    const body = this.#kept.take();
    this.#kept = undefined;
    return body;
  }

  // ---- plain bytes ----

  /** @param bytes owned, unless the collector is spooling */
  #parse(bytes: Uint8Array): void {
    if (!this.#isUndecided) return;
    this.#inflatedBytes += bytes.length;
    if (this.#inflatedBytes > this.#options.budget.maxDecompressedBytes)
      return this.fail(
        'too_large',
        `the body inflates to over ${this.#options.budget.maxDecompressedBytes} bytes`,
      );
    if (this.#outgrows()) return this.fail('overloaded', 'it inflates to more than it says');
    this.#collector.startChunk(bytes);
    this.#check(this.#reader.feed(bytes));
    this.#collector.endChunk();
    if (this.#collector.spooling) this.#onSpooled();
  }

  /** Whether it turns out to be so large that there is no room for it. */
  #outgrows(): boolean {
    const { inflationQueue, maxDecompressedBytes } = this.#options.budget;
    const queued = this.#queued;
    if (queued === undefined) return false;
    if (!queued.swells && this.#swells(this.#inflatedBytes) && !inflationQueue.swell(queued)) return true;
    if (this.#inflatedBytes <= queued.bytes) return false;
    DISTRUST.of(queued.project).bodies = DISTRUSTED_BODIES;
    return !inflationQueue.grow(queued, maxDecompressedBytes);
  }

  #finish(): void {
    this.#inflater?.destroy();
    this.#check(this.#reader.end());
    if (this.#state === 'whole') this.#collector.finish((envelope) => this.#succeed(envelope));
  }

  #check(malformed: Malformed | undefined): void {
    if (malformed !== undefined) this.fail('invalid', malformed);
  }

  // ---- pressure ----

  /**
   * A body that arrives is held back at its socket; a compressed one also at its inflater, where
   * bytes may wait already.
   */
  #onSpoolBehind(behind: boolean): void {
    if (behind) this.#inflater?.pause();
    else this.#inflater?.resume();
    this.#setPaused('spool', behind);
  }

  /** The one setter of `#pausedBy`. */
  #setPaused(by: keyof typeof PAUSED_BY, paused: boolean): void {
    if (this.#state !== 'arriving') return;
    const before = this.#pausedBy;
    this.#pausedBy = paused ? before | PAUSED_BY[by] : before & ~PAUSED_BY[by];
    if ((before === 0) !== (this.#pausedBy === 0)) this.#options.onPressure(paused);
  }

  #enterPacer(): void {
    if (this.#paced || this.#state !== 'arriving') return;
    if (!this.#holding.takePlace()) return this.fail('overloaded', 'too many large uploads');
    this.#paced = { pause: (paused) => this.#setPaused('pacer', paused) };
    this.#options.budget.pacer.enter(this.#paced);
  }

  #onSpooled(): void {
    if (this.#state === 'arriving') this.#enterPacer();
    if (this.#state === 'whole') this.#countWhole();
    if (this.#leave !== 'not needed' || !this.#isUndecided) return;
    this.#leave = 'waited for';
    this.#options.onWaitsForLeave();
  }

  #countWhole(): void {
    if (!this.#holding.takePlace()) return this.fail('overloaded', 'too many large uploads');
    const { spooledBytes } = this.#collector;
    if (this.#paced || this.#queued) this.#holding.whole(spooledBytes);
    else if (!this.#holding.unpaced(spooledBytes))
      this.fail('overloaded', 'too much of the project waits for the stream');
  }

  // ---- the verdict ----

  #succeed(envelope: HeldEnvelope): void {
    if (this.#state === 'whole') this.#settle({ ok: true, envelope });
  }

  #settle(result: UploadResult): void {
    this.#result = result;
    this.#enter('settled');
    // A refused body goes no further, and costs a tenth of a stored one. A body that was expected
    // to swell may not have done so.
    if (this.#queued) this.#queued.swells = result.ok && this.#swells(this.#inflatedBytes);
    if (!result.ok) this.#release();
    if (this.#leave !== 'waited for') this.#options.onResult(result);
  }

  #release(): void {
    if (this.#paced) this.#options.budget.pacer.leave(this.#paced);
    if (this.#queued) this.#options.budget.inflationQueue.leave(this.#queued);
    this.#inflater?.destroy();
    this.#collector.close();
    this.#kept = undefined;
    this.#holding.close();
  }
}
