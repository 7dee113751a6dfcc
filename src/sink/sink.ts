/**
 * The contract of all sinks: what a sink promises, and the calls by which it is given records.
 *
 * One batch per stream takes records at a time. commit() resolves when everything in it is durable;
 * only then are its frames acknowledged. A sink that waits for more before it writes may hold
 * several batches meanwhile: it knows their frames and items like stored ones, and they end in
 * order. A frame may come again at any time.
 *
 * - `exactly once`: a batch is all or nothing, no reader sees any of it before the commit, and
 *   every later batch, of this process or the next, knows its entries. So each record is written
 *   once.
 * - `repeatable`: a batch may be stored in part when its process ends, and is written again. Each
 *   row has a deterministic 128-bit row key of frame and place (rowKey in item-key.ts), so that a
 *   store that merges by key, or a reader, ends with one.
 *
 * A client's own resend of an event or transaction within RESEND_WINDOW_MS is written once by both,
 * as far as the sink remembers (docs/sinks.md says how far).
 */
import type { ItemType } from '../lib/item-types.ts';
import type { Distribution } from '../lib/metrics/distribution.ts';
import type { OutageLog } from '../lib/outage-log.ts';

export type RecordType = ItemType | 'heartbeat';

/** Fields that all records of one envelope share. Times in Unix milliseconds. */
export type EnvelopeFields = {
  projectId: string;
  eventId: string;
  receivedAt: number;
  sentAt?: number;
  sdk?: string;
};
/** An item; `index` counts all items of its envelope, `header` is its header as JSON. */
export type ItemFields = {
  envelope: EnvelopeFields;
  index: number;
  header: string;
  /** The record's last value is the payload in base64: it is no JSON, or a packed recording. */
  isBase64?: boolean;
  /** How the recording in the payload is packed. */
  encoding?: 'gzip' | 'deflate';
};
/**
 * `bodyIn`: the field of the ping's body, which is in base64 when it is no UTF-8; undefined when
 * there was none.
 */
export type HeartbeatFields = {
  token: string;
  receivedAt: number;
  bodyIn: 'body' | 'body_base64' | undefined;
};

/**
 * One record: the line `head + json + "}"`, in UTF-8 and without line breaks. A store may make
 * several rows of it.
 */
export type SinkRecord = {
  type: RecordType;
  head: string;
  /** The content of `head`, as values. */
  fields: ItemFields | HeartbeatFields;
  /**
   * The last value of the record, as JSON. Stays as it is until a relieve() that hands it over,
   * commit() or abandon().
   */
  json: Uint8Array;
  /**
   * For the types that a client may send again: 128 bits that name the item, and the data's time in
   * Unix milliseconds.
   */
  resend?: { key: Buffer; receivedAt: number };
  /**
   * The row key of a record that comes from an archive, as rowKey makes it. A sink
   * that has the row already does not store it twice.
   */
  rowKey?: Buffer;
};

/** The count of one accepted envelope. */
export type CountedUsage = { projectId: string; month: string; position: number };

/**
 * How many records of a type a batch stored, or left out because they are a client's resend of one
 * that is stored.
 */
export type SinkCount = { type: RecordType; result: 'stored' | 'resent'; count: number };

/** The place of an entry, and what it counted, whatever becomes of its records. */
export type BegunEntry = { frameId: string; index: number; usage?: CountedUsage };

export type SinkGuarantee = 'exactly once' | 'repeatable';

/**
 * A row that the store refuses for its content. `element`: it is this log or span of the
 * item's container; the item is absent for a heartbeat.
 */
export type RefusedRow = { frameId: string; entry: number; item?: number; element?: number; reason: string };

export type CommitOptions = {
  /** This batch and all before it are to be durable without waiting for more. */
  now: boolean;
  /**
   * For a sink that waits for more; called at most once, and not with `now`: the sink has the
   * batch, and goes on trying until it is durable. The frames' bytes are not needed any more, and
   * the next batch may begin. From then on commit() does not reject. `counts` are its result.
   */
  held(counts: readonly SinkCount[]): void;
};

export interface SinkBatch {
  /** Bytes of records so far, as they are written. */
  readonly bytes: number;
  /**
   * How many entries of the frame, from its first, are stored or in this batch: the caller goes on
   * from there.
   */
  entriesKnown(frameId: string): number;
  /**
   * The records that follow, if any, are those of the entry at `index` of the frame. Entries of a
   * frame come in order.
   */
  beginEntry(entry: BegunEntry): void;
  /**
   * Adds a record of the entry; a client's resend of one that is stored is left out, now or at the
   * commit.
   */
  add(record: SinkRecord): void;
  /**
   * Hands added records to disk or database when they are many, which bounds the memory of a batch.
   * Called after each item, also after one that became a dead letter. Undefined when there is
   * nothing to wait for.
   * @throws UnavailableError
   */
  relieve(): Promise<void> | undefined;
  /**
   * Called before commit(), when all entries are whole: gives the store all rows.
   * @returns rows that the store refuses. Each becomes a dead letter before the commit, after which
   * no entry may come again. A sink without prepare() ends the process at such a row.
   * @throws UnavailableError
   */
  prepare?(): Promise<readonly RefusedRow[]>;
  /**
   * All entries must be whole by now. There may be none. Resolves when all of it is durable.
   * @returns what this batch stored, without refused rows and entries that another processor stored
   * meanwhile
   * @throws UnavailableError when it is not known to be stored; the same entries may then be
   * written again in a new batch
   */
  commit(options: CommitOptions): Promise<readonly SinkCount[]>;
  /** Forgets what is not committed; also called after commit(), to no effect. Never throws. */
  abandon(): Promise<void>;
}

export interface StreamSink {
  /**
   * @param frameIds the frames that the batch is for.
   * @throws UnavailableError when the sink cannot tell which of them are stored
   */
  begin(frameIds: readonly string[]): SinkBatch | Promise<SinkBatch>;
}

export interface Sink {
  readonly guarantee: SinkGuarantee;
  /**
   * @param stream its name in JetStream.
   * @throws UnavailableError or JournalError when the sink cannot read what it has stored
   */
  open(stream: string): Promise<StreamSink>;
  /**
   * Removes the UTC days of which all was received before this moment, Unix milliseconds; nothing
   * that tells what is stored or counted. A sink whose store does it by itself lacks it.
   * @throws UnavailableError
   */
  removeBefore?(moment: number): Promise<void>;
  /** Seconds of its writes, of a sink that holds batches. */
  readonly writeSeconds?: Distribution;
  /** The same sink's: it tells by itself when a write has failed, and when one has worked. */
  readonly outage?: OutageLog;
  close(): Promise<void>;
}

/** An item as a load test finds it in a store. */
export type StoredItem = {
  projectId: string;
  eventId: string;
  index: number;
  /**
   * Rows that a reader who merges by row key has of it; of a container, of its most frequent entry.
   */
  copies: number;
};

/** Reads a store for a load test, beside running processors; methods throw UnavailableError. */
export interface StoredReader {
  /** Accepted envelopes by project; undefined where the sink keeps no tally. */
  tally?(): Promise<ReadonlyMap<string, number>>;
  /** Every item that was received at this moment or later; earlier ones may be among them. */
  scan(since: Date, onItem: (item: StoredItem) => void): Promise<void>;
  /** A scan leaves out what an earlier one told. */
  readonly tellsOnce?: true;
  /** For so long the sink holds back what it is given. */
  readonly delayMs?: number;
  close(): Promise<void>;
}
