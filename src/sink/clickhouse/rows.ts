/** Turns records into rows of tables. */
import { DAY_MS } from '../../lib/clock.ts';
import { isExtraType } from '../../lib/item-types.ts';
import { isReplayed } from '../../stream/dead-letter-format.ts';
import { type Cell, COLUMNS, isKeptMoment, type TypedRow, type TypedTable, typedRow } from '../columns.ts';
import { isSplit, type SentRecord, toSend } from '../containers.ts';
import { elementKey, frameKey, rowKey } from '../item-key.ts';
import type {
  CountedUsage,
  HeartbeatFields,
  ItemFields,
  RecordType,
  RefusedRow,
  SinkRecord,
} from '../sink.ts';
import { RowBuffer } from './row-buffer.ts';
import type { TableName } from './tables.ts';

/** The last day of ClickHouse's Date, in days since 1970. Later days become this day. */
const DAY_MAX = 0xffff;

const TABLES = { event: 'events', transaction: 'transactions', log: 'logs', span: 'spans' } as const;

function tableOf(type: RecordType): TableName {
  if (type === 'heartbeat') return 'heartbeats';
  if (isExtraType(type)) return 'extras';
  if (type === 'replay_event' || type === 'replay_recording') return 'replays';
  return TABLES[type];
}

const isTyped = (table: TableName): table is TypedTable => Object.hasOwn(COLUMNS, table);

export const dayOf = (ms: number): number => Math.min(Math.max(Math.floor(ms / DAY_MS), 0), DAY_MAX);

/** What is needed to find a row in its table. */
export type RowPlace = { rowKey: Buffer; receivedAt: number };
/** Where a row comes from. The `projectId` of a heartbeat's row is empty. */
export type Origin = Omit<RefusedRow, 'reason'> & RowPlace & { type: RecordType; projectId: string };
/** The rows of one table, and the origin of each row. */
export type TableRows = { readonly buffer: RowBuffer; readonly origins: Origin[] };

/**
 * An item that its client may send again, and the place of its rows. If the item is a resend, its
 * rows are not inserted. `isReplayed`: the item comes from a dead letter, so `seen_items` may have
 * it although it was not stored.
 */
export type ResendClaim = {
  readonly key: Buffer;
  readonly rowKey: Buffer;
  readonly receivedAt: number;
  readonly table: TableName;
  readonly row: number;
  /** Number of the item's rows, of which `row` is the first. */
  readonly rows: number;
  readonly isReplayed: boolean;
};

/** Rows of all tables that wait to be sent. */
export class PendingRows {
  readonly tables = new Map<TableName, TableRows>();
  readonly claims: ResendClaim[] = [];
  /** Frame id of the entry that is being added. */
  #frameId = '';
  #frame: Buffer = Buffer.alloc(0);
  #entry = 0;

