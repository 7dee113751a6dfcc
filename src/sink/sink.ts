/**
 * The contract of all sinks: what a sink promises, and the calls that give it records.
 *
 * Each stream has one open batch at a time, which takes records. commit() resolves when everything
 * in the batch is durable; only then are its frames acknowledged. A sink that gathers several
 * batches before it writes may hold them meanwhile: it treats their frames and items as stored, and
 * the batches end in order. A frame may come again at any time.
 *
 * - `exactly once`: a batch is stored wholly or not at all, no reader sees any of it before the
 *   commit, and every later batch, of this process or the next, knows its entries. So each record
 *   is written once.
 * - `repeatable`: a batch may be stored in part when its process ends, and is then written again.
 *   Each row has a deterministic 128-bit row key of frame and place (rowKey in item-key.ts). So a
 *   store that merges by key, or a reader, ends with one row.
 *
 * With both guarantees, a client's own resend of an event, a transaction or an OTLP request within
 * RESEND_WINDOW_MS is not written again, as far as the sink remembers (docs/sinks.md says how far).
 */
import type { ItemType } from '../lib/item-types.ts';
import type { Distribution } from '../lib/metrics/distribution.ts';
import type { OutageLog } from '../lib/outage-log.ts';

/** The sinks see an OTLP request as the containers of its spans or logs. */
export type RecordType = Exclude<ItemType, 'otlp_traces' | 'otlp_logs'> | 'heartbeat';

/** Fields that all records of one envelope share. Times are Unix milliseconds. */
export type EnvelopeFields = {
  projectId: string;
  eventId: string;
  receivedAt: number;
  sentAt?: number;
  sdk?: string;
};
/**
 * Fields of an item. `index`: its place among all items of its envelope. `header`: its header as
 * JSON.
 */
export type ItemFields = {
  envelope: EnvelopeFields;
  index: number;
  header: string;
  /**
   * Whether the record's last value is the payload in base64. That is so for a file, for a packed
   * recording and for a payload that is no JSON.
   */
  isBase64?: boolean;
  /** How the recording in the payload is packed. */
  encoding?: 'gzip' | 'deflate';
};
/**
 * Fields of a heartbeat. `bodyIn`: the member that has the body, which is in base64 when it is not
 * UTF-8; undefined when there is no body.
 */
export type HeartbeatFields = {
  token: string;
  receivedAt: number;
  bodyIn: 'body' | 'body_base64' | undefined;
};

/**
 * One record, which is the line `head + json + "}"`, in UTF-8 and without line breaks. A store may
 * make several rows of a record.
 */
export type SinkRecord = {
  type: RecordType;
  head: string;
  /** The values that `head` has as text. */
  fields: ItemFields | HeartbeatFields;
  /**
   * The last value of the record, as JSON. The bytes stay unchanged until the record is handed over
   * by relieve(), or until commit() or abandon().
   */
  json: Uint8Array;
  /**
   * Set for the types that a client may send again: 128 bits that name the item, and when it was
   * received, Unix milliseconds.
   */
  resend?: { key: Buffer; receivedAt: number };
  /**
   * Row key of a record that comes from an archive, as rowKey makes it. A sink that has this row
   * already does not store the record again.
   */
  rowKey?: Buffer;
};

/**
 * The project and month for which an accepted envelope was counted, and its position in that month.
 */
export type CountedUsage = { projectId: string; month: string; position: number };

/**
 * How many records of a type a batch stored, or left out because they are a client's resend of a
 * stored record.
 */
export type SinkCount = { type: RecordType; result: 'stored' | 'resent'; count: number };

/** The place of an entry, and its usage, which counts even when its records are not stored. */
export type BegunEntry = { frameId: string; index: number; usage?: CountedUsage };

export type SinkGuarantee = 'exactly once' | 'repeatable';

/**
 * A row that the store refuses because of its content. `element`: the row's place in the item's
 * container, when the row is a log or span of a container. `item` is undefined for a heartbeat.
 */
export type RefusedRow = { frameId: string; entry: number; item?: number; element?: number; reason: string };

