/** The database's schema and its migrations. */
import { SinkSettingError, UnavailableError } from '../unavailable.ts';
import { codeOf, type Database, LIMIT_LOCK_WAITS, type Transaction } from './database.ts';

/** Thrown when the sink cannot use the database and waiting does not help. */
export class SchemaError extends SinkSettingError {
  override name = 'SchemaError';
}

/** Tables with a partition for each UTC day of received_at. */
export const PARTITIONED = ['items', 'logs', 'spans', 'extras', 'heartbeats'] as const;
export type PartitionedTable = (typeof PARTITIONED)[number];

/**
 * All rows before DAILY_FROM share one partition, and all rows from DAILY_UNTIL on share another.
 * So wrong clocks cannot make endless partitions.
 */
export const DAILY_FROM = Date.UTC(2020, 0, 1);
export const DAILY_UNTIL = Date.UTC(2100, 0, 1);

const edgePartitions = (tables: readonly PartitionedTable[]): string =>
  tables
    .map(
      (table) => `
CREATE TABLE sluice.${table}_before_2020 PARTITION OF sluice.${table}
  FOR VALUES FROM (MINVALUE) TO ('2020-01-01T00:00:00Z');
CREATE TABLE sluice.${table}_from_2100 PARTITION OF sluice.${table}
  FOR VALUES FROM ('2100-01-01T00:00:00Z') TO (MAXVALUE);`,
    )
    .join('');

const COMMON = {
  project_id: 'text',
  event_id: 'text',
  item_index: 'integer',
  received_at: 'timestamptz',
  sent_at: 'timestamptz',
  sdk: 'text',
  item_header: 'text',
} as const;
type Columns = Readonly<Record<string, 'text' | 'integer' | 'timestamptz'>>;

/** The columns that the sink writes. After a change, create the `try_` functions again. */
export const WRITTEN: Readonly<Record<PartitionedTable, Columns>> = {
  items: { ...COMMON, type: 'text', payload: 'text', payload_base64: 'text', payload_encoding: 'text' },
  logs: { ...COMMON, log_index: 'integer', container: 'text', payload: 'text' },
  spans: { ...COMMON, span_index: 'integer', container: 'text', payload: 'text' },
  extras: { ...COMMON, type: 'text', payload: 'text', payload_base64: 'text' },
  heartbeats: { token: 'text', received_at: 'timestamptz', body: 'text', body_base64: 'text' },
};

/**
 * Returns SQL for a function that stores one row. When the database refuses the row, the function
 * returns the error's code, with the name of the constraint or column, and changes nothing. An
 * integrity error without such a name means that the day's partition is missing; the function
 * raises this error.
 */
function tryFunction(table: PartitionedTable): string {
  const columns = Object.entries(WRITTEN[table]);
  return `
CREATE OR REPLACE FUNCTION sluice.try_${table}(${columns.map(([, type]) => type).join(', ')})
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  of_constraint text;
  of_column text;
BEGIN
  INSERT INTO sluice.${table} (${columns.map(([name]) => name).join(', ')})
  VALUES (${columns.map((_, n) => `$${n + 1}`).join(', ')});
  RETURN NULL;
EXCEPTION WHEN data_exception OR program_limit_exceeded OR integrity_constraint_violation THEN
  GET STACKED DIAGNOSTICS of_constraint = CONSTRAINT_NAME, of_column = COLUMN_NAME;
  of_constraint := coalesce(nullif(of_constraint, ''), nullif(of_column, ''));
  IF of_constraint IS NULL AND SQLSTATE LIKE '23%' THEN
    RAISE;
  END IF;
  RETURN SQLSTATE || coalesce(' of ' || of_constraint, '');
END $$;`;
}

/**
 * Statements that lead from one version of the schema to the next; the first ones make version 1.
 * Never edit released statements: add others.
 *
 * JSON is kept as it was sent, in columns of type text. jsonb refuses \u0000, and loses the order
 * of names, repeated names and spelling. Both json types refuse values that are nested some
 * thousand levels deep. A reader can use `payload::jsonb`.
 */
