import { assert } from '../../lib/assert.ts';
import type { Clock } from '../../lib/clock.ts';
import { RECEIVED_DISORDER_MS_MAX, RESEND_WINDOW_MS, SINK_BATCH_BYTES_MAX } from '../../limits.ts';
import { type SentRecord, toSend } from '../containers.ts';
import { frameKey } from '../item-key.ts';
import { RecordCounts } from '../record-counts.ts';
import type { BegunEntry, CountedUsage, RefusedRow, SinkBatch, SinkCount, SinkRecord } from '../sink.ts';
import { Tally } from '../tally.ts';
import { codeOf, type Database, type Transaction } from './database.ts';
import type { Partitions } from './partitions.ts';
import { ensurePartitions, insertAccepted } from './rows.ts';
import { claimFrames, claimItems, forgetItems, prune } from './seen.ts';
import { withoutStored } from './stored-rows.ts';
import { addToTally } from './tally.ts';

/** A batch removes at most this many old keys of each kind, plus two for each key that it adds. */
const PRUNE_ROWS = 1_000;

/** The part of a stream that a batch needs. */
export interface BatchTarget {
  readonly stream: string;
  readonly database: Database;
  readonly partitions: Partitions;
  readonly clock: Clock;
}

type PlacedRecord = SentRecord & { frameId: string; entry: number };
/**
 * An entry of this batch with its records. After a part of a large batch was written, an entry has
 * only the records that came later. `usage`: set while the entry is not counted yet.
 */
type PendingEntry = {
  frameId: string;
  frame: string;
  index: number;
  usage?: CountedUsage;
  records: PlacedRecord[];
};

/**
 * Error code of PostgreSQL's `no partition of relation … found for row`. The sink gets it when an
 * operator has just removed the partition.
 */
const CHECK_VIOLATION = '23514';

/**
 * A batch of the postgres sink, which is one transaction. Rows wait in memory until the commit.
 * Then the batch writes the keys of its frames and items, and the rows of those that are new. At
 * last it removes old keys, writes the tally and sends COMMIT. A batch that reaches
 * SINK_BATCH_BYTES_MAX writes its keys and rows earlier, block by block.
 *
 * The keys decide what is stored. A processor that stood still, and comes back with frames that
 * another processor has stored, finds their keys and adds nothing. When the answer to a commit is
 * lost, the same frames are written again, and their keys show whether the first commit took
 * effect.
 */
export class PostgresBatch implements SinkBatch {
  readonly #target: BatchTarget;
  /** For each frame, by its key in hex: number of its entries that are stored or in this batch. */
  readonly #known: Map<string, number>;
  /** For each frame: number of its entries that were stored before this transaction. */
  readonly #storedBefore = new Map<string, number>();
  readonly #tally = new Tally();
  readonly #counts = new RecordCounts();
  #lastFrame = { id: '', key: '' };
  #pending: PendingEntry[] = [];
  #pendingBytes = 0;
  #transaction: Transaction | undefined;
  #claims = 0;
  /** Earliest receipt of this batch's items that clients may send again, Unix milliseconds. */
  #oldest = Number.POSITIVE_INFINITY;
  #ended = false;
  readonly #refused: RefusedRow[] = [];
  bytes = 0;

  /** @param known number of stored entries, by frame key in hex */
  constructor(target: BatchTarget, known: Map<string, number>) {
    this.#target = target;
    this.#known = known;
  }

  entriesKnown(frameId: string): number {
    return this.#known.get(this.#keyOf(frameId)) ?? 0;
  }

  /** Returns the frame's key in hex. Entries come frame by frame, so the last key is kept. */
  #keyOf(frameId: string): string {
    if (frameId !== this.#lastFrame.id)
      this.#lastFrame = { id: frameId, key: frameKey(frameId).toString('hex') };
    return this.#lastFrame.key;
  }

