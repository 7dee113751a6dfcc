/** What stands in a sink of some projects, by event id: how often, for which project, and which mark the payload carries. */
import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { Server } from '../../src/sink/clickhouse/server.ts';
import { unpacked } from '../../src/sink/s3/archive.ts';
import type { TestS3 } from '../support/sinks/seaweedfs.ts';
import type { Stored } from './ledger.ts';
import { MARK } from './load.ts';

type Row = { project_id: string; event_id: string; payload: unknown; row_key?: string };
/** Of these the rows are read; an attacker's, of which there are many, are not. */
export type ProjectIds = ReadonlySet<string>;

/** `rowKey`: rows with the same are one, and a sink that is repeatable may have several of them. */
type Found = Stored & { eventId: string; rowKey?: string };
/** What each file, or object, has. */
export type SinkFiles = Map<string, readonly Found[]>;

const marks = new RegExp(MARK);
const markIn = (payload: string): string => marks.exec(payload)?.[0] ?? '';

/** @param payload as JSON */
const found = (projectId: string, eventId: string, payload: string, rowKey?: string): Found => ({
  eventId,
  count: 1,
  projectId,
  payloadBytes: payload.length,
  mark: markIn(payload),
  ...(rowKey !== undefined && { rowKey }),
});

/** Begins the line of a file of the sinks `ndjson` and `s3`: so a line of another project is not parsed. */
const OWNER = /"project_id":"([^"]*)"/;

/** @returns undefined for a row of another project */
function foundIn(line: string, projects: ProjectIds): Found | undefined {
  if (!projects.has(OWNER.exec(line.slice(0, 200))?.[1] ?? '')) return undefined;
  const { project_id, event_id, payload, row_key } = JSON.parse(line) as Row;
  return found(project_id, event_id, JSON.stringify(payload), row_key);
}

function byEventId(all: Iterable<Found>): Map<string, Stored> {
  const stored = new Map<string, Stored>();
  for (const { eventId, rowKey: _, ...one } of all) {
    const before = stored.get(eventId);
    if (before) before.count++;
    else stored.set(eventId, one);
  }
  return stored;
}

async function readFile(path: string, projects: ProjectIds): Promise<Found[]> {
  const all: Found[] = [];
  for await (const line of createInterface({ input: createReadStream(path) })) {
    const one = foundIn(line, projects);
    if (one) all.push(one);
  }
  return all;
}

/** @param known of files that were read before, for these projects or earlier ones; gets the others */
export async function readNdjson(
  dir: string,
  known: SinkFiles,
  projects: ProjectIds,
): Promise<Map<string, Stored>> {
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ndjson')))
    if (!known.has(file)) known.set(file, await readFile(join(dir, file), projects));
  return byEventId([...known.values()].flat());
}

export async function readPostgres(url: string, projects: ProjectIds): Promise<Map<string, Stored>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const all: Found[] = [];
    for (const table of ['items', 'spans', 'logs']) {
      const { rows } = await client.query<{ project_id: string; event_id: string; payload: string }>(
        `SELECT project_id, event_id, payload FROM sluice.${table} WHERE project_id = ANY($1)`,
        [[...projects]],
      );
      all.push(...rows.map((row) => found(row.project_id, row.event_id, row.payload)));
    }
    return byEventId(all);
  } finally {
    await client.end();
  }
}

type ClickHouseRow = { project_id: string; event_id: string; mark: string; bytes: number | string };

/** With FINAL rows that a merge will make one are one. */
const inTable = (table: string, projects: ProjectIds): string => `
SELECT project_id, event_id, extract(payload, '${MARK}') AS mark, length(payload) AS bytes
FROM $db.${table} FINAL WHERE project_id IN (${[...projects].map((id) => `'${id}'`).join(', ')})`;

export async function readClickHouse(url: string, projects: ProjectIds): Promise<Map<string, Stored>> {
  const server = new Server(url);
  const all: Found[] = [];
  try {
    for (const table of ['events', 'transactions', 'spans', 'logs'])
      await server.each<ClickHouseRow>(inTable(table, projects), {}, (row) =>
        all.push({
          eventId: row.event_id,
          count: 1,
          projectId: row.project_id,
          payloadBytes: Number(row.bytes),
          mark: row.mark,
        }),
      );
  } finally {
    await server.close();
  }
  return byEventId(all);
}

const linesOf = (content: Buffer, projects: ProjectIds): Found[] =>
  content
    .toString()
    .trimEnd()
    .split('\n')
    .flatMap((line) => foundIn(line, projects) ?? []);

/** One line of each row key. @param known of objects that were read before, for these projects or earlier ones; gets the others */
export async function readS3(
  server: TestS3,
  known: SinkFiles,
  projects: ProjectIds,
): Promise<Map<string, Stored>> {
  const byRowKey = new Map<string | undefined, Found>();
  for (const { key } of await server.list()) {
    if (!key.includes('.ndjson')) continue;
    const lines = known.get(key) ?? linesOf(unpacked(key, await server.get(key)), projects);
    known.set(key, lines);
    for (const one of lines) byRowKey.set(one.rowKey, one);
  }
  return byEventId(byRowKey.values());
}