export type CommitOptions = {
  /** Whether this batch and all earlier ones must become durable without waiting for more. */
  now: boolean;
  /**
   * Called by a sink that gathers batches, at most once, and not with `now`. It says that the sink
   * has the batch, and keeps trying until it is durable. The frames' bytes are not needed any more,
   * and the next batch may begin. After this call commit() does not reject. `counts` are the same
   * as commit() returns.
   */
  held(counts: readonly SinkCount[]): void;
};

export interface SinkBatch {
  /** Bytes of the records so far, as they are written. */
  readonly bytes: number;
  /**
   * Returns how many entries of the frame, from its first, are stored or in this batch. The caller
   * goes on with the next entry.
   */
  entriesKnown(frameId: string): number;
  /**
   * Begins the entry at `index` of the frame: the records that follow, if any, belong to it.
   * Entries of a frame come in order.
   */
  beginEntry(entry: BegunEntry): void;
  /**
   * Adds a record of the entry. A client's resend of a stored record is left out, now or at the
   * commit.
   */
  add(record: SinkRecord): void;
  /**
   * Hands added records to disk or database when there are many, which bounds the memory of a
   * batch. Called after each item, even if the item became a dead letter. Returns undefined when
   * there is nothing to wait for.
   * @throws UnavailableError
   */
  relieve(): Promise<void> | undefined;
  /**
   * Called before commit(), when all records of all entries have been added. Gives all rows to the
   * store.
   * @returns rows that the store refuses. Each becomes a dead letter before the commit, because
   * after the commit the row's frame does not come again. A sink without prepare() ends the process
   * at such a row.
   * @throws UnavailableError
   */
  prepare?(): Promise<readonly RefusedRow[]>;
  /**
   * Makes the batch durable. All records of its entries must have been added by now; there may be
   * none. Resolves when everything in the batch is durable.
   * @returns the records that this batch stored, without refused rows and without entries that
   * another processor stored meanwhile
   * @throws UnavailableError when it is not known whether the batch is stored; the same entries may
   * then be written again in a new batch
   */
  commit(options: CommitOptions): Promise<readonly SinkCount[]>;
  /**
   * Forgets everything that is not committed. Also called after commit(), without effect. Never
   * throws.
   */
  abandon(): Promise<void>;
}

export interface StreamSink {
  /**
   * Begins a batch.
   * @param frameIds the frames that the batch is for
   * @throws UnavailableError when the sink cannot tell which of them are stored
   */
  begin(frameIds: readonly string[]): SinkBatch | Promise<SinkBatch>;
}

export interface Sink {
  readonly guarantee: SinkGuarantee;
  /**
   * Opens a stream of the sink.
   * @param stream its name in JetStream
   * @throws UnavailableError or JournalError when the sink cannot read what it has stored
   */
  open(stream: string): Promise<StreamSink>;
  /**
   * Removes the UTC days whose records were all received before this moment, Unix milliseconds.
   * Keys and counts stay. A sink whose store removes old records by itself lacks this method.
   * @throws UnavailableError
   */
  removeBefore?(moment: number): Promise<void>;
  /** How long writes took, s. Only a sink that holds batches has this. */
  readonly writeSeconds?: Distribution;
  /**
   * Log of failed writes. Only a sink that holds batches has this, because it learns by itself when
   * a write has failed or worked.
   */
  readonly outage?: OutageLog;
  close(): Promise<void>;
}

/** An item as a load test finds it in a store. */
export type StoredItem = {
  projectId: string;
  eventId: string;
  index: number;
  /**
   * Number of copies that a reader who merges by row key sees; for a container, of its most
   * frequent element.
   */
  copies: number;
};

/** Reads a store for a load test, while processors run. Its methods throw UnavailableError. */
export interface StoredReader {
  /**
   * Returns the number of accepted envelopes by project. A sink without this method keeps no tally.
   */
  tally?(): Promise<ReadonlyMap<string, number>>;
  /**
   * Calls `onItem` for every item that was received at `since` or later, and perhaps for earlier
   * items.
   */
  scan(since: Date, onItem: (item: StoredItem) => void): Promise<void>;
  /** Whether a scan leaves out the items that an earlier scan reported. */
  readonly tellsOnce?: true;
  /** How long the sink holds records back before it writes them, ms. */
  readonly delayMs?: number;
  close(): Promise<void>;
}
