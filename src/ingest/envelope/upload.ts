/**
 * The body of one request on its way to a HeldEnvelope. Bytes are fed in, and one verdict comes
 * out: an envelope or a failure. The upload bounds the body's size, inflates and parses the body,
 * and collects its items.
 *
 *     arriving ── end ──→ whole ──→ settled ──→ disposed
 *         └──────── a failure ─────────↗
 *
 * *Arriving*: bytes still come, and the spool, the inflater or the pacer may pause the socket.
 * *Whole*: the last byte has been fed; inflaters and disk may still be at work. *Settled*: there is
 * a verdict. After a failure the upload has freed everything and ignores further bytes, so that the
 * caller may go on draining the socket. After a success the upload holds its bytes until it is
 * *disposed*.
 *
 * An upload that needs the disk waits, once, until its owner has taken a token for the request and
 * calls `proceed`. Until then the upload's bytes wait in memory, and the owner does not hear of a
 * verdict.
 *
 * A body takes one of five ways. Inflated bytes are parsed and held like those of a plain body.
 *
 * 1. A plain body with up to 128 KiB of payloads to store (INLINE_BYTES_MAX; 16 KiB while the
 *    worker holds more than 64 MiB) is parsed while it arrives, and held in memory.
 * 2. A larger plain body is spooled while it arrives. The pacer or its own spool may pause its
 *    socket.
 * 3. A compressed body of up to 64 KiB that claims to inflate to at most 1 MiB (only gzip can
 *    claim), or claims nothing, is kept until it is whole, then inflated in the event loop.
 * 4. Any other compressed body of up to 256 KiB (64 KiB while the worker holds more than 64 MiB) is
 *    kept until it is whole, waits in the InflationQueue, and is then inflated by zlib's threads. A
 *    body of the third way changes to this way when more comes out than it claimed or than 1 MiB,
 *    or when it has several zstd frames.
 * 5. A larger compressed body is inflated by zlib's threads while it arrives. The pacer, its
 *    inflater or its spool may pause its socket.
 *
 * A project becomes *distrusted* by any of these bodies: one of up to 64 KiB that is too much for
 * the event loop, by its claim or in fact; one that inflates in the queue to more than was
 * expected; one that is corrupt and claims nothing. The project's next 100 bodies that claim
 * nothing take the fourth way.
 *
 * The rest of a refused body is read and dropped, up to 200 MiB.
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
  Base64Decoder,
  type Compression,
  claimedBytes,
  type Encoding,
  expectedBytes,
  inflateSync,
  isBase64Begin,
  parseEncoding,
} from './inflate/inflate.ts';
import { Inflater } from './inflate/inflater.ts';
import type { QueuedBody } from './inflate/inflation-queue.ts';
import type { ItemReader, NewItemReader } from './parser.ts';
import type { Spool } from './spool.ts';
import type { PacedUpload } from './upload-pacer.ts';

export { type HeldEnvelope, type HeldItem, type SkippedItems, type Spool, UploadBudget };

export type UploadFailure = {
  kind: 'invalid' | 'too_large' | 'unsupported' | 'overloaded';
  /** The reason: a short sentence of a closed set, which the client is told. */
  detail: string;
};

export type UploadResult = { ok: true; envelope: HeldEnvelope } | { ok: false; failure: UploadFailure };

export type UploadOptions = {
  /** Raw Content-Encoding, '' when absent. */
  encoding: string;
  newReader: NewItemReader;
  /** Whether a body without an encoding may be base64 of JSON or of a stream in zlib's wrapping. */
  mayBeBase64?: boolean | undefined;
  /**
   * Most bytes of the body as sent, and of the inflated body, at this endpoint. When the settings
   * allow fewer bytes, the settings decide.
   */
  bytesMax?: number | undefined;
  budget: UploadBudget;
  project: Slotted;
  /** Called exactly once, perhaps inside `feed`, `end` or `proceed`; never after `dispose`. */
  onResult(result: UploadResult): void;
  /**
   * Asks to pause the socket (`true`) while disk, inflater or stream is behind, and to resume it
   * (`false`).
   */
  onPressure(paused: boolean): void;
  /**
   * Called at most once, when the upload needs the disk. Nothing goes to disk until the owner calls
   * `proceed`, which it may do in this call or later.
   */
  onWaitsForLeave(): void;
};

/**
 * After a project became distrusted, this many of its bodies without a claimed size are inflated by
 * zlib's threads. In the event loop, a body that inflates to more than SYNC_INFLATED_BYTES_MAX
 * takes 3 ms before it is given up.
 */
const DISTRUSTED_BODIES = 100;
/**
 * By project: how many of the project's next bodies without a claimed size are inflated by zlib's
 * threads; 0 when the project is not distrusted.
 */
export const DISTRUST = new Slot(
  () => ({ bodies: 0 }),
  () => false,
);

type State = 'arriving' | 'whole' | 'settled' | 'disposed';

