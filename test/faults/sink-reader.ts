/** What stands in a sink, by event id: how often, for which project, and whether the payload is the one that was sent. */
import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import type { Stored } from './ledger.ts';
import { markOf } from './load.ts';

type Row = { project_id: string; event_id: string; payload: { message?: unknown } };

type Found = Stored & { eventId: string };
/** What each file has. */
export type SinkFiles = Map<string, readonly Found[]>;

const foundIn = ({ project_id, event_id, payload }: Row): Found => ({
  eventId: event_id,
  count: 1,
  projectId: project_id,
  payloadBytes: JSON.stringify(payload).length,
  marked: payload.message === markOf(event_id),
});

function byEventId(all: Iterable<Found>): Map<string, Stored> {
  const stored = new Map<string, Stored>();
  for (const { eventId, ...one } of all) {
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
