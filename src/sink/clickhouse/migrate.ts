import { SinkSettingError } from '../unavailable.ts';
import { ADDITIONS, MIGRATIONS, SCHEMA_VERSION, VERSION_TABLES } from './schema.ts';
import type { Server } from './server.ts';
import { RETAINED } from './tables.ts';

/** The oldest ClickHouse that has everything that the sink and the client library need. */
const VERSION_MIN = [24, 8] as const;

export const isTooOld = (version: string): boolean => {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < VERSION_MIN[0] || (major === VERSION_MIN[0] && minor < VERSION_MIN[1]);
};
export const VERSION_WANTED = VERSION_MIN.join('.');

async function exists(server: Server, database: string): Promise<boolean> {
  const rows = await server.query(`SELECT 1 FROM system.databases WHERE name = '${database}'`);
  return rows.length > 0;
}

/**
 * Returns the version of the tables; 0 when there are none. Versions in the table `additions` that
 * this program does not know are left out.
 * @throws UnavailableError
 */
export async function schemaVersion(server: Server): Promise<number> {
  const tables = await server.query<{ name: keyof typeof VERSION_TABLES }>(
    `SELECT name FROM system.tables WHERE database = '${server.database}' AND name IN ('migrations', 'additions')`,
  );
  let found = 0;
  for (const { name } of tables) {
    const known = name === 'additions' ? `WHERE version <= ${SCHEMA_VERSION}` : '';
    // The result is not named `version`, because this alias would replace the column in WHERE.
    const [row] = await server.query<{ latest: number }>(
      `SELECT max(version) AS latest FROM $db.${name} ${known}`,
    );
    found = Math.max(found, row?.latest ?? 0);
  }
  return found;
}

/** @throws UnavailableError */
export async function serverVersion(server: Server): Promise<string> {
  const [row] = await server.query<{ version: string }>('SELECT version() AS version');
  return row?.version ?? '0';
}

/**
 * Brings the tables up to date. Several processors may do so at the same time without harm.
 * @throws SinkSettingError when waiting does not help, UnavailableError when it may
 */
export async function migrate(server: Server): Promise<void> {
  const release = await serverVersion(server);
  if (isTooOld(release))
    throw new SinkSettingError(
      `SLUICE_SINK: clickhouse has version ${release}, and the sink needs ${VERSION_WANTED} or later`,
    );
  const found = await schemaVersion(server);
  if (found > SCHEMA_VERSION)
    throw new SinkSettingError(
      `SLUICE_SINK: the database has version ${found} of the sink's tables, and this program knows ${SCHEMA_VERSION}: run the newer program`,
    );
  if (found === SCHEMA_VERSION) return;
  if (!(await exists(server, server.database))) await server.command('CREATE DATABASE IF NOT EXISTS $db');
  for (const statement of Object.values(VERSION_TABLES)) await server.command(statement);
  for (const [at, statements] of MIGRATIONS.entries()) {
    if (at < found) continue;
    for (const statement of statements) await server.command(statement);
    const table = ADDITIONS.has(at + 1) ? 'additions' : 'migrations';
    await server.command(`INSERT INTO $db.${table} (version) VALUES (${at + 1})`);
  }
}

/**
 * Returns the clause that removes rows this many days after the end of their UTC day. It counts
 * from the day's first moment, so it has one day more. Without `'UTC'`, ClickHouse would take the
 * day in the server's time zone. `toDate32` and `least` keep a late date from wrapping into the
 * past, which would remove the row at once.
 */
const timeToLive = (days: number): string =>
  `TTL toDateTime(least(toDate32(day) + toIntervalDay(${days + 1}), toDate32('2106-01-01')), 'UTC')`;

/**
 * Sets the retention: the rows of a day are removed this many days after the day's end.
 * @throws UnavailableError
 */
export async function setRetention(server: Server, days: number): Promise<void> {
  const names = RETAINED.map((table) => `'${table}'`).join(', ');
  const tables = await server.query<{ name: string; engine: string }>(
    `SELECT name, engine_full AS engine FROM system.tables WHERE database = '${server.database}' AND name IN (${names})`,
  );
  const ttl = timeToLive(days);
  for (const { name, engine } of tables)
    if (!engine.includes(`${ttl} `)) await server.command(`ALTER TABLE $db.${name} MODIFY ${ttl}`);
}
