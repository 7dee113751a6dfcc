/**
 * Questions of doctor's checks that take more than a line. No question changes anything that stays.
 */
import { mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { withRedis } from '../../ingest/limit/redis-client.ts';
import { createLog } from '../../lib/log.ts';
import { brokerNow } from '../../projects/bucket.ts';
import { Database } from '../../sink/postgres/database.ts';
import { PARTITIONED, SCHEMA_VERSION, schemaVersion } from '../../sink/postgres/schema.ts';
import type { NatsLink } from '../../stream/nats.ts';

/**
 * `roundTripMs` is the median of the round trips; `aheadMs` is how far another clock is ahead of
 * this machine's.
 */
type Times = { roundTripMs: number; aheadMs: number };

const ROUND_TRIPS = 21;

/**
 * Asks another clock for its time ROUND_TRIPS times. The quickest answer gives the most exact
 * difference between the clocks.
 * @param clockMs reads the other clock, Unix milliseconds
 */
async function timesOf(clockMs: () => Promise<number>): Promise<Times> {
  const trips: Times[] = [];
  for (let n = 0; n < ROUND_TRIPS; n++) {
    const sentAt = performance.now();
    const ms = await clockMs();
    const roundTripMs = performance.now() - sentAt;
    trips.push({ roundTripMs, aheadMs: ms - (Date.now() - roundTripMs / 2) });
  }
  trips.sort((a, b) => a.roundTripMs - b.roundTripMs);
  const [quickest, median] = [trips[0], trips[Math.floor(ROUND_TRIPS / 2)]] as [Times, Times];
  return { roundTripMs: median.roundTripMs, aheadMs: quickest.aheadMs };
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return undefined;
  }
}

/** Reads a number from a file; undefined when this system does not have the file. */
export function readNumber(file: string): number | undefined {
  const text = readText(file);
  return text === undefined ? undefined : Number(text);
}

/** Number of files that a process may have open; undefined when this system does not tell it. */
export function openFilesMax(): number | undefined {
  const soft = /^Max open files\s+(\S+)/m.exec(readText('/proc/self/limits') ?? '')?.[1];
  return soft === 'unlimited' ? Number.POSITIVE_INFINITY : soft ? Number(soft) : undefined;
}

/**
 * Tries whether a worker could write into the folder: makes a new folder in it and removes that.
 * @returns the free bytes of the volume
 * @throws when the folder cannot be written to
 */
export function freeBytes(folder: string): number {
  rmSync(mkdtempSync(join(folder, 'sluice-doctor-')), { recursive: true });
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/** Parameters for a connection to one server of Redis. */
export type RedisServer = Parameters<typeof withRedis>[0];

/** Asks a server of Redis. `info` of the result returns the value of an INFO field by its name. */
export const askRedis = (access: RedisServer) =>
  withRedis(access, async (client) => {
    const text = await client.info();
    const times = await timesOf(async () => {
      const [seconds, micros] = await client.time();
      return Number(seconds) * 1000 + Number(micros) / 1000;
    });
    const info = (name: string) => new RegExp(`^${name}:(.*)`, 'm').exec(text)?.[1] ?? 'unknown';
    return { info, ...times };
  });

/** Returns how many milliseconds NATS's clock is ahead of this machine's. */
export async function natsClockAheadMs(link: NatsLink): Promise<number> {
  const sentAt = Date.now();
  const nats = await brokerNow(link);
  return nats - (sentAt + Date.now()) / 2;
}

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
export async function askPostgres(url: string) {
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
