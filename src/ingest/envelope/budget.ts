/**
 * Counts the memory and disk that all uploads of a worker hold together (the buffered and spooled
 * bytes of the metrics), and the part that each upload has in these counts.
 *
 *     counter   counts                               until          bound                    beyond
 *     held      bytes kept in memory                 freed          HELD_BYTES_MAX           503
 *     spooled   bytes that go to the disk            the end        spoolBytesMax            503
 *     uploads   uploads that are spooled or paced    the end        UPLOADS_MAX              503
 *     requests  requests that have an upload         the end        REQUESTS_IN_FLIGHT_MAX   503
 *     queued    bytes waiting for inflater or disk   processed      QUEUED_BYTES_MAX         pauses
 *     whole     spooled bytes of whole uploads       the end        WHOLE_UPLOADS_BYTES_MAX  pauses
 *     unpaced   spooled bytes, see below             the end        UNPACED_BYTES_MAX        503
 *
 * *The end* is that of the upload ({@link Holding.close}): its envelope is stored or refused. The
 * upload then gives back all that it still holds.
 *
 * Counters with 503 are fair shares: from half of the bound on, a project that has more than its
 * share is refused. But an upload under way is refused for its project's share of `held` only while
 * the worker holds more than HELD_BYTES_SCARCE. Counters that pause belong to upload-pacer.ts:
 * beyond their bounds all large uploads that still arrive are paused.
 *
 * *Whole* uploads are those whose last byte has come. `whole` counts those that a pause or the
 * InflationQueue could hold back, `unpaced` the others: compressed bodies that the event loop
 * inflated at once when their last byte had come. Spooled bytes of `unpaced` do not make other
 * uploads pause.
 */
import { type Clock, systemClock } from '../../lib/clock.ts';
import { FairShare } from '../../lib/fair-share.ts';
import { type ExtraType, storedTypes } from '../../lib/item-types.ts';
import type { Slotted } from '../../lib/slots.ts';
import {
  HELD_BYTES_MAX,
  HELD_BYTES_SCARCE,
  HELD_BYTES_TIGHT,
  INFLATER_QUEUE_BYTES_MAX,
  INFLATER_QUEUE_BYTES_TIGHT,
  INLINE_BYTES_MAX,
  INLINE_BYTES_MIN,
  REQUESTS_IN_FLIGHT_MAX,
  SPOOL_BLOCK_BYTES,
  SPOOL_BLOCKS_KEPT,
  SPOOL_BYTES_MAX,
  UNPACED_BYTES_MAX,
  UPLOADS_MAX,
} from '../../limits.ts';
import { InflationQueue } from './inflate/inflation-queue.ts';
import { SpoolDisk } from './spool-disk.ts';
import { UploadPacer } from './upload-pacer.ts';

export class UploadBudget {
  readonly maxBodyBytes: number;
  readonly maxDecompressedBytes: number;
  /** Types of items that are stored. Items of other types are skipped. */
  readonly storedTypes: ReadonlySet<string>;
  /** Pauses large uploads while they arrive. */
  readonly pacer = new UploadPacer();
  /** Compressed bodies that came whole and inflate to much wait here for their turn. */
  readonly inflationQueue: InflationQueue;
  readonly disk: SpoolDisk;
  readonly #freeBlocks: Buffer[] = [];
  readonly #spoolBytesMax: number;
  /** The counters whose bounds lead to a 503 (see the head of this file). */
  readonly shares: Readonly<Record<'held' | 'spooled' | 'uploads' | 'requests' | 'unpaced', FairShare>>;

