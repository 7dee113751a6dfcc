/** Questions that `sluice doctor` asks the sink's server. They change nothing. */
import { isTooOld, schemaVersion, serverVersion } from './migrate.ts';
import { SCHEMA_VERSION } from './schema.ts';
import { Server } from './server.ts';

type ClickHouseReport = {
  version: string;
  isTooOld: boolean;
  /** Number of applied migrations, and number of migrations that this program knows. */
  schemaVersion: number;
  schemaWanted: number;
  /** Whether the user's profile forbids writing. */
  readOnly: boolean;
  /** The disk with the smallest fraction of free space. `free` and `total` are in bytes. */
  disk: { name: string; free: number; total: number };
  /** Number of active parts in the partition that has most. Many mean that merges are slow. */
  parts: number;
  roundTripMs: number;
  /** Unix milliseconds by the server's clock, and by ours in the middle of the round trip. */
  clockMs: number;
  askedAtMs: number;
};

type Numbers<Names extends string> = Record<Names, number | string>;

async function inspectTime(
  server: Server,
): Promise<Pick<ClickHouseReport, 'roundTripMs' | 'clockMs' | 'askedAtMs'>> {
  const sentAt = performance.now();
  const [row] = await server.query<Numbers<'ms'>>('SELECT toUnixTimestamp64Milli(now64(3)) AS ms');
  const roundTripMs = performance.now() - sentAt;
  return { roundTripMs, clockMs: Number(row?.ms), askedAtMs: Date.now() - roundTripMs / 2 };
}

async function inspectDisk(server: Server): Promise<ClickHouseReport['disk']> {
  const [row] = await server.query<{ disk: string } & Numbers<'free' | 'total'>>(
    `SELECT name AS disk, unreserved_space AS free, total_space AS total FROM system.disks
ORDER BY unreserved_space / greatest(total_space, 1) LIMIT 1`,
  );
  return { name: row?.disk ?? '', free: Number(row?.free ?? 0), total: Number(row?.total ?? 0) };
}

async function partsOfFullest(server: Server): Promise<number> {
  const [row] = await server.query<Numbers<'parts'>>(
    `SELECT count() AS parts FROM system.parts WHERE active AND database = '${server.database}'
GROUP BY table, partition_id ORDER BY parts DESC LIMIT 1`,
  );
  return Number(row?.parts ?? 0);
}

/**
 * Asks the server everything for the report.
 * @throws UnavailableError when the server cannot be asked; SinkSettingError
 */
export async function inspectClickHouse(url: string): Promise<ClickHouseReport> {
  const server = new Server(url);
  try {
    const version = await serverVersion(server);
    const [setting] = await server.query<{ value: string }>(
      `SELECT value FROM system.settings WHERE name = 'readonly'`,
    );
    return {
      version,
      isTooOld: isTooOld(version),
      schemaVersion: await schemaVersion(server),
      schemaWanted: SCHEMA_VERSION,
      readOnly: setting?.value !== '0',
      disk: await inspectDisk(server),
      parts: await partsOfFullest(server),
      ...(await inspectTime(server)),
    };
  } finally {
    await server.close();
  }
}
