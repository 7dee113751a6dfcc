/**
 * The contract of all sinks.
 *
 * Each stream has one open batch at a time, which takes records. commit() resolves when the batch
 * is durable. Only then does the processor acknowledge the batch's frames. A sink may hold several
 * batches before it writes them (CommitOptions.held). It then treats their frames and items as
 * stored, and makes the batches durable in their order. A frame may come again at any time.
 *
 * - `exactly once`: a batch is stored wholly or not at all. No reader sees any of it before the
 *   commit. Later batches, of this process or the next, know which entries are stored. So each
 *   record is written once.
 * - `repeatable`: when the process ends, only a part of a batch may be stored. The whole batch is
 *   then written again. The key of a row depends only on its frame and its place in the frame
 *   (rowKey in item-key.ts). So a store or a reader that merges rows by key ends with one row.
 *
 * Clients may send an event, a transaction or an OTLP request again. With both guarantees, a resend
 * within RESEND_WINDOW_MS is not written, as far as the sink remembers (docs/sinks.md).
 */
import type { ItemType } from '../lib/item-types.ts';
import type { Distribution } from '../lib/metrics/distribution.ts';
import type { OutageLog } from '../lib/outage-log.ts';

/** Type of a record. An OTLP request comes to the sinks as containers of spans or logs. */
export type RecordType = Exclude<ItemType, 'otlp_traces' | 'otlp_logs'> | 'heartbeat';

/** Fields that all records of one envelope share. Times are Unix milliseconds. */
export type EnvelopeFields = {
  projectId: string;
  eventId: string;
  receivedAt: number;
  sentAt?: number;
  sdk?: string;
};
/** Fields of an item. `index`: its place in its envelope. `header`: its header as JSON. */
export type ItemFields = {
  envelope: EnvelopeFields;
  index: number;
  header: string;
  /**
   * Whether the record's last value is the payload in base64. True for a file, a compressed
   * recording, and a payload that is not JSON.
   */
  isBase64?: boolean;
  /** How the recording in the payload is compressed. */
  encoding?: 'gzip' | 'deflate';
};
/**
 * Fields of a heartbeat. `bodyIn`: the record's member that has the body, which is `body_base64`
 * for a body that is not UTF-8; undefined without a body.
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
  /** The values from which `head` was made. */
  fields: ItemFields | HeartbeatFields;
  /**
   * The last value of the record, as JSON. The caller leaves these bytes unchanged until relieve()
   * has handed the record over, or until commit() or abandon().
   */
  json: Uint8Array;
  /**
   * Set for an item that a client may send again. `key`: its resendKey. `receivedAt`: when it was
   * received, Unix milliseconds.
   */
  resend?: { key: Buffer; receivedAt: number };
  /** Set by a backfill: the record's row key. A sink that has this row does not store it again. */
  rowKey?: Buffer;
};

/** The project and month for which an accepted envelope was counted, and its position there. */
export type CountedUsage = { projectId: string; month: string; position: number };

/** How many records of a type a batch stored, or left out as a client's resends. */
export type SinkCount = { type: RecordType; result: 'stored' | 'resent'; count: number };

/** Place of an entry, and its usage, which counts even when none of its records is stored. */
export type BegunEntry = { frameId: string; index: number; usage?: CountedUsage };

export type SinkGuarantee = 'exactly once' | 'repeatable';

/**
 * A row that the store refuses because of its content. `item`: the item's place in its envelope;
 * undefined for a heartbeat. `element`: for a row of one log or span, its place in the container.
 */
export type RefusedRow = { frameId: string; entry: number; item?: number; element?: number; reason: string };

export type CommitOptions = {
  /** Whether the sink must write this batch and all earlier ones at once. */
  now: boolean;
  /**
   * A sink that holds batches calls this at most once, and not with `now`. The call says that the
   * sink has the batch in memory, and tries until the batch is durable. The caller may then free
   * the frames' bytes and begin the next batch. After the call, commit() does not reject. `counts`
   * are those that commit() returns.
   */
  held(counts: readonly SinkCount[]): void;
};

export interface SinkBatch {
  /** Bytes of the rows that were added so far. */
  readonly bytes: number;
  /**
   * Returns how many entries of the frame, counted from its first, are stored or in this batch. The
   * caller goes on with the next entry.
   */
  entriesKnown(frameId: string): number;
  /**
   * Begins the entry at `index` of the frame: the records that follow, if any, belong to it.
   * Entries of a frame come in order.
   */
  beginEntry(entry: BegunEntry): void;
  /** Adds a record of the entry. A client's resend is left out, now or at the commit. */
  add(record: SinkRecord): void;
  /**
   * Hands added records to disk or database when there are many, which bounds the memory of a
   * batch. Called after each item, even if the item became a dead letter. Returns undefined when
   * there is nothing to wait for.
   * @throws UnavailableError
   */
  relieve(): Promise<void> | undefined;
  /**
   * Gives all rows to the store. Called before commit(), when all records have been added.
   * @returns rows that the store refuses. Each becomes a dead letter before the commit, because
   * after the commit the row's frame does not come again. In a sink without prepare(), a refused
   * row ends the process.
   * @throws UnavailableError
   */
  prepare?(): Promise<readonly RefusedRow[]>;
  /**
   * Resolves when the batch is durable. The batch may have no records.
   * @returns the numbers of records that this batch stored or left out as resends. Refused rows,
   * and entries that another processor stored meanwhile, do not count.
   * @throws UnavailableError when it is not known whether the batch is stored; the same entries may
   * then be written again in a new batch
   */
  commit(options: CommitOptions): Promise<readonly SinkCount[]>;
  /** Forgets everything that is not committed. Has no effect after commit(). Never throws. */
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
   * Removes the UTC days whose records were all received before this moment, Unix milliseconds. The
   * tally and the keys stay. Missing in a sink whose store removes old records by itself.
   * @throws UnavailableError
   */
  removeBefore?(moment: number): Promise<void>;
  /** How long writes took, s. Only a sink that holds batches has this. */
  readonly writeSeconds?: Distribution;
  /** Log of failed writes. Only a sink that holds batches has this. */
  readonly outage?: OutageLog;
  close(): Promise<void>;
}

/** An item as a load test finds it in a store. */
export type StoredItem = {
  projectId: string;
  eventId: string;
  index: number;
  /** Copies after merging by row key. For a container: copies of its most frequent element. */
  copies: number;
};

/** Reads a store for a load test, while processors run. Its methods throw UnavailableError. */
export interface StoredReader {
  /** Returns the number of accepted envelopes by project. Missing in a sink without a tally. */
  tally?(): Promise<ReadonlyMap<string, number>>;
  /** Calls `onItem` for every item that was received from `since` on, and perhaps for others. */
  scan(since: Date, onItem: (item: StoredItem) => void): Promise<void>;
  /** Whether a scan leaves out the items that an earlier scan reported. */
  readonly tellsOnce?: true;
  /** How long the sink holds records back before it writes them, ms. */
  readonly delayMs?: number;
  close(): Promise<void>;
}
