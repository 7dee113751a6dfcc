/** Reads rows of the postgres sink, for a load test that checks which items were stored. */
import { createLog } from '../../lib/log.ts';
import type { StoredReader } from '../sink.ts';
import { Database } from './database.ts';

type Row = { project_id: string; event_id: string; item_index: number; copies: string };

const ROWS_AT_ONCE = 10_000;
/**
 * Makes a query for containers of logs or spans. A container is one item and has a row for each
 * element, so its copies are those of its most frequent element.
 */
const elementsOf = (table: string, element: string): string => `
SELECT project_id, event_id, item_index, max(copies) AS copies FROM (
  SELECT project_id, event_id, item_index, count(*) AS copies FROM sluice.${table}
  WHERE received_at >= $1 GROUP BY project_id, event_id, item_index, ${element}
) AS elements GROUP BY project_id, event_id, item_index`;
const itemsOf = (table: string): string => `
SELECT project_id, event_id, item_index, count(*) AS copies FROM sluice.${table}
WHERE received_at >= $1 GROUP BY project_id, event_id, item_index`;
const STORED = [
  itemsOf('items'),
  itemsOf('extras'),
  elementsOf('logs', 'log_index'),
  elementsOf('spans', 'span_index'),
];

/** Opens a reader. Its methods throw UnavailableError when the database cannot be asked. */
export function readPostgresStored(url: string): StoredReader {
  const database = new Database(url, createLog('silent'));
  return {
    tally: async () => {
      const rows = await database.query<{ project_id: string; count: string }>(
        'SELECT project_id, sum(count) AS count FROM sluice.tally GROUP BY project_id',
      );
      return new Map(rows.map(({ project_id, count }) => [project_id, Number(count)]));
    },
    scan: (since, onItem) =>
      database.transaction(async (transaction) => {
        await transaction.query(
          `DECLARE stored NO SCROLL CURSOR FOR ${STORED.join('\nUNION ALL')}`.replaceAll(
            '$1',
            `'${since.toISOString()}'`,
          ),
        );
        for (;;) {
          const rows = await transaction.query<Row>(`FETCH ${ROWS_AT_ONCE} FROM stored`);
          for (const { project_id: projectId, event_id: eventId, item_index: index, copies } of rows)
            onItem({ projectId, eventId, index, copies: Number(copies) });
          if (rows.length < ROWS_AT_ONCE) return;
        }
      }),
    close: () => database.close(),
  };
}