  beginEntry({ frameId, index, usage }: BegunEntry): void {
    assert(!this.#ended, 'entries are added to an open batch');
    const frame = this.#keyOf(frameId);
    assert(index === (this.#known.get(frame) ?? 0), 'the entries of a frame come in order');
    this.#known.set(frame, index + 1);
    this.#pending.push({ frameId, frame, index, records: [], ...(usage && { usage }) });
  }

  add(record: SinkRecord): void {
    const entry = this.#pending.at(-1);
    assert(entry && !this.#ended, 'a record belongs to an entry of an open batch');
    const sent = toSend(record);
    entry.records.push(Object.assign(sent, { frameId: entry.frameId, entry: entry.index }));
    this.#pendingBytes += sent.bytes;
    this.bytes += sent.bytes;
  }

  /**
   * Writes the rows once they have SINK_BATCH_BYTES_MAX, which few batches reach. Below that, it
   * only keeps the server from ending an open transaction as idle.
   */
  relieve(): Promise<void> | undefined {
    if (this.#pendingBytes < SINK_BATCH_BYTES_MAX) return this.#transaction?.keep();
    return this.#flushMost();
  }

  async #flushMost(): Promise<void> {
    const last = this.#pending.at(-1);
    await this.#flush();
    // The last entry stays pending, because more of its records may follow.
    if (last) this.#pending = [{ frameId: last.frameId, frame: last.frame, index: last.index, records: [] }];
  }

  async prepare(): Promise<readonly RefusedRow[]> {
    if (this.#pending.length > 0) await this.#flush();
    return this.#refused;
  }

  async commit(): Promise<readonly SinkCount[]> {
    assert(!this.#ended, 'a batch is committed once');
    try {
      await this.prepare();
      if (this.#transaction) await this.#finish(this.#transaction);
      return this.#counts.list();
    } finally {
      await this.abandon();
    }
  }

  async abandon(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    this.#pending = [];
    await this.#transaction?.abandon();
  }

  // ---- Writing a block ----

  async #flush(): Promise<void> {
    const { database, partitions } = this.#target;
    const entries = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    await ensurePartitions(
      partitions,
      entries.flatMap(({ records }) => records),
    );
    this.#transaction ??= await database.begin();
    const news = await this.#claimEntries(this.#transaction, entries);
    for (const { usage } of news) if (usage) this.#tally.add(usage);
    const records = await this.#withoutResends(
      this.#transaction,
      news.flatMap((entry) => entry.records),
    );
    try {
      await this.#insert(this.#transaction, await withoutStored(this.#transaction, records));
    } catch (error) {
      if (codeOf((error as Error).cause) === CHECK_VIOLATION) partitions.forget();
      throw error;
    }
  }

  /**
   * Inserts the rows, and forgets the keys of refused items: a refused item that is replayed later
   * must not be taken for a resend of itself. When only elements of a container are refused, the
   * container's key stays, because its other elements are stored.
   */
  async #insert(transaction: Transaction, records: readonly PlacedRecord[]): Promise<void> {
    const refused = await insertAccepted(transaction, records);
    await forgetItems(
      transaction,
      refused.flatMap(({ record, element }) => (element === undefined ? (record.resend?.key ?? []) : [])),
    );
    for (const { record, element, reason } of refused) {
      const { frameId, entry, fields } = record;
      const item = 'index' in fields && { item: fields.index };
      this.#refused.push({ frameId, entry, ...item, ...(element !== undefined && { element }), reason });
    }
    // A record counts as stored unless its first row is refused.
    const without = new Set(refused.filter(({ element }) => !element).map(({ record }) => record));
    for (const record of records) if (!without.has(record)) this.#counts.add(record.type, 'stored');
  }

  /** Returns the entries that are not stored yet. No other processor can store them meanwhile. */
  async #claimEntries(transaction: Transaction, entries: readonly PendingEntry[]): Promise<PendingEntry[]> {
    const upTo = new Map(entries.map(({ frame, index }) => [frame, index + 1]));
    const frames = [...upTo].map(([frame, count]) => ({ key: Buffer.from(frame, 'hex'), entries: count }));
    const found = await claimFrames(transaction, frames);
    for (const [frame] of upTo)
      if (!this.#storedBefore.has(frame)) this.#storedBefore.set(frame, found.get(frame) ?? 0);
    this.#claims += frames.length;
    return entries.filter(({ frame, index }) => index >= (this.#storedBefore.get(frame) ?? 0));
  }

  async #withoutResends(transaction: Transaction, records: readonly PlacedRecord[]): Promise<PlacedRecord[]> {
    const claims = records.flatMap(({ resend }) => (resend ? [resend] : []));
    const resent = await claimItems(transaction, this.#target.stream, claims);
    for (const { receivedAt } of claims) this.#oldest = Math.min(this.#oldest, receivedAt);
    this.#claims += claims.length;
    let at = 0;
    return records.filter(({ type, resend }) => {
      const isResent = resend !== undefined && resent[at++] === true;
      if (isResent) this.#counts.add(type, 'resent');
      return !isResent;
    });
  }

  async #finish(transaction: Transaction): Promise<void> {
    const { stream, clock } = this.#target;
    const rows = 2 * this.#claims + PRUNE_ROWS;
    // Keys of items are pruned by the times of receipt, because frames in the stream may be hours
    // old. Our clock bounds this time, because a worker's clock may be ahead of ours.
    const time = this.#oldest === Number.POSITIVE_INFINITY ? undefined : Math.min(this.#oldest, clock.now());
    const resendsFrom = time && time - RESEND_WINDOW_MS - RECEIVED_DISORDER_MS_MAX;
    await prune(transaction, { stream, resendsFrom, rows });
    await addToTally(transaction, stream, this.#tally);
    await transaction.commit();
  }
}
