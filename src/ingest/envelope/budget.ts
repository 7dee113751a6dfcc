/**
 * Memory and disk that all uploads of a worker hold together (the buffered and spooled bytes of the
 * metrics), and the part of one upload in it.
 *
 *     counter   raised by                   lowered by         bound                    beyond it
 *     held      bytes kept in memory        bytes let go       HELD_BYTES_MAX           503
 *     spooled   bytes that go to the disk   the end            its part of the setting  503
 *     uploads   spooling, an inflater       the end            UPLOADS_MAX              503
 *     requests  the begin of a body         the end            REQUESTS_IN_FLIGHT_MAX   503
 *     queued    for inflater or disk        inflating, writing QUEUED_BYTES_MAX         pauses
 *     whole     the last byte of a spooled  the end            WHOLE_UPLOADS_BYTES_MAX  pauses
 *     unpaced   spooled bytes, see below    the end            UNPACED_BYTES_MAX        503
 *
 * The end is that of the upload ({@link Holding.close}), when its envelope is stored or refused; it
 * gives back all that is left. Those with 503 are fair shares: from half of the bound on, only a
 * project that has more than its share gets it. But an upload under way ends for its share of
 * `held` only above HELD_BYTES_SCARCE. The counters of upload-pacer.ts are those that pause: beyond
 * their bounds all large uploads that still arrive are paused. `unpaced` are bodies that neither a
 * pause nor the InflationQueue holds back: they were whole, and inflated in the loop. They do not
 * make others pause.
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
  /** Types of items that are kept. */
  readonly storedTypes: ReadonlySet<string>;
  /** Pauses large uploads while they arrive. */
  readonly pacer = new UploadPacer();
  /** Small bodies that inflate to much, in turn. */
  readonly inflationQueue: InflationQueue;
  readonly disk: SpoolDisk;
  readonly #freeBlocks: Buffer[] = [];
  readonly #spoolBytesMax: number;
  /** The counters with 503. */
  readonly shares: Readonly<Record<'held' | 'spooled' | 'uploads' | 'requests' | 'unpaced', FairShare>>;

  constructor(options: {
    maxBodyBytes: number;
    maxDecompressedBytes: number;
    spoolDir: string;
    /** Bytes of spool files of this worker at most. */
    spoolBytesMax?: number;
    storeTypes?: readonly ExtraType[];
    /** The one of the exchanges. */
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

  /** Bytes of memory that uploads own: bodies, header lines, inflaters, what waits for the disk. */
  get heldBytes(): number {
    return this.shares.held.total;
  }

  /** Bytes of the spool files. */
  get spooledBytes(): number {
    return this.shares.spooled.total;
  }

  /** False when held or spooled bytes are at their bound: refuse new requests. */
  get hasRoom(): boolean {
    return this.heldBytes < HELD_BYTES_MAX && this.spooledBytes < this.#spoolBytesMax;
  }

  /** Whether a request of the project may come: there is room, and it has at most its share. */
  hasRoomFor(project: Slotted): boolean {
    return this.hasRoom && this.shares.held.allows(project) && this.shares.requests.allows(project);
  }

  /** The worker holds much: each upload gets smaller bounds. */
  get isTight(): boolean {
    return this.heldBytes > HELD_BYTES_TIGHT;
  }

  /** Payload bytes up to which an envelope stays in memory; less while the worker holds much. */
  get inlineBytesMax(): number {
    return this.isTight ? INLINE_BYTES_MIN : INLINE_BYTES_MAX;
  }

  /** Compressed bytes of an upload that wait for its inflater; less while the worker holds much. */
  get inflaterQueueBytesMax(): number {
    return this.isTight ? INFLATER_QUEUE_BYTES_TIGHT : INFLATER_QUEUE_BYTES_MAX;
  }

  /**
   * @param delta bytes, negative to give back. @returns false when the sum is over the bound, or
   * near it and the project over its share (they are counted all the same)
   */
  hold(delta: number, project: Slotted): boolean {
    this.shares.held.add(project, delta);
    if (this.heldBytes <= HELD_BYTES_SCARCE) return true;
    return this.heldBytes <= HELD_BYTES_MAX && this.shares.held.allows(project);
  }

  /**
   * Memory of SPOOL_BLOCK_BYTES with any content. Used again: at 400 MB/s the garbage alone would
   * be a hundred MB.
   */
  takeBlock(): Buffer {
    return this.#freeBlocks.pop() ?? Buffer.allocUnsafeSlow(SPOOL_BLOCK_BYTES);
  }

  /** @param block of {@link takeBlock}, no longer used */
  giveBlock(block: Buffer): void {
    if (this.#freeBlocks.length < SPOOL_BLOCKS_KEPT) this.#freeBlocks.push(block);
  }
}

/**
 * The bytes that one upload holds. Closing it gives back exactly those, whatever its parts still
 * do.
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

  /** @param delta bytes, negative to give back. @returns false when there is no room for them */
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

  /** @param delta bytes that wait for an inflater or the disk */
  queue(delta: number): void {
    if (!this.#open || delta === 0) return;
    this.#queued += delta;
    this.budget.pacer.queue(delta);
  }

  /**
   * @param bytes that are spooled so far, of an upload that is whole and was paced, or waited in
   * the InflationQueue
   */
  whole(bytes: number): void {
    if (!this.#open) return;
    this.budget.pacer.addWhole(bytes - this.#whole);
    this.#whole = bytes;
  }

  /** The same, of one that was inflated in the loop. @returns false when there is no room */
  unpaced(bytes: number): boolean {
    if (!this.#open) return true;
    const delta = bytes - this.#unpaced;
    this.#unpaced = bytes;
    return this.budget.shares.unpaced.take(this.project, delta);
  }

  /** The upload is one of the large ones. @returns false when there is no place for it */
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
