import { type FileHandle, open } from 'node:fs/promises';
import { assert } from '../../lib/assert.ts';
import { RESEND_WINDOW_MS, SINK_BLOCK_BYTES } from '../../limits.ts';
import { Tally } from '../tally.ts';
import { orUnavailable } from '../unavailable.ts';
import type { BatchIndex } from './index-file.ts';
import { frameKey } from './item-key.ts';
import { RecordCounts } from './record-counts.ts';
import type { BegunEntry, SinkBatch, SinkCount, SinkRow } from './sink.ts';

/** What a batch needs of its stream's journal. */
export interface BatchHome {
  /** Where the lines go until the batch is committed. */
  readonly unfinishedPath: string;
  entriesStored(frame: Buffer): number;
  /** The data's time of the stored item; undefined when it is not known. */
  storedAt(item: Buffer): number | undefined;
  /** Makes the batch durable. `hasLines`: they stand, synced, at `unfinishedPath`. */
  commit(found: Omit<BatchIndex, 'data' | 'committedAt'>, hasLines: boolean): Promise<void>;
  /** Makes durable what an earlier commit could not. @throws UnavailableError */
  settle(): Promise<void>;
  /** The batch is over, one way or the other. */
  ended(): void;
}

const END_OF_LINE = Buffer.from('}\n');

/** Neighbours that are small share a buffer; large ones are not copied. */
function* runsOf(pieces: readonly Uint8Array[]): Generator<Uint8Array> {
  let small: Uint8Array[] = [];
  for (const piece of pieces) {
    if (piece.length < SINK_BLOCK_BYTES) {
      small.push(piece);
      continue;
    }
    if (small.length > 0) yield Buffer.concat(small);
    small = [];
    yield piece;
  }
  if (small.length > 0) yield Buffer.concat(small);
}

/**
 * A batch of the ndjson sink: lines go to an unfinished file as they come, so that a batch needs a block of memory,
 * whatever its recordings inflate to. What it adds to the stream's knowledge (frames, items, counts) is kept apart
 * until it is committed.
 */
export class NdjsonBatch implements SinkBatch {
  readonly #home: BatchHome;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #file: FileHandle | undefined;
  /** By frame id. */
  readonly #frames = new Map<string, { key: Buffer; entries: number }>();
  /** By key in hex. */
  readonly #resends = new Map<string, { key: Buffer; receivedAt: number }>();
  readonly #tally = new Tally();
  readonly #counts = new RecordCounts();
  #ended = false;
  bytes = 0;

  constructor(home: BatchHome) {
    this.#home = home;
  }

  entriesKnown(frameId: string): number {
    return this.#frames.get(frameId)?.entries ?? this.#home.entriesStored(frameKey(frameId));
  }

  /** @returns false when it is a resend */
  add(row: SinkRow): boolean {
    assert(!this.#ended, 'records are added to an open batch');
    const isNew = !row.resend || this.#isFirst(row.resend);
    this.#counts.add(row.type, isNew ? 'stored' : 'resent');
    if (!isNew) return false;
    const { head, json } = row;
    const begin = Buffer.from(head);
    if (json.length < SINK_BLOCK_BYTES) this.#pending.push(Buffer.concat([begin, json, END_OF_LINE]));
    else this.#pending.push(begin, json, END_OF_LINE);
    const length = begin.length + json.length + END_OF_LINE.length;
    this.#pendingBytes += length;
    this.bytes += length;
    return true;
  }

  /** Notes the item unless it is a resend. */
  #isFirst(resend: { key: Buffer; receivedAt: number }): boolean {
    const hex = resend.key.toString('hex');
    const stored = this.#resends.get(hex)?.receivedAt ?? this.#home.storedAt(resend.key);
    if (stored !== undefined && Math.abs(resend.receivedAt - stored) <= RESEND_WINDOW_MS) return false;
    this.#resends.set(hex, resend);
    return true;
  }

  async relieve(): Promise<void> {
    if (this.#pendingBytes >= SINK_BLOCK_BYTES) await this.#flush();
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
      if (this.#frames.size === 0) await this.#home.settle();
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
    await this.#home.commit(found, this.bytes > 0);
  }

  async abandon(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    this.#pending = [];
    await this.#file?.close().catch(() => undefined); // its content does not matter any more
    this.#file = undefined;
    this.#home.ended();
  }

  #flush(): Promise<void> {
    const path = this.#home.unfinishedPath;
    return orUnavailable(`${path} cannot be written`, async () => {
      this.#file ??= await open(path, 'w');
      const pieces = this.#pending;
      this.#pending = [];
      this.#pendingBytes = 0;
      for (const run of runsOf(pieces)) await this.#file.writeFile(run);
    });
  }

  async #finishFile(): Promise<void> {
    if (this.bytes === 0) return;
    await this.#flush();
    const file = this.#file;
    assert(file, 'lines were written to a file');
    await orUnavailable(`${this.#home.unfinishedPath} cannot be synced`, () => file.sync());
    await orUnavailable(`${this.#home.unfinishedPath} cannot be closed`, () => file.close());
    this.#file = undefined;
  }
}
