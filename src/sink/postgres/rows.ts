/** Records as rows: whole columns at a time, one statement for a table. */
import { isExtraType } from '../../lib/item-types.ts';
import type { HeartbeatFields, ItemFields, SinkRow } from '../sink.ts';
import { type ContainerType, isContainer, type SentRow } from '../split.ts';
import { numberArray, textArray } from './arrays.ts';
import type { Transaction } from './database.ts';
import type { Partitions } from './partitions.ts';
import { PARTITIONED, type PartitionedTable } from './schema.ts';

type Item = SentRow & { fields: ItemFields };
/** A log or span of a container, or, without an index, a whole container. */
type Entry = { row: Item; payload: Uint8Array; index?: number; rest?: Uint8Array };
type Heartbeat = SentRow & { fields: HeartbeatFields };

/** Where the entries of containers go. */
const CONTAINERS = {
  log: { table: 'logs', index: 'log_index' },
  span: { table: 'spans', index: 'span_index' },
} as const;
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

async function insertExtras(transaction: Transaction, rows: readonly Item[]): Promise<void> {
  if (rows.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.extras (${COMMON}, type, payload, payload_base64)
SELECT ${COMMON_VALUES}, type, payload, base64
FROM unnest(${COMMON_ARRAYS}, $8::text[], $9::text[], $10::text[])
  AS t (p, e, i, r, s, sdk, h, type, payload, base64)`,
    [
      ...commonColumns(rows),
      textArray(rows.map(({ type }) => type)),
      textArray(rows.map(({ fields, json }) => (fields.isBase64 ? undefined : json))),
      textArray(rows.map(({ fields, json }) => (fields.isBase64 ? json.subarray(1, -1) : undefined))),
    ],
  );
}

async function insertEntries(
  transaction: Transaction,
  type: ContainerType,
  entries: readonly Entry[],
): Promise<void> {
  if (entries.length === 0) return;
  const { table, index } = CONTAINERS[type];
  await transaction.query(
    `INSERT INTO sluice.${table} (${COMMON}, ${index}, container, payload)
SELECT ${COMMON_VALUES}, n::int, container, payload
FROM unnest(${COMMON_ARRAYS}, $8::float8[], $9::text[], $10::text[])
  AS t (p, e, i, r, s, sdk, h, n, container, payload)`,
    [
      ...commonColumns(entries.map(({ row }) => row)),
      numberArray(entries.map((entry) => entry.index)),
      textArray(entries.map(({ rest }) => rest)),
      textArray(entries.map(({ payload }) => payload)),
    ],
  );
}

const unquoted = (json: Uint8Array): Uint8Array => json.subarray(1, -1);

async function insertHeartbeats(transaction: Transaction, rows: readonly Heartbeat[]): Promise<void> {
  if (rows.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.heartbeats (token, received_at, body, body_base64)
SELECT token, to_timestamp(r / 1000), body, body_base64
FROM unnest($1::text[], $2::float8[], $3::text[], $4::text[]) AS t (token, r, body, body_base64)`,
    [
      textArray(rows.map(({ fields }) => fields.token)),
      numberArray(rows.map(({ fields }) => fields.receivedAt)),
      textArray(rows.map(({ fields, json }) => (fields.bodyIn === 'body' ? json : undefined))),
      textArray(
        rows.map(({ fields, json }) => (fields.bodyIn === 'body_base64' ? unquoted(json) : undefined)),
      ),
    ],
  );
}

function entriesOf(row: Item): Entry[] {
  if (!row.split) return [{ row, payload: row.json }];
  const { entries, rest } = row.split;
  return entries.map((payload, index) => ({ row, payload, index, ...(rest && { rest }) }));
}

const isHeartbeat = (row: SentRow): row is Heartbeat => 'token' in row.fields;
const isItem = (row: SentRow): row is Item => !isHeartbeat(row);

const tableOf = ({ type }: SinkRow): PartitionedTable => {
  if (type === 'heartbeat') return 'heartbeats';
  if (isExtraType(type)) return 'extras';
  return isContainer(type) ? CONTAINERS[type].table : 'items';
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
    items.filter((row) => tableOf(row) === 'items'),
  );
  await insertExtras(
    transaction,
    items.filter((row) => tableOf(row) === 'extras'),
  );
  for (const wanted of ['log', 'span'] as const) {
    const containers = items.filter(({ type }) => type === wanted);
    await insertEntries(transaction, wanted, containers.flatMap(entriesOf));
  }
  await insertHeartbeats(transaction, rows.filter(isHeartbeat));
}
