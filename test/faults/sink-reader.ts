/** What stands in a sink, by event id: how often, for which project, and whether the payload is the one that was sent. */
import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import type { Stored } from './ledger.ts';
import { markOf } from './load.ts';

type Row = { project_id: string; event_id: string; payload: { message?: unknown } };

function add(found: Map<string, Stored>, { project_id, event_id, payload }: Row): void {
  const before = found.get(event_id);
  if (before) {
    before.count++;
    return;
  }
  found.set(event_id, {
    count: 1,
    projectId: project_id,
    payloadBytes: JSON.stringify(payload).length,
    marked: payload.message === markOf(event_id),
  });
}

export async function readNdjson(dir: string): Promise<Map<string, Stored>> {
  const found = new Map<string, Stored>();
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ndjson')))
    for await (const line of createInterface({ input: createReadStream(join(dir, file)) }))
      add(found, JSON.parse(line) as Row);
  return found;
}

export async function readPostgres(url: string): Promise<Map<string, Stored>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ project_id: string; event_id: string; payload: string }>(
      'SELECT project_id, event_id, payload FROM sluice.items',
    );
    const found = new Map<string, Stored>();
    for (const row of rows) add(found, { ...row, payload: JSON.parse(row.payload) as Row['payload'] });
    return found;
  } finally {
    await client.end();
  }
}