  beginEntry(frameId: string, entry: number, usage: CountedUsage | undefined): void {
    if (frameId !== this.#frameId) {
      this.#frameId = frameId;
      this.#frame = frameKey(frameId);
    }
    this.#entry = entry;
    if (!usage) return;
    this.#table('usage')
      .buffer.beginRow()
      .text(usage.projectId)
      .text(usage.month)
      .key(this.#key(0))
      .int64(usage.position);
  }

  /**
   * Adds the rows of a record.
   * @returns the bytes that the rows take
   */
  add(record: SinkRecord): number {
    const { buffer, origins } = this.#table(tableOf(record.type));
    const before = buffer.bytes;
    const origin = { frameId: this.#frameId, entry: this.#entry, type: record.type };
    if ('token' in record.fields) {
      const { receivedAt } = record.fields;
      const rowKey = this.#addHeartbeat(buffer, record.fields, record);
      origins.push({ ...origin, projectId: '', rowKey, receivedAt });
    } else {
      const { projectId, receivedAt } = record.fields.envelope;
      const sent = toSend(record);
      const payloads = sent.split?.elements ?? [record.json];
      payloads.forEach((payload, place) => {
        const element = sent.split ? place : undefined;
        const rowKey = this.#addItem(buffer, sent, { payload, element });
        const item = { item: indexOf(record), ...(element !== undefined && { element }) };
        origins.push({ ...origin, ...item, projectId, rowKey, receivedAt });
      });
    }
    return buffer.bytes - before;
  }

  #table(name: TableName): TableRows {
    const found = this.tables.get(name) ?? { buffer: new RowBuffer(), origins: [] };
    this.tables.set(name, found);
    return found;
  }

  #key(item: number, element?: number): Buffer {
    return rowKey(this.#frame, { entry: this.#entry, item, element });
  }

  /** @returns the row's key */
  #addItem(
    buffer: RowBuffer,
    record: SentRecord,
    { payload, element }: { payload: Uint8Array; element: number | undefined },
  ): Buffer {
    const { type, resend, split } = record;
    const table = tableOf(type);
    const { envelope, index, header, isBase64, encoding } = record.fields as ItemFields;
    const key = record.rowKey ? elementKey(record.rowKey, index, element) : this.#key(index, element);
    if (resend && !element) {
      const place = { table, row: buffer.rows, rows: split?.elements.length ?? 1 };
      this.claims.push({ ...resend, rowKey: key, ...place, isReplayed: isReplayed(this.#frameId) });
    }
    buffer
      .beginRow()
      .text(envelope.projectId)
      .uint16(dayOf(envelope.receivedAt))
      .key(key)
      .text(envelope.eventId)
      .uint32(index)
      .int64(envelope.receivedAt)
      .optional(keptMoment(envelope.sentAt), (sentAt) => buffer.int64(sentAt))
      .optional(envelope.sdk, (sdk) => buffer.text(sdk))
      .text(header);
    if (isSplit(type))
      buffer
        .optional(element, (place) => buffer.uint16(place))
        .optional(split?.rest, (rest) => buffer.data(rest));
    else if (type !== 'event' && type !== 'transaction') buffer.text(type);
    buffer.data(isBase64 ? NOTHING : payload);
    if (table === 'extras' || table === 'replays')
      buffer.optional(isBase64 ? payload : undefined, (json) => buffer.data(unquoted(json)));
    if (table === 'replays') buffer.optional(encoding, (packing) => buffer.text(packing));
    if (!isTyped(table)) return key;
    const isRead = !isBase64 && (split !== undefined || !isSplit(type));
    addTyped(
      buffer,
      table,
      typedRow(table, isRead ? payload : undefined, { type, eventId: envelope.eventId }),
    );
    return key;
  }

  /** @returns the row's key */
  #addHeartbeat(
    buffer: RowBuffer,
    { token, receivedAt, bodyIn }: HeartbeatFields,
    { json, rowKey: key = this.#key(0) }: SinkRecord,
  ): Buffer {
    const text = bodyIn && (JSON.parse(Buffer.from(json).toString()) as string);
    buffer
      .beginRow()
      .text(token)
      .uint16(dayOf(receivedAt))
      .key(key)
      .int64(receivedAt)
      .optional(bodyIn === 'body' ? text : undefined, (body) => buffer.text(body))
      .optional(bodyIn === 'body_base64' ? text : undefined, (body) => buffer.text(body));
    return key;
  }
}

/** Returns the moment; undefined when there is none, or when ClickHouse cannot compute with it. */
const keptMoment = (ms: number | undefined): number | undefined =>
  ms !== undefined && isKeptMoment(ms) ? ms : undefined;

const WRITERS = {
  text: (buffer: RowBuffer, cell: Cell) => buffer.text(cell as string),
  word: (buffer: RowBuffer, cell: Cell) => buffer.text(cell as string),
  moment: (buffer: RowBuffer, cell: Cell) => buffer.int64(cell as number),
  count: (buffer: RowBuffer, cell: Cell) => buffer.uint32(cell as number),
  flag: (buffer: RowBuffer, cell: Cell) => buffer.flag(cell as boolean),
  duration: (buffer: RowBuffer, cell: Cell) => buffer.float64(cell as number),
} as const;

function addTyped(buffer: RowBuffer, table: TypedTable, { cells, unread }: TypedRow): void {
  for (const [at, { kind }] of COLUMNS[table].entries())
    buffer.optional(cells[at], (cell) => WRITERS[kind](buffer, cell));
  buffer.flag(unread);
}

const NOTHING = new Uint8Array();
const unquoted = (json: Uint8Array): Uint8Array => json.subarray(1, -1);
const indexOf = ({ fields }: SinkRecord): number => ('token' in fields ? 0 : fields.index);
