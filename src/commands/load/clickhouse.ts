/** Reader of the items that the clickhouse sink has stored. */
import { Server } from '../../sink/clickhouse/server.ts';
import type { TableName } from '../../sink/clickhouse/tables.ts';
import type { StoredReader } from '../../sink/sink.ts';

type Row = { project_id: string; event_id: string; item_index: number; copies: number | string };

const ITEM = 'project_id, event_id, item_index';
/**
 * Makes the query that counts the copies of each item. Rows with the same row key count as one
 * copy, because ClickHouse may not have merged these rows yet.
 */
const itemsOf = (table: TableName, element?: string): string => `
SELECT ${ITEM}, uniqExact(row_key) AS copies FROM $db.${table}
WHERE day >= toDate(fromUnixTimestamp64Milli({since:Int64}, 'UTC'))
  AND received_at >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')
GROUP BY ${ITEM}${element ? `, ${element}` : ''}`;
/**
 * Makes the query for logs or spans, whose containers have a row for each element. A container has
 * as many copies as that of its elements with the most copies.
 */
const elementsOf = (table: TableName, element: string): string =>
  `SELECT ${ITEM}, max(copies) AS copies FROM (${itemsOf(table, element)}) GROUP BY ${ITEM}`;
const STORED = [
  itemsOf('events'),
  itemsOf('transactions'),
  itemsOf('replays'),
  itemsOf('extras'),
  elementsOf('logs', 'log_index'),
  elementsOf('spans', 'span_index'),
];
/**
 * Largest difference that we expect between this machine's clock and Redis's clock. Redis's clock
 * decides the month in which a request counts.
 */
const CLOCKS_MS = 300_000;

/**
 * Makes the reader.
 * @throws SinkSettingError when the URL is wrong
 */
export function readClickHouseStored(url: string): StoredReader {
  const server = new Server(url);
  // Earlier months are not read: they no longer grow, and may be large.
  const month = new Date(Date.now() - CLOCKS_MS).toISOString().slice(0, 'YYYY-MM'.length);
  return {
    tally: async () => {
      const rows = await server.query<{ project_id: string; count: number | string }>(
        `SELECT project_id, uniqExact(row_key) AS count FROM $db.usage
WHERE month >= {month:String} GROUP BY project_id`,
        { month },
      );
      return new Map(rows.map(({ project_id, count }) => [project_id, Number(count)]));
    },
    scan: async (since, onItem) => {
      for (const statement of STORED)
        await server.each<Row>(
          statement,
          { since: since.getTime() },
          ({ project_id: projectId, event_id: eventId, item_index: index, copies }) =>
            onItem({ projectId, eventId, index, copies: Number(copies) }),
        );
    },
    close: () => server.close(),
  };
}
