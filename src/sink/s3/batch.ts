import { assert } from '../../lib/assert.ts';
import { RESEND_WINDOW_MS } from '../../limits.ts';
import { frameKey, rowKey } from '../item-key.ts';
import { RecordCounts } from '../record-counts.ts';
import type { BegunEntry, CommitOptions, SinkBatch, SinkCount, SinkRecord } from '../sink.ts';
import { hourOf } from './keys.ts';
import type { Lines } from './lines.ts';

/** Records that a batch hands to its stream. */
export type Brought = {
  /** Lines by the hour in which their records were received. */
  hours: ReadonlyMap<number, Lines>;
  frames: ReadonlyMap<string, number>;
  resends: readonly { key: Buffer; receivedAt: number }[];
  /** When the newest record was received, Unix milliseconds. */
  newest: number;
};

/** The part of a stream that a batch needs. */
export interface BatchStream {
  newLines(): Lines;
  entriesOf(frameId: string): number;
  /** When the stored item was received; undefined when the item is not known. */
  storedAt(item: Buffer): number | undefined;
  /** Adds the batch's records to the stream. Resolves when they are in the bucket. */
  commit(brought: Brought, options: { now: boolean; held(): void }): Promise<void>;
}

/** A batch of the s3 sink. It gathers lines by hour, and packs them when there are many. */
export class S3Batch implements SinkBatch {
  readonly #stream: BatchStream;
  readonly #hours = new Map<number, Lines>();
  readonly #frames = new Map<string, number>();
  /** Items that may be sent again, by their key as a latin1 string. */
  readonly #resends = new Map<string, { key: Buffer; receivedAt: number }>();
  readonly #counts = new RecordCounts();
  /** The entry that is being added. */
  #frameId = '';
  #frame: Buffer = Buffer.alloc(0);
  #entry = 0;
  #newest = 0;
  #ended = false;
  bytes = 0;

  constructor(stream: BatchStream) {
    this.#stream = stream;
  }

  entriesKnown(frameId: string): number {
    return this.#frames.get(frameId) ?? this.#stream.entriesOf(frameId);
  }

  beginEntry({ frameId, index }: BegunEntry): void {
    assert(!this.#ended, 'entries are added to an open batch');
    assert(index >= this.entriesKnown(frameId), 'the entries of a frame come in order');
    if (frameId !== this.#frameId) this.#frame = frameKey(frameId);
    this.#frameId = frameId;
    this.#entry = index;
    this.#frames.set(frameId, index + 1);
  }

  add(record: SinkRecord): void {
    assert(!this.#ended, 'records are added to an open batch');
    const isNew = !record.resend || this.#isFirst(record.resend);
    this.#counts.add(record.type, isNew ? 'stored' : 'resent');
    if (!isNew) return;
    const { fields } = record;
    const receivedAt = 'token' in fields ? fields.receivedAt : fields.envelope.receivedAt;
    const item = 'token' in fields ? 0 : fields.index;
    const lines = this.#linesOf(hourOf(receivedAt));
    const before = lines.bytes;
    lines.add(record, rowKey(this.#frame, { entry: this.#entry, item }).toString('hex'));
    this.bytes += lines.bytes - before;
    this.#newest = Math.max(this.#newest, receivedAt);
  }

  relieve(): Promise<void> | undefined {
    const full = [...this.#hours.values()].filter(({ isFull }) => isFull);
    return full.length === 0
      ? undefined
      : Promise.all(full.map((lines) => lines.pack())).then(() => undefined);
  }

  async commit({ now, held }: CommitOptions): Promise<readonly SinkCount[]> {
    assert(!this.#ended, 'a batch is committed once');
    this.#ended = true;
    const brought = {
      hours: this.#hours,
      frames: this.#frames,
      resends: [...this.#resends.values()],
      newest: this.#newest,
    };
    const counts = this.#counts.list();
    await this.#stream.commit(brought, { now, held: () => held(counts) });
    return counts;
  }

  async abandon(): Promise<void> {
    this.#ended = true;
    for (const lines of this.#hours.values()) lines.release();
    this.#hours.clear();
  }

  #linesOf(hour: number): Lines {
    const lines = this.#hours.get(hour) ?? this.#stream.newLines();
    this.#hours.set(hour, lines);
    return lines;
  }

  /**
   * Remembers the item, unless it is a resend.
   * @returns false for a resend
   */
  #isFirst(resend: { key: Buffer; receivedAt: number }): boolean {
    const id = resend.key.toString('latin1');
    const stored = this.#resends.get(id)?.receivedAt ?? this.#stream.storedAt(resend.key);
    if (stored !== undefined && Math.abs(resend.receivedAt - stored) <= RESEND_WINDOW_MS) return false;
    this.#resends.set(id, resend);
    return true;
  }
}
