/**
 * The migrations. Every statement may be repeated without harm: ClickHouse puts no transaction
 * around them, and several processors may start together.
 *
 * A merge keeps one of the rows with the same sorting key, which ends with the row key. Values that
 * are often asked for have columns of their own. The processor fills these columns
 * (sink/columns.ts), because the database's JSON functions cannot read all JSON that we accept.
 */
import { TALLY_MONTHS_MAX } from '../../limits.ts';
import { COLUMNS, type TypedTable } from '../columns.ts';
import { type TableName, WRITTEN } from './tables.ts';

/** Large columns. They are compressed well rather than quickly. */
const PACKED: readonly string[] = ['payload', 'payload_base64', 'item_header', 'container', 'body'];

/** Default of `unread`: true for rows of an older program, which did not read payloads. */
const DEFAULTS: Readonly<Record<string, string>> = { unread: 'DEFAULT true' };

const columnsOf = (table: TableName): string[] =>
  WRITTEN[table].map(([name, type]) => {
    const [codec, value] = [PACKED.includes(name) ? ' CODEC(ZSTD(1))' : '', DEFAULTS[name]];
    return `${name} ${type}${value ? ` ${value}` : ''}${codec}`;
  });

/** Columns with an index, by which single items are looked up. */
const INDEXED: Partial<Record<TableName, readonly string[]>> = {
  events: ['event_id', 'trace_id'],
  transactions: ['event_id', 'trace_id'],
  spans: ['trace_id'],
  logs: ['trace_id'],
  replays: ['replay_id'],
  extras: ['event_id'],
};
const indexOn = (name: string): string => `by_${name} ${name} TYPE bloom_filter(0.01) GRANULARITY 4`;

/** @param parts of the statement after its columns and indexes */
function createTable(table: TableName, ...parts: readonly string[]): string {
  const indexes = (INDEXED[table] ?? []).map((name) => `INDEX ${indexOn(name)}`);
  const inside = [...columnsOf(table), ...indexes].map((line) => `  ${line}`).join(',\n');
  return `CREATE TABLE IF NOT EXISTS $db.${table} (\n${inside}\n) ${parts.join(' ')}`;
}

const byDay = (owner: string): string =>
  `ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (${owner}, day, received_at)
ORDER BY (${owner}, day, received_at, row_key) SETTINGS ttl_only_drop_parts = 1`;

/**
 * Returns the statements that update a table of an earlier program. In such a table the database
 * computed columns from the payload, and some values were wrong. Now the processor fills these
 * columns, so they become nullable and lose their default. Rows that exist keep their values and
 * are marked `unread`. The database converts these rows in the background, however many there are.
 * The indexes are dropped meanwhile, because an indexed column cannot be changed.
 */
const filledByProcessor = (table: TypedTable): string[] => {
  const names: readonly string[] = COLUMNS[table].map(({ name }) => name);
  const changed = WRITTEN[table].filter(([name]) => names.includes(name));
  const indexed = (INDEXED[table] ?? []).filter((name) => names.includes(name));
  const columns = changed.map(([name, type]) => `MODIFY COLUMN ${name} ${type} DEFAULT NULL`);
  return [
    ...indexed.map((name) => `ALTER TABLE $db.${table} DROP INDEX IF EXISTS by_${name}`),
    `ALTER TABLE $db.${table} ADD COLUMN IF NOT EXISTS unread Bool ${DEFAULTS.unread}`,
    `ALTER TABLE $db.${table} ${columns.join(', ')} SETTINGS alter_sync = 0`,
    ...indexed.map((name) => `ALTER TABLE $db.${table} ADD INDEX IF NOT EXISTS ${indexOn(name)}`),
  ];
};

const WITH_SERVICE = ['spans', 'logs'].map(
  (table) => `ALTER TABLE $db.${table} ADD COLUMN IF NOT EXISTS service LowCardinality(Nullable(String))`,
);

/**
 * Statements that lead from one version to the next; `$db` stands for the database. The first
 * version creates the tables as they are now. The other versions update tables that an earlier
 * program created. Never edit a released version: add another. One exception: the third version
 * changes all tables and columns that COLUMNS names today. So a table or column that a later
 * version adds must also be added at the head of the third version (IF NOT EXISTS).
 */
export const MIGRATIONS: readonly (readonly string[])[] = [
  [
    createTable('events', byDay('project_id')),
    createTable('transactions', byDay('project_id')),
    createTable('spans', byDay('project_id')),
    createTable('logs', byDay('project_id')),
    createTable('replays', byDay('project_id')),
    createTable('extras', byDay('project_id')),
    createTable('heartbeats', byDay('token')),
    // One row for each accepted envelope that counts.
    `CREATE TABLE IF NOT EXISTS $db.usage (
  ${columnsOf('usage').join(',\n  ')},
  counted_at DateTime DEFAULT now()
) ENGINE = ReplacingMergeTree PARTITION BY month ORDER BY (project_id, month, row_key)
TTL counted_at + INTERVAL ${TALLY_MONTHS_MAX + 1} MONTH SETTINGS ttl_only_drop_parts = 1`,
    // Each batch looks up keys here. Small granules keep such a look-up from reading many other
    // keys.
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
  [...WITH_SERVICE, ...(Object.keys(COLUMNS) as TypedTable[]).flatMap(filledByProcessor)],
  WITH_SERVICE,
];

export const SCHEMA_VERSION = MIGRATIONS.length;

/**
 * Versions that only add what an earlier program need not read or fill. They are recorded in the
 * table `additions`. An earlier program ignores versions there that it does not know, so an upgrade
 * can be undone.
 */
export const ADDITIONS: ReadonlySet<number> = new Set([2, 3, 4]);

const versionTable = (name: string): string => `CREATE TABLE IF NOT EXISTS $db.${name} (
  version UInt32, applied_at DateTime DEFAULT now()
) ENGINE = ReplacingMergeTree ORDER BY version`;

/** The tables that record which versions were applied. */
export const VERSION_TABLES = {
  migrations: versionTable('migrations'),
  additions: versionTable('additions'),
};
