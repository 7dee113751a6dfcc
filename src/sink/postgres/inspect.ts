/** What `sluice doctor` asks the sink's database; changes nothing. */
import { createLog } from '../../lib/log.ts';
import { Database } from './database.ts';
import { PARTITIONED, SCHEMA_VERSION, schemaVersion } from './schema.ts';

export type PostgresReport = {
  /** As the server says it, and as a number: 15.4 is 150004. */
  version: string;
  versionNumber: number;
  encoding: string;
  /** A standby, or a session that may not write. */
  readOnly: boolean;
  /**
   * The applied migrations (undefined when the role may not read them), and those that this program
   * knows.
   */
  schemaVersion?: number;
  schemaWanted: number;
  role: string;
  /** What the role cannot do that the sink will; empty when it may do everything. */
  missingRights: string[];
  /** Median of a few. */
  roundTripMs: number;
  /** Unix milliseconds, by the server and by us in the middle of the quickest round trip. */
  clockMs: number;
  askedAtMs: number;
};

const SERVER = `SELECT current_setting('server_version') AS version,
  current_setting('server_version_num')::int AS number, current_setting('server_encoding') AS encoding,
  pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS "readOnly", current_user AS role`;
type ServerRow = { version: string; number: number; encoding: string; readOnly: boolean; role: string };

const SCHEMA_RIGHTS = `SELECT has_database_privilege(current_database(), 'CREATE') AS "mayMake",
  oid IS NOT NULL AS "isMade",
  coalesce(has_schema_privilege(oid, 'USAGE'), false) AS "mayUse",
  coalesce(has_schema_privilege(oid, 'CREATE'), false) AS "mayCreate"
FROM (SELECT to_regnamespace('sluice')::oid AS oid) AS schema`;
type SchemaRights = { mayMake: boolean; isMade: boolean; mayUse: boolean; mayCreate: boolean };

/** The sink writes, reads and deletes rows of these tables; into the others it only inserts. */
const KEPT = ['seen_frames', 'seen_items', 'tally'];
/** Partitions of a new day are attached, which is an owner's right. */
const TABLE_RIGHTS = `WITH tables AS (SELECT oid, relname, relowner FROM pg_class WHERE relnamespace = 'sluice'::regnamespace)
SELECT wanted.privilege || ' on sluice.' || relname AS missing
FROM unnest($1::text[], $2::text[]) AS wanted (name, privilege) JOIN tables ON relname = wanted.name
WHERE NOT has_table_privilege(oid, wanted.privilege)
UNION ALL SELECT 'owner of sluice.' || relname FROM tables
WHERE relname = ANY($3::text[]) AND NOT pg_has_role(relowner, 'USAGE')`;

async function missingOnTables(database: Database): Promise<string[]> {
  const kept = KEPT.flatMap((name) => ['SELECT', 'INSERT', 'UPDATE', 'DELETE'].map((right) => [name, right]));
  const wanted = [...kept, ...PARTITIONED.map((name) => [name, 'INSERT']), ['migrations', 'SELECT']];
  const rows = await database.query<{ missing: string }>(TABLE_RIGHTS, [
    wanted.map(([name]) => name),
    wanted.map(([, right]) => right),
    PARTITIONED,
  ]);
  return rows.map(({ missing }) => missing).sort();
}

async function inspectSchema(
  database: Database,
): Promise<Pick<PostgresReport, 'schemaVersion' | 'missingRights'>> {
  const [rights] = await database.query<SchemaRights>(SCHEMA_RIGHTS);
  if (!rights?.isMade)
    return { schemaVersion: 0, missingRights: rights?.mayMake ? [] : ['CREATE on the database'] };
  const missingRights = await missingOnTables(database);
  if (!rights.mayCreate) missingRights.unshift('CREATE on the schema sluice');
  if (!rights.mayUse) missingRights.unshift('USAGE on the schema sluice');
  const isReadable = rights.mayUse && !missingRights.includes('SELECT on sluice.migrations');
  return { missingRights, ...(isReadable && { schemaVersion: await schemaVersion(database) }) };
}

const ROUND_TRIPS = 5;
type Trip = { ms: number; clockMs: number; askedAtMs: number };

async function inspectTime(
  database: Database,
): Promise<Pick<PostgresReport, 'roundTripMs' | 'clockMs' | 'askedAtMs'>> {
  const trips: Trip[] = [];
  for (let n = 0; n < ROUND_TRIPS; n++) {
    const sentAt = performance.now();
    const [clock] = await database.query<{ ms: string }>(
      'SELECT extract(epoch FROM clock_timestamp()) * 1000 AS ms',
    );
    const ms = performance.now() - sentAt;
    trips.push({ ms, clockMs: Number(clock?.ms), askedAtMs: Date.now() - ms / 2 });
  }
  const [quickest, , median] = trips.sort((a, b) => a.ms - b.ms) as [Trip, Trip, Trip];
  return { roundTripMs: median.ms, clockMs: quickest.clockMs, askedAtMs: quickest.askedAtMs };
}

/** @throws UnavailableError when the database cannot be asked */
export async function inspectPostgres(url: string): Promise<PostgresReport> {
  const database = new Database(url, createLog('silent'));
  try {
    const [server] = await database.query<ServerRow>(SERVER);
    if (!server) throw new Error('no answer');
    return {
      version: server.version,
      versionNumber: server.number,
      encoding: server.encoding,
      readOnly: server.readOnly,
      schemaWanted: SCHEMA_VERSION,
      role: server.role,
      ...(await inspectSchema(database)),
      ...(await inspectTime(database)),
    };
  } finally {
    await database.close();
  }
}
