/** The sink as the isolation bench sees it: when each event of the other project became durable, and how much the sink takes. */
import { createReadStream, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';

export type SinkView = {
  /** Wall-clock ms at which each of these events was stored; what is not stored is absent. */
  storedAt(ids: readonly string[]): Promise<Map<string, number>>;
  bytes(): Promise<number>;
  close(): Promise<void>;
};

/** A file appears by a rename, which sets its change time. */
export function ndjsonView(dir: string): SinkView {
  const files = (): string[] =>
    readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ndjson'));
  const read = new Set<string>();
  return {
    async storedAt(ids) {
      const wanted = new Set(ids);
      const found = new Map<string, number>();
      for (const file of files().filter((name) => !read.has(name))) {
        read.add(file);
        const path = join(dir, file);
        const { ctimeMs } = statSync(path);
        // An id stands at the start of its line: the rest of a line may be a hundred megabytes.
        let tail = '';
        for await (const chunk of createReadStream(path, { encoding: 'latin1' })) {
          for (const [, id = ''] of (tail + chunk).matchAll(/"event_id":"([0-9a-f]{32})"/g))
            if (wanted.has(id)) found.set(id, ctimeMs);
          tail = chunk.slice(-64);
        }
      }
      return found;
    },
    bytes: async () => files().reduce((sum, file) => sum + statSync(join(dir, file)).size, 0),
    close: async () => undefined,
  };
}

/** The server must run with `track_commit_timestamp=on`. */
export async function postgresView(url: string): Promise<SinkView> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  type Row = { event_id: string; ms: string };
  return {
    async storedAt(ids) {
      const { rows } = await client.query<Row>(
        `SELECT event_id, extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000 AS ms
         FROM sluice.items WHERE event_id = ANY($1)`,
        [ids],
      );
      return new Map(rows.map(({ event_id, ms }) => [event_id, Number(ms)]));
    },
    async bytes() {
      const { rows } = await client.query<{ bytes: string }>(
        'SELECT pg_database_size(current_database()) AS bytes',
      );
      return Number(rows[0]?.bytes);
    },
    close: () => client.end(),
  };
}
