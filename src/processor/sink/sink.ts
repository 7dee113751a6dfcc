/**
 * Where items end up. A sink writes each entry of a frame exactly once, however often the frame is delivered, and a client's own
 * resend of an item only once within RESEND_WINDOW_MS.
 *
 * One batch per stream is open at a time. It is all or nothing: commit() resolves when everything in it is durable and every later
 * batch, of this process or the next, knows its entries; before that, nothing of it can be seen.
 */
import type { ItemType } from '../../lib/item-types.ts';

export type RecordType = ItemType | 'heartbeat';

/** One record: the line `head + json + "}"`, in UTF-8 and without line breaks. */
export type SinkRow = {
  type: RecordType;
  head: string;
  /** The last value of the record, as JSON. Stays as it is until relieve(), commit() or abandon(). */
  json: Uint8Array;
  /** For the types that a client may send again: 128 bits that name the item, and the data's time in Unix milliseconds. */
  resend?: { key: Buffer; receivedAt: number };
};

/** What one accepted envelope counted (contract part 2, Quota). */
export type CountedUsage = { projectId: string; month: string; position: number };

export interface SinkBatch {
  /** Bytes of lines so far. */
  readonly bytes: number;
  /** Entries of the frame, from its first, that are stored or stand in this batch: the caller goes on from there. */
  entriesKnown(frameId: string): number;
  /** Adds a record. @returns false when it is a client's resend of one that is stored already; it is left out */
  add(row: SinkRow): boolean;
  /** Hands what was added to the disk when it is much; bounds the memory of a batch. @throws UnavailableError */
  relieve(): Promise<void>;
  /** The entry at `index` of the frame is complete, whether it gave records or not. */
  endEntry(place: { frameId: string; index: number; usage?: CountedUsage }): void;
  /** @throws UnavailableError when it is not known to be stored; the same entries may then be written again in a new batch */
  commit(): Promise<void>;
  /** Forgets the batch. Never throws. */
  abandon(): Promise<void>;
}

export interface StreamSink {
  begin(): SinkBatch;
}

export interface Sink {
  /** @param stream its name in JetStream. @throws UnavailableError or JournalError when what was stored cannot be read */
  open(stream: string): Promise<StreamSink>;
  close(): Promise<void>;
}
