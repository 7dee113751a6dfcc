/**
 * The migrations. Statements repeat without harm: ClickHouse has no transaction around them, and
 * several processors may start together.
 *
 * A merge keeps one of the rows with the same sorting key, which ends with the row key. What is
 * asked often has a column of its own, which the database computes from the payload when a row
 * comes. The processor parses nothing. A value that is no text is shown as JSON, what cannot be
 * read leaves the column empty, and no payload is refused for it.
 */
import { TALLY_MONTHS_MAX } from '../../limits.ts';
import { type TableName, WRITTEN } from './tables.ts';

type Columns = Readonly<Record<string, readonly [type: string, from: string]>>;

/** A path into the payload as arguments of JSON functions: names, and places from 1 or from -1. */
const path = (...steps: readonly (string | number)[]): string =>
  ['payload', ...steps.map((step) => (typeof step === 'number' ? step : `'${step}'`))].join(', ');
const text = (...steps: readonly (string | number)[]): string => `JSONExtractString(${path(...steps)})`;
const first = (...texts: readonly string[]): string =>
  texts.reduceRight((rest, one) => `if(${one} != '', ${one}, ${rest})`);
/** A text, or a number as it is written. */
const scalar = (...steps: readonly string[]): string =>
  `trim(BOTH '"' FROM JSONExtractRaw(${path(...steps)}))`;

const MICROS = "DateTime64(6, 'UTC')";
/** Seconds between these are moments; the payload may hold any number. */
const SECONDS_MAX = 10_000_000_000;
/** RFC 3339, or Unix seconds. */
const moment = (name: string): string => `if(JSONType(${path(name)}) = 'String',
    parseDateTime64BestEffortOrNull(${text(name)}, 6, 'UTC'),
    if(JSONExtractFloat(${path(name)}) > 0 AND JSONExtractFloat(${path(name)}) < ${SECONDS_MAX},
      fromUnixTimestamp64Micro(toInt64(JSONExtractFloat(${path(name)}) * 1000000), 'UTC'), NULL))`;
const momentOr = (name: string, other: string): string => `ifNull(${moment(name)}, ${other})`;
const RECEIVED = "toDateTime64(received_at, 6, 'UTC')";
const millisecondsBetween = (from: string, to: string): string =>
  `(toUnixTimestamp64Micro(${to}) - toUnixTimestamp64Micro(${from})) / 1000`;
const attribute = (name: string): string => text('attributes', name, 'value');

/** Few values, as long as clients mean well: a word is cut, because it may be anything. */
const WORD = 'LowCardinality(String)';
const WORD_CHARACTERS_MAX = 200;
const common: Columns = {
  environment: [WORD, text('environment')],
  release: [WORD, text('release')],
  platform: [WORD, text('platform')],
  trace_id: ['String', text('contexts', 'trace', 'trace_id')],
  user_id: ['String', scalar('user', 'id')],
};

/** The outermost exception is the last of the list, which SDKs also send without its wrapper. */
const exception = (name: string): string =>
  first(text('exception', 'values', -1, name), text('exception', -1, name));

const TYPED: Partial<Record<TableName, Columns>> = {
  events: {
    timestamp: [MICROS, momentOr('timestamp', RECEIVED)],
    level: [WORD, first(text('level'), "'error'")],
    ...common,
    transaction: ['String', text('transaction')],
    message: ['String', first(text('logentry', 'formatted'), text('logentry', 'message'), text('message'))],
    exception_type: [WORD, exception('type')],
    exception_value: ['String', exception('value')],
  },
  transactions: {
    timestamp: [MICROS, momentOr('timestamp', RECEIVED)],
    start_timestamp: [MICROS, momentOr('start_timestamp', 'timestamp')],
    duration_ms: ['Float64', millisecondsBetween('start_timestamp', 'timestamp')],
    name: ['String', text('transaction')],
    op: [WORD, text('contexts', 'trace', 'op')],
    status: [WORD, text('contexts', 'trace', 'status')],
    span_id: ['String', text('contexts', 'trace', 'span_id')],
    ...common,
  },
  spans: {
    timestamp: [MICROS, momentOr('end_timestamp', RECEIVED)],
    start_timestamp: [MICROS, momentOr('start_timestamp', 'timestamp')],
    duration_ms: ['Float64', millisecondsBetween('start_timestamp', 'timestamp')],
    name: ['String', first(text('name'), text('description'))],
    op: [WORD, first(attribute('sentry.op'), text('op'))],
    status: [WORD, text('status')],
    trace_id: ['String', text('trace_id')],
    span_id: ['String', text('span_id')],
    parent_span_id: ['String', text('parent_span_id')],
    is_segment: ['Bool', `JSONExtractBool(${path('is_segment')})`],
    environment: [WORD, attribute('sentry.environment')],
    release: [WORD, attribute('sentry.release')],
    user_id: ['String', attribute('user.id')],
  },
  logs: {
    timestamp: [MICROS, momentOr('timestamp', RECEIVED)],
    level: [WORD, text('level')],
    body: ['String', text('body')],
    trace_id: ['String', text('trace_id')],
    environment: [WORD, attribute('sentry.environment')],
    release: [WORD, attribute('sentry.release')],
    user_id: ['String', attribute('user.id')],
  },
  replays: {
    timestamp: [MICROS, momentOr('timestamp', RECEIVED)],
    replay_id: ['String', first(text('replay_id'), 'event_id')],
    segment_id: ['UInt32', `toUInt32(JSONExtractUInt(${path('segment_id')}))`],
    environment: [WORD, text('environment')],
    release: [WORD, text('release')],
    platform: [WORD, text('platform')],
    user_id: ['String', scalar('user', 'id')],
  },
};

