/** Records as rows: whole columns at a time, one statement for a table. */
import { isExtraType } from '../../lib/item-types.ts';
import { isSplit, type SentRecord, type SplitType } from '../containers.ts';
import type { HeartbeatFields, ItemFields, SinkRecord } from '../sink.ts';
import { numberArray, textArray } from './arrays.ts';
import type { Transaction } from './database.ts';
import type { Partitions } from './partitions.ts';
import { PARTITIONED, type PartitionedTable } from './schema.ts';

type Item = SentRecord & { fields: ItemFields };
/** A log or span of a container, or, without an index, a whole container. */
type Element = { item: Item; payload: Uint8Array; index?: number; rest?: Uint8Array };
type Heartbeat = SentRecord & { fields: HeartbeatFields };

/** Where the elements of containers go. */
const CONTAINERS = {
  log: { table: 'logs', index: 'log_index' },
  span: { table: 'spans', index: 'span_index' },
} as const;
const COMMON = 'project_id, event_id, item_index, received_at, sent_at, sdk, item_header';

/** The columns that items and logs have in common, as parameters 1 to 7. */
const commonColumns = (records: readonly Item[]): unknown[] => [
  textArray(records.map(({ fields }) => fields.envelope.projectId)),
  textArray(records.map(({ fields }) => fields.envelope.eventId)),
  numberArray(records.map(({ fields }) => fields.index)),
  numberArray(records.map(({ fields }) => fields.envelope.receivedAt)),
  numberArray(records.map(({ fields }) => fields.envelope.sentAt)),
  textArray(records.map(({ fields }) => fields.envelope.sdk)),
  textArray(records.map(({ fields }) => fields.header)),
];
const COMMON_ARRAYS =
  '$1::text[], $2::text[], $3::float8[], $4::float8[], $5::float8[], $6::text[], $7::text[]';
const COMMON_VALUES = 'p, e, i::int, to_timestamp(r / 1000), to_timestamp(s / 1000), sdk, h';

/** `payload` and `payload_base64`: one of them is NULL. */
const payloadColumns = (records: readonly Item[]): unknown[] => [
  textArray(records.map(({ fields, json }) => (fields.isBase64 ? undefined : json))),
  textArray(records.map(({ fields, json }) => (fields.isBase64 ? unquoted(json) : undefined))),
];

async function insertItems(transaction: Transaction, records: readonly Item[]): Promise<void> {
  if (records.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.items (${COMMON}, type, payload, payload_base64, payload_encoding)
SELECT ${COMMON_VALUES}, type, payload, base64, encoding
FROM unnest(${COMMON_ARRAYS}, $8::text[], $9::text[], $10::text[], $11::text[])
  AS t (p, e, i, r, s, sdk, h, type, payload, base64, encoding)`,
    [
      ...commonColumns(records),
      textArray(records.map(({ type }) => type)),
      ...payloadColumns(records),
      textArray(records.map(({ fields }) => fields.encoding)),
    ],
  );
}

async function insertExtras(transaction: Transaction, records: readonly Item[]): Promise<void> {
  if (records.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.extras (${COMMON}, type, payload, payload_base64)
SELECT ${COMMON_VALUES}, type, payload, base64
FROM unnest(${COMMON_ARRAYS}, $8::text[], $9::text[], $10::text[])
  AS t (p, e, i, r, s, sdk, h, type, payload, base64)`,
    [...commonColumns(records), textArray(records.map(({ type }) => type)), ...payloadColumns(records)],
  );
}

async function insertElements(
  transaction: Transaction,
  type: SplitType,
  elements: readonly Element[],
): Promise<void> {
  if (elements.length === 0) return;
  const { table, index } = CONTAINERS[type];
  await transaction.query(
    `INSERT INTO sluice.${table} (${COMMON}, ${index}, container, payload)
SELECT ${COMMON_VALUES}, n::int, container, payload
FROM unnest(${COMMON_ARRAYS}, $8::float8[], $9::text[], $10::text[])
  AS t (p, e, i, r, s, sdk, h, n, container, payload)`,
    [
      ...commonColumns(elements.map(({ item }) => item)),
      numberArray(elements.map((element) => element.index)),
      textArray(elements.map(({ rest }) => rest)),
      textArray(elements.map(({ payload }) => payload)),
    ],
  );
}