const MIGRATIONS: readonly string[] = [
  `
CREATE TABLE sluice.items (
  project_id text NOT NULL,
  event_id text NOT NULL,
  item_index integer NOT NULL,
  type text NOT NULL,
  received_at timestamptz NOT NULL,
  sent_at timestamptz,
  sdk text,
  item_header text NOT NULL,
  payload text NOT NULL
) PARTITION BY RANGE (received_at);
CREATE INDEX ON sluice.items (project_id, received_at);
CREATE INDEX ON sluice.items (event_id);

CREATE TABLE sluice.logs (
  project_id text NOT NULL,
  event_id text NOT NULL,
  item_index integer NOT NULL,
  log_index integer,
  received_at timestamptz NOT NULL,
  sent_at timestamptz,
  sdk text,
  item_header text NOT NULL,
  container text,
  payload text NOT NULL
) PARTITION BY RANGE (received_at);
CREATE INDEX ON sluice.logs (project_id, received_at);
COMMENT ON COLUMN sluice.logs.log_index IS 'Place in its container; NULL when payload is a whole container';
COMMENT ON COLUMN sluice.logs.container IS 'What else its container said, as JSON; NULL when nothing';

CREATE TABLE sluice.heartbeats (
  token text NOT NULL,
  received_at timestamptz NOT NULL,
  body text
) PARTITION BY RANGE (received_at);
CREATE INDEX ON sluice.heartbeats (token, received_at);
COMMENT ON COLUMN sluice.heartbeats.body IS 'A JSON string';
${edgePartitions(['items', 'logs', 'heartbeats'])}

CREATE TABLE sluice.seen_frames (
  key bytea PRIMARY KEY,
  entries integer NOT NULL,
  stored_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON sluice.seen_frames (stored_at);
COMMENT ON COLUMN sluice.seen_frames.entries IS 'Entries of the frame that are stored, from its first';

CREATE TABLE sluice.seen_items (
  key bytea PRIMARY KEY,
  stream text NOT NULL,
  received_at bigint NOT NULL
);
CREATE INDEX ON sluice.seen_items (stream, received_at);
COMMENT ON COLUMN sluice.seen_items.received_at IS 'Unix milliseconds';

CREATE TABLE sluice.tally (
  project_id text NOT NULL,
  month text NOT NULL,
  stream text NOT NULL,
  count bigint NOT NULL,
  position bigint NOT NULL,
  PRIMARY KEY (project_id, month, stream)
);
`,
  `
CREATE TABLE sluice.spans (
  project_id text NOT NULL,
  event_id text NOT NULL,
  item_index integer NOT NULL,
  span_index integer,
  received_at timestamptz NOT NULL,
  sent_at timestamptz,
  sdk text,
  item_header text NOT NULL,
  container text,
  payload text NOT NULL
) PARTITION BY RANGE (received_at);
CREATE INDEX ON sluice.spans (project_id, received_at);
COMMENT ON COLUMN sluice.spans.span_index IS 'Place in its container; NULL when payload is a whole container';
COMMENT ON COLUMN sluice.spans.container IS 'What else its container said, as JSON; NULL when nothing';
${edgePartitions(['spans'])}
`,
  `
CREATE TABLE sluice.extras (
  project_id text NOT NULL,
  event_id text NOT NULL,
  item_index integer NOT NULL,
  type text NOT NULL,
  received_at timestamptz NOT NULL,
  sent_at timestamptz,
  sdk text,
  item_header text NOT NULL,
  payload text,
  payload_base64 text
) PARTITION BY RANGE (received_at);
CREATE INDEX ON sluice.extras (project_id, received_at);
CREATE INDEX ON sluice.extras (event_id);
COMMENT ON COLUMN sluice.extras.payload_base64 IS 'The payload when it is no JSON, and of files always';
${edgePartitions(['extras'])}
`,
  `
ALTER TABLE sluice.heartbeats ADD COLUMN body_base64 text;
COMMENT ON COLUMN sluice.heartbeats.body_base64 IS 'A body that is no UTF-8; body is NULL then';
`,
  `
ALTER TABLE sluice.items ALTER COLUMN payload DROP NOT NULL,
  ADD COLUMN IF NOT EXISTS payload_base64 text, ADD COLUMN IF NOT EXISTS payload_encoding text;
COMMENT ON COLUMN sluice.items.payload_base64 IS 'A recording as it came, packed; payload is NULL then';
COMMENT ON COLUMN sluice.items.payload_encoding IS 'How it is packed behind its first line: gzip or deflate';
`,
  PARTITIONED.map(tryFunction).join(''),
];

