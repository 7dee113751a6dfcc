/** Records as rows: whole columns at a time, one statement for a table. */
import { numberArray, textArray } from './postgres-arrays.ts';
import type { Transaction } from './postgres-database.ts';
import { type Logs, splitLogs } from './postgres-logs.ts';
import type { Partitions } from './postgres-partitions.ts';
import { PARTITIONED, type PartitionedTable } from './postgres-schema.ts';
import type { HeartbeatFields, ItemFields, SinkRow } from './sink.ts';

/** A record as it will be sent: in `bytes`, and as a row for each of its logs if it is split. */
export type SentRow = SinkRow & { bytes: number; split?: Logs };
type Item = SentRow & { fields: ItemFields };
type Log = { row: Item; payload: Uint8Array; index?: number; container?: Uint8Array };
type Heartbeat = SentRow & { fields: HeartbeatFields };

/**
 * What the rows of one container may repeat of their item. A header of 16 KiB beside 40,000 logs of
 * a byte would make 600 MB of a request of 80 KB. Beyond this the container stays whole.
 */
const REPEATED_BYTES_MAX = 1024 * 1024;
/** Of a log's row beside its texts: ten lengths and at most four numbers. */
const LOG_ROW_BYTES = 10 * 4 + 4 * 8;

const COMMON = 'project_id, event_id, item_index, received_at, sent_at, sdk, item_header';

/** The columns that items and logs have in common, as parameters 1 to 7. */
const commonColumns = (rows: readonly Item[]): unknown[] => [
  textArray(rows.map(({ fields }) => fields.envelope.projectId)),
  textArray(rows.map(({ fields }) => fields.envelope.eventId)),
  numberArray(rows.map(({ fields }) => fields.index)),
  numberArray(rows.map(({ fields }) => fields.envelope.receivedAt)),
  numberArray(rows.map(({ fields }) => fields.envelope.sentAt)),
  textArray(rows.map(({ fields }) => fields.envelope.sdk)),
  textArray(rows.map(({ fields }) => fields.header)),
];
const COMMON_ARRAYS =
  '$1::text[], $2::text[], $3::float8[], $4::float8[], $5::float8[], $6::text[], $7::text[]';
const COMMON_VALUES = 'p, e, i::int, to_timestamp(r / 1000), to_timestamp(s / 1000), sdk, h';

async function insertItems(transaction: Transaction, rows: readonly Item[]): Promise<void> {
  if (rows.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.items (${COMMON}, type, payload)
SELECT ${COMMON_VALUES}, type, payload
FROM unnest(${COMMON_ARRAYS}, $8::text[], $9::text[]) AS t (p, e, i, r, s, sdk, h, type, payload)`,
    [
      ...commonColumns(rows),
      textArray(rows.map(({ type }) => type)),
      textArray(rows.map(({ json }) => json)),
    ],
  );
}

async function insertLogs(transaction: Transaction, logs: readonly Log[]): Promise<void> {
  if (logs.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.logs (${COMMON}, log_index, container, payload)
SELECT ${COMMON_VALUES}, n::int, container, payload
FROM unnest(${COMMON_ARRAYS}, $8::float8[], $9::text[], $10::text[]) AS t (p, e, i, r, s, sdk, h, n, container, payload)`,
    [
      ...commonColumns(logs.map(({ row }) => row)),
      numberArray(logs.map(({ index }) => index)),
      textArray(logs.map(({ container }) => container)),
      textArray(logs.map(({ payload }) => payload)),
    ],
  );
}

async function insertHeartbeats(transaction: Transaction, rows: readonly Heartbeat[]): Promise<void> {
  if (rows.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.heartbeats (token, received_at, body)
SELECT token, to_timestamp(r / 1000), body FROM unnest($1::text[], $2::float8[], $3::text[]) AS t (token, r, body)`,
    [
      textArray(rows.map(({ fields }) => fields.token)),
      numberArray(rows.map(({ fields }) => fields.receivedAt)),
      textArray(rows.map(({ fields, json }) => (fields.hasBody ? json : undefined))),
    ],
  );
}

/** What the rows of a container take; undefined when they would repeat too much. */
function bytesOfRows({ envelope, header }: ItemFields, { logs, container }: Logs): number | undefined {
  const texts = [envelope.projectId, envelope.eventId, envelope.sdk ?? '', header];
  const own = LOG_ROW_BYTES + (container?.length ?? 0);
  const repeated = texts.reduce((sum, text) => sum + Buffer.byteLength(text), own);
  if ((logs.length - 1) * repeated > REPEATED_BYTES_MAX) return undefined;
  return logs.reduce((sum, log) => sum + log.length, logs.length * repeated);
}

/**
 * Decides by the record alone how it is stored: a frame that comes again, beside any others, makes
 * the same rows.
 */
export function toSend(row: SinkRow): SentRow {
  const { type, fields, head, json } = row;
  const split = type === 'log' ? splitLogs(json) : undefined;
  const bytes = split && !('token' in fields) ? bytesOfRows(fields, split) : undefined;
  return split && bytes ? { ...row, split, bytes } : { ...row, bytes: head.length + json.length };
}

function logsOf(row: Item): Log[] {
  if (!row.split) return [{ row, payload: row.json }];
  const { logs, container } = row.split;
  return logs.map((payload, index) => ({ row, payload, index, ...(container && { container }) }));
}

const isHeartbeat = (row: SentRow): row is Heartbeat => 'token' in row.fields;
const isItem = (row: SentRow): row is Item => !isHeartbeat(row);

const tableOf = ({ type }: SinkRow): PartitionedTable => {
  if (type === 'heartbeat') return 'heartbeats';
  return type === 'log' ? 'logs' : 'items';
};
const receivedAtOf = ({ fields }: SinkRow): number =>
  'token' in fields ? fields.receivedAt : fields.envelope.receivedAt;

/** Makes the partitions that these rows need. @throws UnavailableError */
export async function ensurePartitions(partitions: Partitions, rows: readonly SinkRow[]): Promise<void> {
  for (const table of PARTITIONED)
    await partitions.ensure(table, rows.filter((row) => tableOf(row) === table).map(receivedAtOf));
}

/** @throws UnavailableError */
export async function insertRows(transaction: Transaction, rows: readonly SentRow[]): Promise<void> {
  const items = rows.filter(isItem);
  await insertItems(
    transaction,
    items.filter(({ type }) => type !== 'log'),
  );
  await insertLogs(transaction, items.filter(({ type }) => type === 'log').flatMap(logsOf));
  await insertHeartbeats(transaction, rows.filter(isHeartbeat));
}
