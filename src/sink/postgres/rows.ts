/** Records as rows: whole columns at a time, one statement for a table. */
import { isExtraType } from '../../lib/item-types.ts';
import { type Container, splitContainer } from '../containers.ts';
import type { HeartbeatFields, ItemFields, SinkRow } from '../sink.ts';
import { numberArray, textArray } from './arrays.ts';
import type { Transaction } from './database.ts';
import type { Partitions } from './partitions.ts';
import { PARTITIONED, type PartitionedTable } from './schema.ts';

/**
 * A record as it will be sent: in `bytes`, and as a row for each entry of its container if it is
 * split.
 */
export type SentRow = SinkRow & { bytes: number; split?: Container };
type Item = SentRow & { fields: ItemFields };
/** A log or span of a container, or, without an index, a whole container. */
type Entry = { row: Item; payload: Uint8Array; index?: number; rest?: Uint8Array };
type Heartbeat = SentRow & { fields: HeartbeatFields };

/**
 * What the rows of one container may repeat of their item. A header of 16 KiB beside 40,000 logs of
 * a byte would make 600 MB of a request of 80 KB. Beyond this the container stays whole.
 */
const REPEATED_BYTES_MAX = 1024 * 1024;
/** Of an entry's row beside its texts: ten lengths and at most four numbers. */
const ENTRY_ROW_BYTES = 10 * 4 + 4 * 8;
/**
 * Containers further back in their envelope stay whole: 1,000 of them, each just split, would make
 * a million rows.
 */
const SPLIT_INDEX_MAX = 99;

/** Where the entries of containers go. */
const CONTAINERS = {
  log: { table: 'logs', index: 'log_index' },
  span: { table: 'spans', index: 'span_index' },
} as const;
const CONTAINER_TYPES = ['log', 'span'] as const;
type ContainerType = (typeof CONTAINER_TYPES)[number];
const isContainer = (type: string): type is ContainerType => Object.hasOwn(CONTAINERS, type);

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
FROM unnest(${COMMON_ARRAYS}, $8::text[], $9::text[], $10::text[]) AS t (p, e, i, r, s, sdk, h, type, payload, base64)`,
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
FROM unnest(${COMMON_ARRAYS}, $8::float8[], $9::text[], $10::text[]) AS t (p, e, i, r, s, sdk, h, n, container, payload)`,
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

/** What the rows of a container take; undefined when they would repeat too much. */
function bytesOfRows({ envelope, header }: ItemFields, { entries, rest }: Container): number | undefined {
  const texts = [envelope.projectId, envelope.eventId, envelope.sdk ?? '', header];
  const own = ENTRY_ROW_BYTES + (rest?.length ?? 0);
  const repeated = texts.reduce((sum, text) => sum + Buffer.byteLength(text), own);
  if ((entries.length - 1) * repeated > REPEATED_BYTES_MAX) return undefined;
  return entries.reduce((sum, entry) => sum + entry.length, entries.length * repeated);
}

/**
 * Decides by the record alone how it is stored: a frame that comes again, beside any others, makes
 * the same rows.
 */
export function toSend(row: SinkRow): SentRow {
  const { type, fields, head, json } = row;
  const whole = { ...row, bytes: head.length + json.length };
  if ('token' in fields || !isContainer(type) || fields.index > SPLIT_INDEX_MAX) return whole;
  const split = splitContainer(json);
  const bytes = split && bytesOfRows(fields, split);
  return split && bytes ? { ...row, split, bytes } : whole;
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
  for (const wanted of CONTAINER_TYPES) {
    const containers = items.filter(({ type }) => type === wanted);
    await insertEntries(transaction, wanted, containers.flatMap(entriesOf));
  }
  await insertHeartbeats(transaction, rows.filter(isHeartbeat));
}
