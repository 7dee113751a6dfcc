import { type FileHandle, open } from 'node:fs/promises';
import { assert } from '../../lib/assert.ts';
import { RESEND_WINDOW_MS, SINK_BLOCK_BYTES } from '../../limits.ts';
import { frameKey } from '../item-key.ts';
import { RecordCounts } from '../record-counts.ts';
import type { BegunEntry, SinkBatch, SinkCount, SinkRecord } from '../sink.ts';
import { Tally } from '../tally.ts';
import { orUnavailable } from '../unavailable.ts';
import type { BatchIndex } from './index-file.ts';

/** The part of a stream's journal that a batch needs. */
export interface BatchJournal {
  /** Memory of SINK_BLOCK_BYTES in which the open batch gathers its lines. */
  readonly block: Buffer;
  /** File that the lines go to until the batch is committed. */
  readonly unfinishedPath: string;
  entriesStored(frame: Buffer): number;
  /** When the stored item was received; undefined when the item is not known. */
  storedAt(item: Buffer): number | undefined;
  /**
   * Makes the batch durable. The batch has synced its lines at `unfinishedPath` before it calls
   * this. `newest`: when the newest line was received, Unix ms; undefined when there are no lines.
   */
  commit(found: Omit<BatchIndex, 'data' | 'committedAt'>, newest: number | undefined): Promise<void>;
  /**
   * Syncs folders that an earlier commit could not sync.
   * @throws UnavailableError
   */
  settle(): Promise<void>;
  /** Called when the batch ends, whether it was committed or not. */
  ended(): void;
}

const END_OF_LINE = Buffer.from('}\n');
/** A block with this many bytes is written to the file: few further lines would fit. */
const FULL_BYTES = SINK_BLOCK_BYTES * 0.9;
/** Bytes that one UTF-16 unit of a string takes in UTF-8, at most. */
const CHARACTER_BYTES_MAX = 3;

/**
 * A batch of the ndjson sink. Its lines gather in a block of memory, and go to an unfinished file
 * when the block is full. So a batch does not grow in memory, however far its recordings inflate.
 * Its frames, items and counts are added to the stream's when the batch is committed.
 */
export class NdjsonBatch implements SinkBatch {
  readonly #journal: BatchJournal;
  /** Bytes of the journal's block that are in use. Lines that do not fit wait in #behind. */
  #blockBytes = 0;
  #behind: Uint8Array[] = [];
  #behindBytes = 0;
  #file: FileHandle | undefined;
  /** Frames of this batch, by frame id. */
  readonly #frames = new Map<string, { key: Buffer; entries: number }>();
  /** Items of this batch that clients may send again, by their key as a latin1 string. */
  readonly #resends = new Map<string, { key: Buffer; receivedAt: number }>();
  readonly #tally = new Tally();
  readonly #counts = new RecordCounts();
  #newest = 0;
  #ended = false;
  bytes = 0;

  constructor(journal: BatchJournal) {
    this.#journal = journal;
  }

  entriesKnown(frameId: string): number {
    return this.#frames.get(frameId)?.entries ?? this.#journal.entriesStored(frameKey(frameId));
  }

  /**
   * Adds a record, unless it is a resend.
   * @returns whether the record was added
   */
  add(record: SinkRecord): boolean {
    assert(!this.#ended, 'records are added to an open batch');
    const isNew = !record.resend || this.#isFirst(record.resend);
    this.#counts.add(record.type, isNew ? 'stored' : 'resent');
    if (!isNew) return false;
    const { fields } = record;
    this.#newest = Math.max(this.#newest, 'token' in fields ? fields.receivedAt : fields.envelope.receivedAt);
    const before = this.#blockBytes + this.#behindBytes;
    this.#append(record);
    this.bytes += this.#blockBytes + this.#behindBytes - before;
    return true;
  }

  /**
   * Writes a line into the block if it fits, else into a buffer in #behind. A buffer in #behind
   * costs two more copies of the line.
   */
  #append({ head, json }: SinkRecord): void {
    const { block } = this.#journal;
    const bytesMax = head.length * CHARACTER_BYTES_MAX + json.length + END_OF_LINE.length;
    if (this.#behind.length === 0 && this.#blockBytes + bytesMax <= block.length) {
      let at = this.#blockBytes;
      at += block.write(head, at);
      block.set(json, at);
      block.set(END_OF_LINE, at + json.length);
      this.#blockBytes = at + json.length + END_OF_LINE.length;
      return;
    }
    const pieces = [Buffer.from(head), json, END_OF_LINE];
    this.#behind.push(...pieces);
    for (const { length } of pieces) this.#behindBytes += length;
  }

  /**
   * Remembers the item, unless it is a resend.
   * @returns false for a resend
   */
  #isFirst(resend: { key: Buffer; receivedAt: number }): boolean {
    const id = resend.key.toString('latin1');
    const stored = this.#resends.get(id)?.receivedAt ?? this.#journal.storedAt(resend.key);
    if (stored !== undefined && Math.abs(resend.receivedAt - stored) <= RESEND_WINDOW_MS) return false;
    this.#resends.set(id, resend);
    return true;
  }

  relieve(): Promise<void> | undefined {
    return this.#blockBytes >= FULL_BYTES || this.#behindBytes > 0 ? this.#flush() : undefined;
  }

  beginEntry({ frameId, index, usage }: BegunEntry): void {
    assert(index === this.entriesKnown(frameId), 'the entries of a frame come in order');
    const frame = this.#frames.get(frameId);
    if (frame) frame.entries = index + 1;
    else this.#frames.set(frameId, { key: frameKey(frameId), entries: index + 1 });
    if (usage) this.#tally.add(usage);
  }

  async commit(): Promise<readonly SinkCount[]> {
    assert(!this.#ended, 'a batch is committed once');
    try {
      if (this.#frames.size === 0) await this.#journal.settle();
      else await this.#commitFound();
      return this.#counts.list();
    } finally {
      await this.abandon();
    }
  }

  async #commitFound(): Promise<void> {
    await this.#finishFile();
    const found = {
      frames: [...this.#frames.values()],
      resends: [...this.#resends.values()],
      tally: this.#tally.toCounts(),
    };
    await this.#journal.commit(found, this.bytes > 0 ? this.#newest : undefined);
  }

  async abandon(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    this.#behind = [];
    await this.#file?.close().catch(() => undefined); // the file's content does not matter any more
    this.#file = undefined;
    this.#journal.ended();
  }

  #flush(): Promise<void> {
    const path = this.#journal.unfinishedPath;
    return orUnavailable(`${path} cannot be written`, async () => {
      this.#file ??= await open(path, 'w');
      const pieces = [this.#journal.block.subarray(0, this.#blockBytes), ...this.#behind];
      this.#blockBytes = 0;
      this.#behind = [];
      this.#behindBytes = 0;
      for (const piece of pieces) await this.#file.writeFile(piece);
    });
  }

  async #finishFile(): Promise<void> {
    if (this.bytes === 0) return;
    await this.#flush();
    const file = this.#file;
    assert(file, 'lines were written to a file');
    await orUnavailable(`${this.#journal.unfinishedPath} cannot be synced`, () => file.sync());
    await orUnavailable(`${this.#journal.unfinishedPath} cannot be closed`, () => file.close());
    this.#file = undefined;
  }
}
