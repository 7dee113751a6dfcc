import { UnavailableError } from '../unavailable.ts';
import type { RowBuffer } from './row-buffer.ts';
import { RefusedError, type Server } from './server.ts';
import { type TableName, WRITTEN } from './tables.ts';

/** A row by its number, and why. */
type Refused = { row: number; reason: string };
type Insert = { table: TableName; buffer: RowBuffer; leftOut: ReadonlySet<number> };

/**
 * Stores all rows but those that are left out. A refusal is about one row or a few: halves are
 * tried until each of these is alone. Rows that are stored meanwhile have their row keys: nothing
 * is stored twice for good.
 * @returns the rows that the store refuses
 * @throws UnavailableError, also when the table is not as the sink made it: then it refuses rows
 * that are good
 */
export async function insertRows(server: Server, insert: Insert): Promise<Refused[]> {
  const refused: Refused[] = [];
  const waiting = [{ from: 0, to: insert.buffer.rows }];
  for (let range = waiting.pop(); range; range = waiting.pop()) {
    const { from, to } = range;
    const rows = rowsOf(insert, range);
    if (rows.length === 0) continue;
    try {
      await server.insert(insert.table, rows);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      if (refused.length === 0) await checkTable(server, insert.table);
      const middle = (from + to) >>> 1;
      if (to - from > 1) waiting.push({ from: middle, to }, { from, to: middle });
      else refused.push({ row: from, reason: error.message });
    }
  }
  return refused;
}

function rowsOf({ buffer, leftOut }: Insert, { from, to }: { from: number; to: number }): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  let start = from;
  for (const row of [...leftOut].filter((one) => one >= from && one < to).sort((a, b) => a - b)) {
    if (row > start) pieces.push(...buffer.slice(start, row));
    start = row + 1;
  }
  if (start < to) pieces.push(...buffer.slice(start, to));
  return pieces;
}

/** @throws UnavailableError when a column is not of the type that the sink writes */
async function checkTable(server: Server, table: TableName): Promise<void> {
  const found = await server.query<{ name: string; type: string }>(
    `SELECT name, type FROM system.columns WHERE database = '${server.database}' AND table = '${table}'`,
  );
  const types = new Map(found.map(({ name, type }) => [name, type]));
  const wrong = WRITTEN[table].find(([name, type]) => types.get(name) !== type);
  if (!wrong) return;
  const [name, type] = wrong;
  throw new UnavailableError(
    `clickhouse: column ${name} of ${table} is ${types.get(name) ?? 'missing'}, and the sink made it ${type}`,
  );
}
