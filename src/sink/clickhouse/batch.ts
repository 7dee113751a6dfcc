import { assert } from '../../lib/assert.ts';
import { SINK_BATCH_BYTES_MAX } from '../../limits.ts';
import type { RecentFrames } from '../recent-frames.ts';
import { RecordCounts } from '../record-counts.ts';
import type { BegunEntry, RefusedRow, SinkBatch, SinkCount, SinkRecord } from '../sink.ts';
import { insertRows } from './insert.ts';
import { PendingRows, type TableRows } from './rows.ts';
import { claimItems } from './seen.ts';
import type { Server } from './server.ts';
import type { TableName } from './tables.ts';

/**
 * A batch of the clickhouse sink. Its rows wait in memory until the batch is prepared or committed,
 * or until they have SINK_BATCH_BYTES_MAX. Then the batch notes the items that clients may send
 * again (seen.ts), and inserts the rows of each table together.
 */
export class ClickHouseBatch implements SinkBatch {
  readonly #server: Server;
  readonly #recent: RecentFrames;
  /** For each frame of this batch, the number of its entries that are stored or in this batch. */
  readonly #frames = new Map<string, number>();
  readonly #counts = new RecordCounts();
  #pending = new PendingRows();
  #pendingBytes = 0;
  /** The entry that is being added. Its rows may be split between two inserts. */
  #entry: BegunEntry = { frameId: '', index: 0 };
  #ended = false;
  readonly #refused: RefusedRow[] = [];
  bytes = 0;

  constructor(server: Server, recent: RecentFrames) {
    this.#server = server;
    this.#recent = recent;
  }

  entriesKnown(frameId: string): number {
    return this.#frames.get(frameId) ?? this.#recent.entriesOf(frameId);
  }

  beginEntry(entry: BegunEntry): void {
    assert(!this.#ended, 'entries are added to an open batch');
    assert(entry.index >= this.entriesKnown(entry.frameId), 'the entries of a frame come in order');
    this.#entry = entry;
    this.#frames.set(entry.frameId, entry.index + 1);
    this.#pending.beginEntry(entry.frameId, entry.index, entry.usage);
  }

  add(record: SinkRecord): void {
    assert(!this.#ended, 'records are added to an open batch');
    const bytes = this.#pending.add(record);
    this.#pendingBytes += bytes;
    this.bytes += bytes;
  }

  relieve(): Promise<void> | undefined {
    return this.#pendingBytes < SINK_BATCH_BYTES_MAX ? undefined : this.#flush();
  }

  async prepare(): Promise<readonly RefusedRow[]> {
    await this.#flush();
    return this.#refused;
  }

  async commit(): Promise<readonly SinkCount[]> {
    assert(!this.#ended, 'a batch is committed once');
    await this.#flush();
    this.#ended = true;
    // A frame with a refused row is not noted as stored: when another sink fails, the frame comes
    // again, and its row must be refused again.
    for (const { frameId } of this.#refused) this.#frames.delete(frameId);
    this.#recent.note(this.#frames);
    return this.#counts.list();
  }

  async abandon(): Promise<void> {
    this.#ended = true;
    this.#pending = new PendingRows();
  }

  async #flush(): Promise<void> {
    const { tables, claims } = this.#pending;
    this.#pending = new PendingRows();
    this.#pending.beginEntry(this.#entry.frameId, this.#entry.index, undefined);
    this.#pendingBytes = 0;
    const leftOut = new Map<TableName, Set<number>>();
    for (const { table, row, rows } of await claimItems(this.#server, claims)) {
      const ofTable = leftOut.get(table) ?? new Set<number>();
      leftOut.set(table, ofTable);
      for (let at = row; at < row + rows; at++) ofTable.add(at);
    }
    for (const [table, rows] of tables) await this.#insert(table, rows, leftOut.get(table) ?? new Set());
  }

  async #insert(
    table: TableName,
    { buffer, origins }: TableRows,
    leftOut: ReadonlySet<number>,
  ): Promise<void> {
    const refused = await insertRows(this.#server, { table, buffer, origins, leftOut });
    const reasons = new Map(refused.map(({ row, reason }) => [row, reason]));
    for (const [row, { type, projectId: _p, rowKey: _k, receivedAt: _r, ...origin }] of origins.entries()) {
      const reason = reasons.get(row);
      if (reason !== undefined) this.#refused.push({ ...origin, reason });
      // Each record is counted once, with the first of its rows.
      else if (!origin.element) this.#counts.add(type, leftOut.has(row) ? 'resent' : 'stored');
    }
  }
}