const OPEN_OBJECT = 0x7b;
/** Bits for the parts that want the socket to be paused. When several do, their bits are added. */
const PAUSED_BY = { spool: 1, inflater: 2, pacer: 4 } as const;

/**
 * `encoding` is undefined when the client's encoding is unknown. `base64` is set once the body has
 * begun as base64.
 */
type Coding = { encoding: Encoding | undefined; base64?: Base64Decoder };

export class Upload {
  readonly #options: UploadOptions;
  #coding: Coding;
  readonly #holding: Holding;
  readonly #collector: Collector;
  readonly #reader: ItemReader;
  #state: State = 'arriving';
  #leave: 'not needed' | 'waited for' | 'given' = 'not needed';
  /** The verdict; undefined until the upload is settled. */
  #result: UploadResult | undefined;
  /** Sum of the PAUSED_BY bits; 0 when the socket is not paused. */
  #pausedBy = 0;
  #transmitted = 0;
  #inflatedBytes = 0;
  /** Compressed bytes so far, while they may still turn out to be the whole body. */
  #kept: ByteQueue | undefined;
  /** Set once zlib's threads inflate the body. */
  #inflater: Inflater | undefined;
  /**
   * Set for a compressed body that came whole and that the event loop does not inflate. It goes
   * through the InflationQueue.
   */
  #queued: QueuedBody | undefined;
  /**
   * This upload as the pacer knows it. The upload enters the pacer with the first byte that is
   * spooled or inflated in pieces, and leaves it with the last byte of the body.
   */
  #paced: PacedUpload | undefined;

