/** What stands in a sink, by event id: how often, for which project, and whether the payload is the one that was sent. */
import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { Server } from '../../src/sink/clickhouse/server.ts';
import { unpacked } from '../../src/sink/s3/archive.ts';
import type { TestS3 } from '../support/sinks/seaweedfs.ts';
import type { Stored } from './ledger.ts';
import { markOf } from './load.ts';

type Row = { project_id: string; event_id: string; payload: { message?: unknown }; row_key?: string };

/** `rowKey`: rows with the same are one, and a sink that is repeatable may have several of them. */
type Found = Stored & { eventId: string; rowKey?: string };
/** What each file, or object, has. */
export type SinkFiles = Map<string, readonly Found[]>;

const foundIn = ({ project_id, event_id, payload, row_key }: Row): Found => ({
  eventId: event_id,
  count: 1,
  projectId: project_id,
  payloadBytes: JSON.stringify(payload).length,
  marked: payload.message === markOf(event_id),
  ...(row_key !== undefined && { rowKey: row_key }),
});

function byEventId(all: Iterable<Found>): Map<string, Stored> {
  const stored = new Map<string, Stored>();
  for (const { eventId, rowKey: _, ...one } of all) {
    const before = stored.get(eventId);
    if (before) before.count++;
    else stored.set(eventId, one);
  }
  return stored;
}

async function readFile(path: string): Promise<Found[]> {
  const found: Found[] = [];
  for await (const line of createInterface({ input: createReadStream(path) }))
    found.push(foundIn(JSON.parse(line) as Row));
  return found;
}

/** @param known of files that were read before; gets the others */
export async function readNdjson(dir: string, known: SinkFiles): Promise<Map<string, Stored>> {
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ndjson')))
    if (!known.has(file)) known.set(file, await readFile(join(dir, file)));
  return byEventId([...known.values()].flat());
}

export async function readPostgres(url: string): Promise<Map<string, Stored>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ project_id: string; event_id: string; payload: string }>(
      'SELECT project_id, event_id, payload FROM sluice.items',
    );
    return byEventId(
      rows.map((row) => foundIn({ ...row, payload: JSON.parse(row.payload) as Row['payload'] })),
    );
  } finally {
    await client.end();
  }
}

type ClickHouseRow = { project_id: string; event_id: string; message: string; bytes: number | string };

/** With FINAL rows that a merge will make one are one. */
const inTable = (table: 'events' | 'transactions'): string => `
SELECT project_id, event_id, JSONExtractString(payload, 'message') AS message, length(payload) AS bytes
FROM $db.${table} FINAL`;

export async function readClickHouse(url: string): Promise<Map<string, Stored>> {
  const server = new Server(url);
  const found: Found[] = [];
  try {
    for (const table of ['events', 'transactions'] as const)
      await server.each<ClickHouseRow>(inTable(table), {}, ({ project_id, event_id, message, bytes }) =>
        found.push({
          eventId: event_id,
          count: 1,
          projectId: project_id,
          payloadBytes: Number(bytes),
          marked: message === markOf(event_id),
        }),
      );
  } finally {
    await server.close();
  }
  return byEventId(found);
}

const linesOf = (content: Buffer): Found[] =>
  content
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => foundIn(JSON.parse(line) as Row));

/** One line of each row key. @param known of objects that were read before; gets the others */
export async function readS3(server: TestS3, known: SinkFiles): Promise<Map<string, Stored>> {
  const byRowKey = new Map<string | undefined, Found>();
  for (const { key } of await server.list()) {
    if (!key.includes('.ndjson')) continue;
    const found = known.get(key) ?? linesOf(unpacked(key, await server.get(key)));
    known.set(key, found);
    for (const one of found) byRowKey.set(one.rowKey, one);
  }
  return byEventId(byRowKey.values());
}