/** Columns that hold much are packed better than quickly. */
const PACKED: readonly string[] = ['payload', 'payload_base64', 'item_header', 'container', 'body'];

function columnsOf(table: TableName): string[] {
  const written = WRITTEN[table].map(([name, type]) =>
    PACKED.includes(name) ? `${name} ${type} CODEC(ZSTD(1))` : `${name} ${type}`,
  );
  const typed = Object.entries(TYPED[table] ?? {}).map(
    ([name, [type, from]]) =>
      `${name} ${type} DEFAULT ${type === WORD ? `leftUTF8(${from}, ${WORD_CHARACTERS_MAX})` : from}`,
  );
  return [...written, ...typed];
}

/** @param parts of the statement beside columns and indexes */
function createTable(table: TableName, indexed: readonly string[], ...parts: readonly string[]): string {
  const indexes = indexed.map((name) => `INDEX by_${name} ${name} TYPE bloom_filter(0.01) GRANULARITY 4`);
  const inside = [...columnsOf(table), ...indexes].map((line) => `  ${line}`).join(',\n');
  return `CREATE TABLE IF NOT EXISTS $db.${table} (\n${inside}\n) ${parts.join(' ')}`;
}

const byDay = (owner: string): string =>
  `ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (${owner}, day, received_at)
ORDER BY (${owner}, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1`;

/**
 * Statements from one version to the next; `$db` is the database. Never edit a released one, add
 * another.
 */
export const MIGRATIONS: readonly (readonly string[])[] = [
  [
    createTable('events', ['event_id', 'trace_id'], byDay('project_id')),
    createTable('transactions', ['event_id', 'trace_id'], byDay('project_id')),
    createTable('spans', ['trace_id'], byDay('project_id')),
    createTable('logs', ['trace_id'], byDay('project_id')),
    createTable('replays', ['replay_id'], byDay('project_id')),
    createTable('extras', ['event_id'], byDay('project_id')),
    createTable('heartbeats', [], byDay('token')),
    // One row for each accepted envelope that counted.
    `CREATE TABLE IF NOT EXISTS $db.usage (
  ${columnsOf('usage').join(',\n  ')},
  counted_at DateTime DEFAULT now()
) ENGINE = ReplacingMergeTree PARTITION BY month ORDER BY (project_id, month, row_key)
TTL counted_at + INTERVAL ${TALLY_MONTHS_MAX + 1} MONTH SETTINGS ttl_only_drop_parts = 1`,
    // Looked up by key with each batch: small granules read little beside what is asked for.
    `CREATE TABLE IF NOT EXISTS $db.seen_items (
  ${columnsOf('seen_items').join(',\n  ')},
  seen_at DateTime DEFAULT now()
) ENGINE = MergeTree PARTITION BY toStartOfHour(seen_at) ORDER BY key
TTL seen_at + INTERVAL 2 HOUR SETTINGS index_granularity = 256, ttl_only_drop_parts = 1`,
  ],
  [
    `ALTER TABLE $db.replays ADD COLUMN IF NOT EXISTS payload_base64 Nullable(String) CODEC(ZSTD(1)),
  ADD COLUMN IF NOT EXISTS payload_encoding LowCardinality(Nullable(String))`,
  ],
];

export const SCHEMA_VERSION = MIGRATIONS.length;
export const MIGRATIONS_TABLE = `CREATE TABLE IF NOT EXISTS $db.migrations (
  version UInt32, applied_at DateTime DEFAULT now()
) ENGINE = ReplacingMergeTree ORDER BY version`;
