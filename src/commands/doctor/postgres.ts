/** Checks of `sluice doctor` for the postgres sink (docs/sinks.md). */
import { createLog } from '../../lib/log.ts';
import { withoutPassword } from '../../management/connections.ts';
import { asking, type Check } from '../../management/doctor/check.ts';
import { clock, milliseconds } from '../../management/doctor/checks.ts';
import { timesOf } from '../../management/doctor/questions.ts';
import { Database } from '../../sink/postgres/database.ts';
import { PARTITIONED, SCHEMA_VERSION, schemaVersion } from '../../sink/postgres/schema.ts';

const ROUND_TRIP_WARN_MS = 20;
/** Oldest version that is allowed. Since PostgreSQL 12, ATTACH PARTITION waits for no reader. */
const VERSION_MIN = 120_000;

const POSTGRES = `SELECT current_setting('server_version') AS version,
  current_setting('server_version_num')::int AS number, current_setting('server_encoding') AS encoding,
  pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS "readOnly", current_user AS role`;
type Postgres = { version: string; number: number; encoding: string; readOnly: boolean; role: string };

/** Tables whose rows the sink writes, reads and deletes. Into the other tables it only inserts. */
const KEPT = ['seen_frames', 'seen_items', 'tally'];
const WANTED_RIGHTS = [
  ...KEPT.flatMap((name) => ['SELECT', 'INSERT', 'UPDATE', 'DELETE'].map((right) => [name, right])),
  ...PARTITIONED.map((name) => [name, 'INSERT']),
  ['migrations', 'SELECT'],
];
/**
 * Query for rights that the sink needs and the role lacks. The sink attaches a partition for each
 * new day, so the role must own the tables.
 */
const MISSING_RIGHTS = `WITH namespace AS (SELECT to_regnamespace('sluice')::oid AS oid),
tables AS (
  SELECT pg_class.oid, relname, relowner FROM pg_class JOIN namespace ON relnamespace = namespace.oid)
SELECT 1 AS part, 'CREATE on the database' AS missing FROM namespace
WHERE oid IS NULL AND NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL SELECT 2, 'USAGE on the schema sluice' FROM namespace WHERE NOT has_schema_privilege(oid, 'USAGE')
UNION ALL SELECT 3, 'CREATE on the schema sluice' FROM namespace WHERE NOT has_schema_privilege(oid, 'CREATE')
UNION ALL SELECT 4, wanted.privilege || ' on sluice.' || relname
FROM unnest($1::text[], $2::text[]) AS wanted (name, privilege) JOIN tables ON relname = wanted.name
WHERE NOT has_table_privilege(oid, wanted.privilege)
UNION ALL SELECT 5, 'owner of sluice.' || relname FROM tables
WHERE relname = ANY($3::text[]) AND NOT pg_has_role(relowner, 'USAGE') ORDER BY part, missing`;
/** Rights without which the applied migrations cannot be read. */
const READING = ['USAGE on the schema sluice', 'SELECT on sluice.migrations'];

/** @throws UnavailableError when the database cannot be asked */
async function askPostgres(url: string) {
  const database = new Database(url, createLog('silent'));
  try {
    const [server] = await database.query<Postgres>(POSTGRES);
    if (!server) throw new Error('no answer');
    const [tables, rights] = [0, 1].map((at) => WANTED_RIGHTS.map((one) => one[at]));
    const rows = await database.query<{ missing: string }>(MISSING_RIGHTS, [tables, rights, PARTITIONED]);
    const missing = rows.map((row) => row.missing);
    const isReadable = !READING.some((right) => missing.includes(right));
    const times = await timesOf(async () => {
      const [row] = await database.query<{ ms: string }>(
        'SELECT extract(epoch FROM clock_timestamp()) * 1000 AS ms',
      );
      return Number(row?.ms);
    });
    const applied = isReadable ? await schemaVersion(database) : undefined;
    return { ...server, missing, applied, known: SCHEMA_VERSION, ...times };
  } finally {
    await database.close();
  }
}

export function postgres(url: string): Promise<Check[]> {
  const what = `postgres ${withoutPassword(url)}`;
  return asking({ what, fix: 'Start it, or correct SLUICE_SINK.' }, async () => {
    const server = await askPostgres(url);
    const { version, encoding, role, missing, applied, known, roundTripMs } = server;
    const pending = applied === undefined ? undefined : known - applied;
    return [
      {
        what,
        found: `reachable, version ${version}`,
        fail: server.number < VERSION_MIN && `version ${version}`,
        fix: 'Version 12 or newer is needed.',
      },
      {
        what: `${what} encoding`,
        found: encoding,
        fail: encoding !== 'UTF8',
        fix: "Make a database for the sink: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
      },
      {
        what: `${what} writes`,
        found: 'taken',
        fail: server.readOnly && 'read-only: a standby, or transactions that are by default',
        fix: 'Point SLUICE_SINK at the primary.',
      },
      {
        what: `${what} migrations`,
        found: `all ${known} applied`,
        fail: Number(pending) < 0 && `${applied} applied, ${known} known here`,
        warn: pending === undefined ? 'not readable' : pending > 0 && `${pending} of ${known} pending`,
        fix:
          pending === undefined
            ? 'Correct the rights.'
            : pending < 0
              ? 'Run the newer program.'
              : 'Nothing to do: the processor applies them when it starts.',
      },
      {
        what: `${what} rights`,
        found: `${role} may do all that the sink does`,
        fail: missing.length > 0 && `${role} lacks: ${missing.join(', ')}`,
        fix: 'Let the role own the schema sluice and its tables; it makes them with CREATE on the database.',
      },
      {
        what: `${what} round trip`,
        found: milliseconds(roundTripMs),
        warn: roundTripMs >= ROUND_TRIP_WARN_MS,
        fix: 'Bring it nearer: a batch takes about eight round trips.',
      },
      clock(`${what} clock`, server.aheadMs),
    ];
  });
}
