/**
 * Finds the records of an archive that the tables have already, because a processor or an earlier
 * backfill stored them. Rows in PostgreSQL have no row key, so their content is compared.
 */
import { hash } from 'node:crypto';
import { isExtraType } from '../../lib/item-types.ts';
import { isSplit, type SentRecord } from '../containers.ts';
import type { HeartbeatFields, ItemFields } from '../sink.ts';
import { keyArray, numberArray, textArray } from './arrays.ts';
import type { Transaction } from './database.ts';

type Question = { sql: string; values: unknown[] };

/** Returns the hash of the record's value as the table holds it. */
function digest({ fields, json }: SentRecord): Buffer {
  const isQuoted = 'token' in fields ? fields.bodyIn === 'body_base64' : fields.isBase64;
  const isNothing = 'token' in fields && fields.bodyIn === undefined;
  const value = isQuoted ? json.subarray(1, -1) : json;
  return Buffer.from(hash('sha256', isNothing ? '' : value, 'hex'), 'hex');
}

const numbered = (from: string, where: string, names: string): string =>
  `SELECT n::int - 1 AS place FROM unnest(${from}) WITH ORDINALITY AS t (${names}, n) WHERE EXISTS (${where})`;

const digestsOf = (records: readonly SentRecord[]): Buffer => keyArray(records.map(digest));
const fieldsOf = ({ fields }: SentRecord): ItemFields => fields as ItemFields;

function heartbeats(records: readonly SentRecord[]): Question {
  const fields = records.map((record) => record.fields as HeartbeatFields);
  return {
    sql: numbered(
      '$1::text[], $2::float8[], $3::bytea[]',
      `SELECT FROM sluice.heartbeats h WHERE h.token = t.token AND h.received_at = to_timestamp(r / 1000)
AND sha256(convert_to(coalesce(h.body, h.body_base64, ''), 'UTF8')) = d`,
      'token, r, d',
    ),
    values: [
      textArray(fields.map(({ token }) => token)),
      numberArray(fields.map(({ receivedAt }) => receivedAt)),
      digestsOf(records),
    ],
  };
}

const PLACE =
  's.project_id = p AND s.received_at = to_timestamp(r / 1000) AND s.event_id = e AND s.item_index = i';
const placeOf = (records: readonly SentRecord[]): unknown[] => [
  textArray(records.map((record) => fieldsOf(record).envelope.projectId)),
  numberArray(records.map((record) => fieldsOf(record).envelope.receivedAt)),
  textArray(records.map((record) => fieldsOf(record).envelope.eventId)),
  numberArray(records.map((record) => fieldsOf(record).index)),
];
const PLACE_ARRAYS = '$1::text[], $2::float8[], $3::text[], $4::float8[]';

/**
 * Asks which records have a row in the table. Payloads are compared, too: the segments of a replay
 * share an event id, and two may come in the same millisecond.
 */
const whole = (table: 'items' | 'extras', records: readonly SentRecord[]): Question => ({
  sql: numbered(
    `${PLACE_ARRAYS}, $5::text[], $6::bytea[]`,
    `SELECT FROM sluice.${table} s WHERE ${PLACE} AND s.type = t.type
AND sha256(convert_to(coalesce(s.payload, s.payload_base64), 'UTF8')) = d`,
    'p, r, e, i, type, d',
  ),
  values: [...placeOf(records), textArray(records.map(({ type }) => type)), digestsOf(records)],
});

/**
 * Asks which containers (items of many logs or spans) have rows in the table. One row proves that
 * the container was stored: a row that is missing was refused, and is a dead letter.
 */
const container = (table: 'logs' | 'spans', records: readonly SentRecord[]): Question => ({
  sql: numbered(PLACE_ARRAYS, `SELECT FROM sluice.${table} s WHERE ${PLACE}`, 'p, r, e, i'),
  values: placeOf(records),
});

function question(table: string, records: readonly SentRecord[]): Question {
  if (table === 'heartbeats') return heartbeats(records);
  return table === 'logs' || table === 'spans'
    ? container(table, records)
    : whole(table === 'extras' ? 'extras' : 'items', records);
}

function tableOf({ type }: SentRecord): string {
  if (type === 'heartbeat') return 'heartbeats';
  if (isSplit(type)) return type === 'log' ? 'logs' : 'spans';
  return isExtraType(type) ? 'extras' : 'items';
}

/**
 * Returns the records, except those that come from an archive and that the tables have already.
 * @throws UnavailableError
 */
export async function withoutStored<Sent extends SentRecord>(
  transaction: Transaction,
  records: readonly Sent[],
): Promise<readonly Sent[]> {
  const asked = new Map<string, Sent[]>();
  for (const record of records) {
    if (!record.rowKey) continue;
    const ofTable = asked.get(tableOf(record)) ?? [];
    ofTable.push(record);
    asked.set(tableOf(record), ofTable);
  }
  if (asked.size === 0) return records;
  const stored = new Set<Sent>();
  for (const [table, some] of asked) {
    const { sql, values } = question(table, some);
    for (const { place } of await transaction.query<{ place: number }>(sql, values))
      stored.add(some[place] as Sent);
  }
  return records.filter((record) => !stored.has(record));
}
