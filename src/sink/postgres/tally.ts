/**
 * The tally of the postgres sink: the number of accepted envelopes by project and month. It is
 * written in the transaction that stores the envelopes.
 */
import { createLog } from '../../lib/log.ts';
import { TALLY_MONTHS_MAX } from '../../limits.ts';
import type { Tally, TallyOfMonth } from '../tally.ts';
import { Database, type Transaction } from './database.ts';

/**
 * Adds a batch's counts. Each stream has its own rows, so streams do not wait for each other.
 * @throws UnavailableError
 */
export async function addToTally(transaction: Transaction, stream: string, tally: Tally): Promise<void> {
  const rows = Object.entries(tally.toCounts()).flatMap(([projectId, months]) =>
    Object.entries(months).map(([month, [count, position]]) => ({ projectId, month, count, position })),
  );
  if (rows.length === 0) return;
  rows.sort((a, b) => (`${a.projectId}\n${a.month}` < `${b.projectId}\n${b.month}` ? -1 : 1));
  await transaction.query(
    `INSERT INTO sluice.tally AS t (project_id, month, count, position, stream)
SELECT *, $5 FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (project_id, month, stream)
DO UPDATE SET count = t.count + excluded.count, position = greatest(t.position, excluded.position)`,
    [
      rows.map(({ projectId }) => projectId),
      rows.map(({ month }) => month),
      rows.map(({ count }) => count),
      rows.map(({ position }) => position),
      stream,
    ],
  );
}

/**
 * Removes all but the newest TALLY_MONTHS_MAX months, so that the table stays small.
 * @throws UnavailableError
 */
export async function forgetOldMonths(database: Database): Promise<void> {
  await database.query(
    `DELETE FROM sluice.tally
WHERE month NOT IN (SELECT DISTINCT month FROM sluice.tally ORDER BY month DESC LIMIT $1)`,
    [TALLY_MONTHS_MAX],
  );
}

/**
 * Reads how many envelopes the sink counted for a project in a month, over all streams. Works while
 * processors run.
 * @param month `YYYY-MM`
 * @throws UnavailableError when the database cannot be asked or no processor has ever written to it
 */
export async function readPostgresTally(
  url: string,
  { projectId, month }: { projectId: string; month: string },
): Promise<TallyOfMonth> {
  const database = new Database(url, createLog('silent'));
  try {
    const [row] = await database.query<{ count: string; position: string }>(
      `SELECT coalesce(sum(count), 0) AS count, coalesce(max(position), 0) AS position
FROM sluice.tally WHERE project_id = $1 AND month = $2`,
      [projectId, month],
    );
    return { count: Number(row?.count ?? 0), position: Number(row?.position ?? 0) };
  } finally {
    await database.close();
  }
}

/**
 * Reads how many envelopes the sink counted for each project in a month.
 * @throws UnavailableError as {@link readPostgresTally}
 */
export async function readPostgresTallies(url: string, month: string): Promise<Map<string, number>> {
  const database = new Database(url, createLog('silent'));
  try {
    const rows = await database.query<{ project_id: string; count: string }>(
      'SELECT project_id, sum(count) AS count FROM sluice.tally WHERE month = $1 GROUP BY project_id',
      [month],
    );
    return new Map(rows.map((row) => [row.project_id, Number(row.count)]));
  } finally {
    await database.close();
  }
}
