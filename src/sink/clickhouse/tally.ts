import type { TallyOfMonth } from '../tally.ts';
import { Server } from './server.ts';

/**
 * Reads how many accepted envelopes the sink counted for a project in a month, over all streams.
 * Rows with the same row key are the same envelope. Works while processors run.
 * @param month `YYYY-MM`
 * @throws UnavailableError when the server cannot be asked or no processor has ever written to it
 */
export async function readClickHouseTally(
  url: string,
  { projectId, month }: { projectId: string; month: string },
): Promise<TallyOfMonth> {
  const server = new Server(url);
  try {
    const [row] = await server.query<{ count: number | string; position: number | string }>(
      `SELECT uniqExact(row_key) AS count, max(position) AS position
FROM $db.usage WHERE project_id = {project:String} AND month = {month:String}`,
      { project: projectId, month },
    );
    return { count: Number(row?.count ?? 0), position: Number(row?.position ?? 0) };
  } finally {
    await server.close();
  }
}

/**
 * Reads how many accepted envelopes the sink counted for each project in a month.
 * @throws UnavailableError as {@link readClickHouseTally}
 */
export async function readClickHouseTallies(url: string, month: string): Promise<Map<string, number>> {
  const server = new Server(url);
  try {
    const rows = await server.query<{ project_id: string; count: number | string }>(
      `SELECT project_id, uniqExact(row_key) AS count
FROM $db.usage WHERE month = {month:String} GROUP BY project_id`,
      { month },
    );
    return new Map(rows.map((row) => [row.project_id, Number(row.count)]));
  } finally {
    await server.close();
  }
}
