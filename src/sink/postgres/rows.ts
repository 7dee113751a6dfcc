/**
 * Turns records into rows. One statement inserts all rows of a table. It has a parameter for each
 * column: an array of the values of all rows.
 */
import { isExtraType } from '../../lib/item-types.ts';
import { isSplit, type SentRecord } from '../containers.ts';
import type { HeartbeatFields, ItemFields, SinkRecord } from '../sink.ts';
import { numberArray, textArray } from './arrays.ts';
import type { Transaction } from './database.ts';
import type { Partitions } from './partitions.ts';
import { PARTITIONED, type PartitionedTable, WRITTEN } from './schema.ts';

/**
 * A row of a record. `payload`: the row's log or span, or the record's whole JSON. `place`: the
 * place of the log or span in its container; undefined for a whole record. `rest`: the container's
 * other members, which each of its rows repeats.
 */
type Row<Sent = SentRecord> = { record: Sent; payload: Uint8Array; place?: number; rest?: Uint8Array };

const unquoted = (json: Uint8Array): Uint8Array => json.subarray(1, -1);
const item = ({ record }: Row): ItemFields => record.fields as ItemFields;
const ping = ({ record }: Row): HeartbeatFields => record.fields as HeartbeatFields;
const placeOf = (rows: readonly Row[]): Buffer => numberArray(rows.map(({ place }) => place));
const texts = (rows: readonly Row[], of: (row: Row) => string | Uint8Array | undefined): Buffer =>
  textArray(rows.map(of));

/** For each column, the function that makes its parameter from the rows. */
const VALUES: Readonly<Record<string, (rows: readonly Row[]) => Buffer>> = {
  project_id: (rows) => texts(rows, (row) => item(row).envelope.projectId),
  event_id: (rows) => texts(rows, (row) => item(row).envelope.eventId),
  item_index: (rows) => numberArray(rows.map((row) => item(row).index)),
  received_at: (rows) => numberArray(rows.map(({ record }) => receivedAtOf(record))),
  sent_at: (rows) => numberArray(rows.map((row) => item(row).envelope.sentAt)),
  sdk: (rows) => texts(rows, (row) => item(row).envelope.sdk),
  item_header: (rows) => texts(rows, (row) => item(row).header),
  type: (rows) => texts(rows, ({ record }) => record.type),
  log_index: placeOf,
  span_index: placeOf,
  container: (rows) => texts(rows, ({ rest }) => rest),
  // In each row, one of payload and payload_base64 is NULL.
  payload: (rows) => texts(rows, (row) => (item(row).isBase64 ? undefined : row.payload)),
  payload_base64: (rows) => texts(rows, (row) => (item(row).isBase64 ? unquoted(row.payload) : undefined)),
  payload_encoding: (rows) => texts(rows, (row) => item(row).encoding),
  token: (rows) => texts(rows, (row) => ping(row).token),
  body: (rows) => texts(rows, (row) => (ping(row).bodyIn === 'body' ? row.payload : undefined)),
  body_base64: (rows) =>
    texts(rows, (row) => (ping(row).bodyIn === 'body_base64' ? unquoted(row.payload) : undefined)),
};

/** For each type of column: the type of its parameter, and the SQL for one value. */
const TYPES = {
  text: { array: 'text[]', value: (name: string) => name },
  integer: { array: 'float8[]', value: (name: string) => `${name}::integer` },
  timestamptz: { array: 'float8[]', value: (name: string) => `to_timestamp(${name} / 1000)` },
} as const;

/**
 * Makes the statements for rows of a table. `insert` stores all of them or none. `tryEach` stores
 * each row by itself, and returns the places of the rows that are refused.
 */
function statementsOf(table: PartitionedTable) {
  const columns = Object.entries(WRITTEN[table]);
  const names = columns.map(([name]) => name).join(', ');
  const values = columns.map(([name, type]) => TYPES[type].value(`t.${name}`)).join(', ');
  const arrays = columns.map(([, type], n) => `$${n + 1}::${TYPES[type].array}`).join(', ');
  return {
    insert: `INSERT INTO sluice.${table} (${names}) SELECT ${values} FROM unnest(${arrays}) AS t (${names})`,
    tryEach: `SELECT n::int - 1 AS at, refusal FROM (
  SELECT n, sluice.try_${table}(${values}) AS refusal
  FROM unnest(${arrays}) WITH ORDINALITY AS t (${names}, n)) AS tried
WHERE refusal IS NOT NULL`,
    parameters: (rows: readonly Row[]): Buffer[] => columns.map(([name]) => VALUES[name]?.(rows) as Buffer),
  };
}
const STATEMENTS = {
  items: statementsOf('items'),
  logs: statementsOf('logs'),
  spans: statementsOf('spans'),
  extras: statementsOf('extras'),
  heartbeats: statementsOf('heartbeats'),
} as const satisfies Record<PartitionedTable, unknown>;

const CONTAINERS = { log: 'logs', span: 'spans' } as const;

const tableOf = ({ type }: SinkRecord): PartitionedTable => {
  if (type === 'heartbeat') return 'heartbeats';
  if (isExtraType(type)) return 'extras';
  return isSplit(type) ? CONTAINERS[type] : 'items';
};
const receivedAtOf = ({ fields }: SinkRecord): number =>
  'token' in fields ? fields.receivedAt : fields.envelope.receivedAt;

function rowsOf<Sent extends SentRecord>(record: Sent): Row<Sent>[] {
  if (!record.split) return [{ record, payload: record.json }];
  const { elements, rest } = record.split;
  return elements.map((payload, place) => ({ record, payload, place, ...(rest && { rest }) }));
}

/**
 * Makes the partitions that these records need.
 * @throws UnavailableError
 */
export async function ensurePartitions(
  partitions: Partitions,
  records: readonly SinkRecord[],
): Promise<void> {
  for (const table of PARTITIONED)
    await partitions.ensure(table, records.filter((record) => tableOf(record) === table).map(receivedAtOf));
}

/** A refused row. `element`: its place, when the row is a log or span of the record's container. */
type Refused<Sent> = { record: Sent; element?: number; reason: string };

/**
 * Stores all rows of the records, except those that the database refuses. After a refusal, a
 * function in the database tries the rows one by one, so a thousand refused rows cost no more round
 * trips than one.
 * @returns the refused rows
 * @throws UnavailableError
 */
export async function insertAccepted<Sent extends SentRecord>(
  transaction: Transaction,
  records: readonly Sent[],
): Promise<Refused<Sent>[]> {
  const tables = PARTITIONED.map((table) => ({
    ...STATEMENTS[table],
    rows: records.filter((record) => tableOf(record) === table).flatMap(rowsOf<Sent>),
  })).filter(({ rows }) => rows.length > 0);
  const insertAll = async (): Promise<void> => {
    for (const { insert, parameters, rows } of tables) await transaction.query(insert, parameters(rows));
  };
  if (await transaction.tryInsert(insertAll)) return [];
  const refused: Refused<Sent>[] = [];
  for (const { tryEach, parameters, rows } of tables) {
    const found = await transaction.query<{ at: number; refusal: string }>(tryEach, parameters(rows));
    for (const { at, refusal } of found) {
      const { record, place } = rows[at] as Row<Sent>;
      const element = place !== undefined && { element: place };
      refused.push({ record, ...element, reason: `postgres: SQLSTATE ${refusal}` });
    }
  }
  return refused;
}