const unquoted = (json: Uint8Array): Uint8Array => json.subarray(1, -1);

async function insertHeartbeats(transaction: Transaction, records: readonly Heartbeat[]): Promise<void> {
  if (records.length === 0) return;
  await transaction.query(
    `INSERT INTO sluice.heartbeats (token, received_at, body, body_base64)
SELECT token, to_timestamp(r / 1000), body, body_base64
FROM unnest($1::text[], $2::float8[], $3::text[], $4::text[]) AS t (token, r, body, body_base64)`,
    [
      textArray(records.map(({ fields }) => fields.token)),
      numberArray(records.map(({ fields }) => fields.receivedAt)),
      textArray(records.map(({ fields, json }) => (fields.bodyIn === 'body' ? json : undefined))),
      textArray(
        records.map(({ fields, json }) => (fields.bodyIn === 'body_base64' ? unquoted(json) : undefined)),
      ),
    ],
  );
}

function elementsOf(item: Item): Element[] {
  if (!item.split) return [{ item, payload: item.json }];
  const { elements, rest } = item.split;
  return elements.map((payload, index) => ({ item, payload, index, ...(rest && { rest }) }));
}

const isHeartbeat = (record: SentRecord): record is Heartbeat => 'token' in record.fields;
const isItem = (record: SentRecord): record is Item => !isHeartbeat(record);

const tableOf = ({ type }: SinkRecord): PartitionedTable => {
  if (type === 'heartbeat') return 'heartbeats';
  if (isExtraType(type)) return 'extras';
  return isSplit(type) ? CONTAINERS[type].table : 'items';
};
const receivedAtOf = ({ fields }: SinkRecord): number =>
  'token' in fields ? fields.receivedAt : fields.envelope.receivedAt;

/** Makes the partitions that these records need. @throws UnavailableError */
export async function ensurePartitions(
  partitions: Partitions,
  records: readonly SinkRecord[],
): Promise<void> {
  for (const table of PARTITIONED)
    await partitions.ensure(table, records.filter((record) => tableOf(record) === table).map(receivedAtOf));
}

/**
 * Stores all records but those that the database refuses: halves are tried until each of these is
 * alone. A container is refused whole.
 * @returns the refused ones. @throws UnavailableError
 */
export async function insertAccepted<Sent extends SentRecord>(
  transaction: Transaction,
  records: readonly Sent[],
): Promise<{ record: Sent; reason: string }[]> {
  const refused: { record: Sent; reason: string }[] = [];
  const waiting = [records];
  for (let some = waiting.pop(); some; some = waiting.pop()) {
    const [record] = some;
    if (!record) continue;
    const tried = some;
    const refusal = await transaction.tryInsert(() => insertRecords(transaction, tried));
    if (!refusal) continue;
    const middle = some.length >>> 1;
    if (middle > 0) waiting.push(some.slice(middle), some.slice(0, middle));
    else refused.push({ record, reason: refusal.message });
  }
  return refused;
}

async function insertRecords(transaction: Transaction, records: readonly SentRecord[]): Promise<void> {
  const items = records.filter(isItem);
  await insertItems(
    transaction,
    items.filter((record) => tableOf(record) === 'items'),
  );
  await insertExtras(
    transaction,
    items.filter((record) => tableOf(record) === 'extras'),
  );
  for (const wanted of ['log', 'span'] as const) {
    const containers = items.filter(({ type }) => type === wanted);
    await insertElements(transaction, wanted, containers.flatMap(elementsOf));
  }
  await insertHeartbeats(transaction, records.filter(isHeartbeat));
}