/** Columns that were added later. A partition that was detached before that lacks them. */
export const ADDED_COLUMNS: Partial<Record<PartitionedTable, string>> = {
  heartbeats: 'body_base64 text',
  items:
    'payload_base64 text, ADD COLUMN IF NOT EXISTS payload_encoding text, ALTER COLUMN payload DROP NOT NULL',
};

export const SCHEMA_VERSION = MIGRATIONS.length;

/**
 * Versions that only add what an earlier program need not read or fill. Such a version is recorded
 * as a negative number. An earlier program ignores negative numbers that it does not know, so an
 * upgrade can be undone.
 */
const ADDITIONS: ReadonlySet<number> = new Set([2, 3, 4, 5, 6]);

/**
 * Looks for the table of versions in the catalogue. `to_regclass` would not do: a session that did
 * not find a name never finds it, even if another processor has made the schema since.
 */
const FIND_MIGRATIONS = `SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'sluice' AND c.relname = 'migrations'`;

/**
 * Returns the version of the schema. Additions that this program does not know are left out.
 * @throws UnavailableError
 */
export async function schemaVersion(on: Database | Transaction): Promise<number> {
  if ((await on.query(FIND_MIGRATIONS)).length === 0) return 0;
  const [row] = await on.query<{ version: number }>(
    `SELECT coalesce(max(abs(version)), 0) AS version FROM sluice.migrations
WHERE version >= ${-SCHEMA_VERSION}`,
  );
  return row?.version ?? 0;
}

function refuseNewer(version: number): void {
  if (version > MIGRATIONS.length)
    throw new SchemaError(
      `the database has version ${version} of the sink's schema, ` +
        `and this program knows ${MIGRATIONS.length}: run the newer program`,
    );
}

/**
 * Creates the schema and the list of its versions. An existing schema is not created again, because
 * the database role may lack the right to create schemas.
 */
async function makeSchema(transaction: Transaction): Promise<void> {
  const found = await transaction.query(`SELECT 1 FROM pg_namespace WHERE nspname = 'sluice'`);
  if (found.length === 0) await transaction.query('CREATE SCHEMA sluice');
  await transaction.query(
    `CREATE TABLE sluice.migrations
  (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`,
  );
}

/** Error code of the server when a lock was not free in time. */
const LOCKED = '55P03';

/**
 * Brings the schema up to date. Only one processor does so at a time: it holds a lock of the
 * database that ends with the transaction. While a report reads a table that must change, the
 * migration gives up, so that nobody waits behind it.
 * @throws SchemaError when waiting does not help, UnavailableError when it may
 */
export async function migrate(database: Database): Promise<void> {
  const [encoding] = await database.query<{ server_encoding: string }>('SHOW server_encoding');
  if (encoding?.server_encoding !== 'UTF8')
    throw new SchemaError(
      `the database's encoding is ${encoding?.server_encoding}; the sink needs UTF8 to lose nothing`,
    );
  const found = await schemaVersion(database);
  refuseNewer(found);
  if (found === MIGRATIONS.length) return;
  try {
    await database.transaction(applyMissing);
  } catch (error) {
    if (codeOf((error as Error).cause) !== LOCKED) throw error;
    const reason =
      'postgres: the schema waits to be brought up to date, since a long transaction uses a table';
    throw new UnavailableError(reason, { cause: error });
  }
}

async function applyMissing(transaction: Transaction): Promise<void> {
  await transaction.query(`SELECT pg_advisory_xact_lock(hashtext('sluice schema'))`);
  await transaction.query(LIMIT_LOCK_WAITS);
  const version = await schemaVersion(transaction);
  refuseNewer(version);
  if (version === 0) await makeSchema(transaction);
  for (const [at, statements] of MIGRATIONS.entries()) {
    if (at < version) continue;
    await transaction.query(statements);
    const recorded = ADDITIONS.has(at + 1) ? -(at + 1) : at + 1;
    await transaction.query(`INSERT INTO sluice.migrations (version) VALUES (${recorded})`);
  }
}