  constructor(options: UploadOptions) {
    this.#options = options;
    this.#coding = { encoding: parseEncoding(options.encoding) };
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
   * Takes the next bytes of the body.
   * @param chunk bytes as sent, valid only during the call
   * @param isWhole whether the chunk is the whole body. The copy of such a chunk may lie in Node's
   * pool, because it need not wait for a further packet ({@link ownCopy})
   */
  feed(chunk: Uint8Array, isWhole = false): void {
    if (this.#state !== 'arriving' || chunk.length === 0) return;
    this.#transmitted += chunk.length;
    const bytesMax = this.#atMost(this.#options.budget.maxBodyBytes);
    if (this.#transmitted > bytesMax) return this.fail('too_large', `the body exceeds ${bytesMax} bytes`);
    if (this.#transmitted === chunk.length) this.#startBase64(chunk);
    const encoding = this.#knownEncoding();
    if (encoding === undefined) return;
    const { base64 } = this.#coding;
    if (base64) this.#feedDecoded(base64.decode(chunk));
    else if (encoding !== 'none') this.#feedCompressed(encoding, chunk, isWhole);
    else if (this.#collector.spooling) this.#parse(chunk);
    else this.#parse(isWhole ? Buffer.from(chunk) : ownCopy(chunk));
  }

  /** Tells the upload that its last byte has been fed. */
  end(): void {
    if (this.#state !== 'arriving') return;
    this.#enter('whole');
    if (this.#paced) this.#options.budget.pacer.leave(this.#paced);
    if (this.#collector.spooling) this.#onSpooled();
    const encoding = this.#knownEncoding();
    if (encoding === undefined) return;
    const { base64 } = this.#coding;
    if (base64) this.#feedDecoded(base64.end());
    if (this.#inflater) this.#inflater.end();
    else if (this.#kept && encoding !== 'none') this.#inflateKept(encoding, this.#kept.bytes);
    else this.#finish();
  }

  /** Items of stored types that have begun. */
  get items(): readonly HeldItem[] {
    return this.#collector.items;
  }

  /** Allows the upload to use the disk. The upload waits for this call. */
  proceed(): void {
    assert(this.#leave === 'waited for', 'leave is given once');
    this.#leave = 'given';
    if (this.#state === 'settled') this.#options.onResult(this.#result as UploadResult);
    else this.#collector.startSpool();
  }

  /** Ends the upload with a failure, unless there is a verdict already. */
  fail(kind: UploadFailure['kind'], detail: string): void {
    if (this.#isUndecided) this.#settle({ ok: false, failure: { kind, detail } });
  }

  /** Returns the lower of `bytesMax`, a bound of the settings, and the endpoint's own bound. */
  #atMost(bytesMax: number): number {
    return Math.min(bytesMax, this.#options.bytesMax ?? bytesMax);
  }

  get #inflatedBytesMax(): number {
    return this.#atMost(this.#options.budget.maxDecompressedBytes);
  }

  /** Returns the encoding. Fails the upload and returns undefined when the encoding is unknown. */
  #knownEncoding(): Encoding | undefined {
    const { encoding } = this.#coding;
    if (encoding === undefined) this.fail('invalid', 'the content encoding is unknown');
    return encoding;
  }

  /**
   * Frees memory, inflater and spool; idempotent. The owner calls it when the envelope is published
   * or the request has ended.
   */
  dispose(): void {
    this.#enter('disposed');
    this.#release();
  }

  /**
   * Sets the state; no other method does. Also resumes the socket if it is paused, because only a
   * body that arrives needs a pause.
   */
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

  #startBase64(begin: Uint8Array): void {
    if (!this.#options.mayBeBase64 || this.#coding.encoding !== 'none' || !isBase64Begin(begin)) return;
    this.#coding = { encoding: 'deflate', base64: new Base64Decoder() };
  }

  /**
   * Takes bytes that were decoded from base64. The first byte shows whether the body is JSON or a
   * stream in zlib's wrapping.
   */
  #feedDecoded(bytes: Buffer): void {
    if (bytes.length === 0) return; // a chunk of base64 may hold no whole group
    const isFirst = this.#kept === undefined && this.#inflater === undefined;
    if (isFirst && bytes[0] === OPEN_OBJECT) this.#coding.encoding = 'none';
    const { encoding } = this.#coding;
    if (encoding === 'none') this.#parse(ownCopy(bytes));
    else if (encoding !== undefined) this.#feedCompressed(encoding, bytes, false);
  }

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

  /**
   * Inflates a small body that has come whole, in the event loop or through the InflationQueue.
   */
  #inflateKept(encoding: Compression, body: Buffer): void {
    const claimed = claimedBytes(encoding, body);
    if (body.length > SYNC_INFLATE_BYTES_MAX)
      return this.#inflateInTurn(encoding, expectedBytes(body, claimed));
    const distrust = DISTRUST.of(this.#holding.project);
    // A body that claims no size shows its size only when it is inflated, which takes milliseconds.
    // So a project over its share of the InflationQueue is refused before that.
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
      // A claim of at most SYNC_INFLATED_BYTES_MAX is false here: more bytes came out than it said.
      const isFalse = claimed !== undefined && claimed <= SYNC_INFLATED_BYTES_MAX;
      this.#inflateInTurn(encoding, expectedBytes(body, isFalse ? undefined : claimed));
    } else {
      // A corrupt body may cost as much as one that inflates to SYNC_INFLATED_BYTES_MAX, so its
      // project becomes distrusted.
      if (claimed === undefined) distrust.bodies = DISTRUSTED_BODIES;
      this.fail('invalid', 'the compressed body is corrupt');
    }
  }

  /**
   * Adds the body to the InflationQueue.
   * @param bytes the body's {@link expectedBytes}
   */
  #inflateInTurn(encoding: Compression, bytes: number): void {
    const { inflationQueue } = this.#options.budget;
    this.#queued = {
      project: this.#holding.project,
      bytes: Math.min(bytes, this.#inflatedBytesMax),
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

  /** Starts an inflater, and feeds it the compressed bytes that have come so far. */
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

  /**
   * Parses plain or inflated bytes.
   * @param bytes must stay valid after the call, unless the collector is spooling
   */
  #parse(bytes: Uint8Array): void {
    if (!this.#isUndecided) return;
    this.#inflatedBytes += bytes.length;
    const bytesMax = this.#inflatedBytesMax;
    if (this.#inflatedBytes > bytesMax) {
      const does = this.#coding.encoding === 'none' ? 'exceeds' : 'inflates to over';
      return this.fail('too_large', `the body ${does} ${bytesMax} bytes`);
    }
    if (this.#outgrows()) return this.fail('overloaded', 'it inflates to more than it says');
    this.#collector.startChunk(bytes);
    this.#check(this.#reader.feed(bytes));
    this.#collector.endChunk();
    if (this.#collector.spooling) this.#onSpooled();
  }

  /**
   * Whether the body must be refused: because it inflates to more than was expected and there is no
   * room for that, or because it inflates to many times its size while its project rests
   * (inflation-queue.ts).
   */
  #outgrows(): boolean {
    const { inflationQueue } = this.#options.budget;
    const queued = this.#queued;
    if (queued === undefined) return false;
    if (!queued.swells && this.#swells(this.#inflatedBytes) && !inflationQueue.swell(queued)) return true;
    if (this.#inflatedBytes <= queued.bytes) return false;
    DISTRUST.of(queued.project).bodies = DISTRUSTED_BODIES;
    return !inflationQueue.grow(queued, this.#inflatedBytesMax);
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

  /** Pauses the socket, and the inflater if there is one, while the spool is behind. */
  #onSpoolBehind(behind: boolean): void {
    if (behind) this.#inflater?.pause();
    else this.#inflater?.resume();
    this.#setPaused('spool', behind);
  }

  /**
   * Notes whether one part (spool, inflater or pacer) wants the socket to be paused. Tells the
   * owner when the socket has to pause or resume.
   */
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
    // Only an accepted body that did swell adds to the debt of its project (inflation-queue.ts). A
    // refused body costs a tenth of a stored one, because it goes no further.
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