  constructor(options: {
    maxBodyBytes: number;
    maxDecompressedBytes: number;
    spoolDir: string;
    /** Bound of the bytes in this worker's spool files. */
    spoolBytesMax?: number;
    storeTypes?: readonly ExtraType[];
    /**
     * Must also be the clock of the exchanges, whose times the InflationQueue compares with its
     * own.
     */
    clock?: Clock;
  }) {
    const { clock = systemClock } = options;
    this.maxBodyBytes = options.maxBodyBytes;
    this.maxDecompressedBytes = options.maxDecompressedBytes;
    this.storedTypes = storedTypes(options.storeTypes ?? []);
    this.#spoolBytesMax = options.spoolBytesMax ?? SPOOL_BYTES_MAX;
    this.shares = {
      held: new FairShare(HELD_BYTES_MAX),
      spooled: new FairShare(this.#spoolBytesMax),
      uploads: new FairShare(UPLOADS_MAX),
      requests: new FairShare(REQUESTS_IN_FLIGHT_MAX),
      unpaced: new FairShare(UNPACED_BYTES_MAX),
    };
    this.inflationQueue = new InflationQueue(clock);
    this.disk = new SpoolDisk(options.spoolDir, clock);
  }

  /**
   * Bytes of memory that uploads own: bodies, header lines, inflaters, and bytes that wait for
   * disk.
   */
  get heldBytes(): number {
    return this.shares.held.total;
  }

  /** Bytes in the spool files of this worker. */
  get spooledBytes(): number {
    return this.shares.spooled.total;
  }

  /**
   * Whether the worker takes new requests: false when its uploads have as many bytes in memory or
   * in spool files as they may.
   */
  get hasRoom(): boolean {
    return this.heldBytes < HELD_BYTES_MAX && this.spooledBytes < this.#spoolBytesMax;
  }

  /**
   * Whether a request of the project may come: the worker has room, and the project has at most its
   * share of memory and of requests.
   */
  hasRoomFor(project: Slotted): boolean {
    return this.hasRoom && this.shares.held.allows(project) && this.shares.requests.allows(project);
  }

  /** Whether the worker holds more than HELD_BYTES_TIGHT. Each upload then gets smaller bounds. */
  get isTight(): boolean {
    return this.heldBytes > HELD_BYTES_TIGHT;
  }

  /** Payload bytes up to which an envelope stays in memory; fewer while the worker holds much. */
  get inlineBytesMax(): number {
    return this.isTight ? INLINE_BYTES_MIN : INLINE_BYTES_MAX;
  }

  /**
   * Compressed bytes of an upload that may wait for its inflater; fewer while the worker holds
   * much.
   */
  get inflaterQueueBytesMax(): number {
    return this.isTight ? INFLATER_QUEUE_BYTES_TIGHT : INFLATER_QUEUE_BYTES_MAX;
  }

  /**
   * Counts bytes in memory.
   * @param delta bytes, negative to give back
   * @returns false when the sum is over HELD_BYTES_MAX, or when it is over HELD_BYTES_SCARCE and
   * the project over its share; the bytes are counted all the same
   */
  hold(delta: number, project: Slotted): boolean {
    this.shares.held.add(project, delta);
    if (this.heldBytes <= HELD_BYTES_SCARCE) return true;
    return this.heldBytes <= HELD_BYTES_MAX && this.shares.held.allows(project);
  }

  /**
   * Returns a block of SPOOL_BLOCK_BYTES with any content. Blocks are used again, because at 400
   * MB/s new blocks would leave a hundred MB of garbage.
   */
  takeBlock(): Buffer {
    return this.#freeBlocks.pop() ?? Buffer.allocUnsafeSlow(SPOOL_BLOCK_BYTES);
  }

  /**
   * Takes back a block.
   * @param block of {@link takeBlock}, no longer used
   */
  giveBlock(block: Buffer): void {
    if (this.#freeBlocks.length < SPOOL_BLOCKS_KEPT) this.#freeBlocks.push(block);
  }
}

/**
 * Counts what one upload holds. `close` gives all of it back. Calls after `close` count nothing, so
 * parts of the upload may still be at work then.
 */
export class Holding {
  readonly budget: UploadBudget;
  readonly project: Slotted;
  #held = 0;
  #spooled = 0;
  #queued = 0;
  #whole = 0;
  #unpaced = 0;
  #isLarge = false;
  #open = true;

  constructor(budget: UploadBudget, project: Slotted) {
    this.budget = budget;
    this.project = project;
    budget.shares.requests.add(project, 1);
  }

  /**
   * Counts bytes in memory.
   * @param delta bytes, negative to give back
   * @returns false when the upload must end, as {@link UploadBudget.hold} says; the bytes are
   * counted all the same
   */
  hold(delta: number): boolean {
    if (!this.#open) return true;
    this.#held += delta;
    return this.budget.hold(delta, this.project);
  }

  spool(delta: number): boolean {
    if (!this.#open) return true;
    this.#spooled += delta;
    return this.budget.shares.spooled.take(this.project, delta);
  }

  /**
   * Counts bytes that wait.
   * @param delta bytes for an inflater or the disk, negative to give back
   */
  queue(delta: number): void {
    if (!this.#open || delta === 0) return;
    this.#queued += delta;
    this.budget.pacer.queue(delta);
  }

  /**
   * Counts the spooled bytes of a whole upload that the pacer could pause, or that went through the
   * InflationQueue.
   * @param bytes bytes of the upload that are spooled so far
   */
  whole(bytes: number): void {
    if (!this.#open) return;
    this.budget.pacer.addWhole(bytes - this.#whole);
    this.#whole = bytes;
  }

  /**
   * Counts the spooled bytes of a whole upload that was inflated in the event loop.
   * @param bytes bytes of the upload that are spooled so far
   * @returns false when the worker has no room for them, or the project holds more than its share
   */
  unpaced(bytes: number): boolean {
    if (!this.#open) return true;
    const delta = bytes - this.#unpaced;
    this.#unpaced = bytes;
    return this.budget.shares.unpaced.take(this.project, delta);
  }

  /**
   * Counts the upload, once, as a large one: it is spooled, or inflated in pieces while it arrives.
   * @returns false when the worker has too many large uploads, or the project more than its share
   */
  takePlace(): boolean {
    if (this.#isLarge || !this.#open) return true;
    this.#isLarge = true;
    return this.budget.shares.uploads.take(this.project, 1);
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    const { project } = this;
    const { pacer, shares } = this.budget;
    if (this.#isLarge) shares.uploads.add(project, -1);
    if (this.#queued > 0) pacer.queue(-this.#queued);
    if (this.#whole > 0) pacer.addWhole(-this.#whole);
    if (this.#unpaced > 0) shares.unpaced.add(project, -this.#unpaced);
    shares.requests.add(project, -1);
    shares.held.add(project, -this.#held);
    if (this.#spooled > 0) shares.spooled.add(project, -this.#spooled);
  }
}
