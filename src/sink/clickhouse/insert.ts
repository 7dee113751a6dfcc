import { UnavailableError } from '../unavailable.ts';
import type { RowBuffer } from './row-buffer.ts';
import { RefusedError, type Server } from './server.ts';
import { type TableName, WRITTEN } from './tables.ts';

/** Number of a refused row, and the reason for the refusal. */
type Refused = { row: number; reason: string };
/** Numbers of rows, in order. */
type Rows = readonly number[];
type Insert = {
  table: TableName;
  buffer: RowBuffer;
  leftOut: ReadonlySet<number>;
  projectOf: (row: number) => string;
};

/**
 * Number of parts into which rows are split when their insert is refused, and number of inserts
 * that run at the same time.
 */
const PARTS = 4;
/** A part of at most this many rows is split into single rows. */
const FEW = 8;
/**
 * Rows after a refused row are inserted in two halves if there are more than this. So a further
 * refusal makes fewer bytes be sent again.
 */
const CHAIN = 64;

/**
 * Stores all rows except those in `leftOut`. When the store refuses some rows, the rows of each
 * project are inserted separately, so that no project waits for another's rows.
 *
 * When the store refuses rows of a project and names a refused row, that row is left out. The rows
 * before it are inserted together, and the rows after it separately. When the store names no row,
 * the rows are inserted in ever smaller parts until each refused row is alone. Rows that are
 * inserted again in this way have the same row keys, so none is stored twice for good.
 * @returns the rows that the store refuses
 * @throws UnavailableError, also when the table is not as the sink made it, because such a table
 * refuses good rows
 */
export async function insertRows(server: Server, insert: Insert): Promise<Refused[]> {
  const all = Array.from({ length: insert.buffer.rows }, (_, row) => row);
  const rows = all.filter((row) => !insert.leftOut.has(row));
  if (rows.length === 0 || !(await refusalOf(server, insert, rows))) return [];
  await checkTable(server, insert.table);
  const refused: Refused[] = [];
  for (let parts = byProject(rows, insert.projectOf); parts.length > 0; ) {
    const smaller: Rows[] = [];
    /** Rows that came before a refused row. They are inserted together in the next round. */
    const before: number[] = [];
    const untried = each(parts);
    const tryNext = async (): Promise<void> => {
      for (const part of untried) {
        const refusal = await refusalOf(server, insert, part);
        if (!refusal) continue;
        const at = part.length === 1 ? 0 : (refusal.row ?? part.length);
        const row = part[at];
        if (row === undefined) {
          smaller.push(...partsOf(part));
          continue;
        }
        refused.push({ row, reason: refusal.message });
        before.push(...part.slice(0, at));
        smaller.push(...halvesOf(part.slice(at + 1)));
      }
    };
    await Promise.all(Array.from({ length: PARTS }, tryNext));
    parts = [...byProject(inOrder(before), insert.projectOf), ...smaller];
  }
  return refused.sort((one, other) => one.row - other.row);
}

const inOrder = (rows: Rows): Rows => [...rows].sort((one, other) => one - other);

/** Yields the parts to several loops. When one loop throws, the parts end for all of them. */
function* each(parts: readonly Rows[]): Generator<Rows> {
  yield* parts;
}

/**
 * Inserts these rows.
 * @returns why the store refuses some of them; undefined when the rows are stored
 */
async function refusalOf(
  server: Server,
  { table, buffer }: Insert,
  rows: Rows,
): Promise<RefusedError | undefined> {
  try {
    await server.insert(table, bytesOf(buffer, rows));
    return undefined;
  } catch (error) {
    if (error instanceof RefusedError) return error;
    throw error;
  }
}

function byProject(rows: Rows, projectOf: Insert['projectOf']): Rows[] {
  const projects = new Map<string, number[]>();
  for (const row of rows) {
    const own = projects.get(projectOf(row)) ?? [];
    projects.set(projectOf(row), own);
    own.push(row);
  }
  return [...projects.values()];
}

function partsOf(rows: Rows): Rows[] {
  const size = rows.length <= FEW ? 1 : Math.ceil(rows.length / PARTS);
  return Array.from({ length: Math.ceil(rows.length / size) }, (_, part) =>
    rows.slice(part * size, (part + 1) * size),
  );
}

function halvesOf(rows: Rows): Rows[] {
  if (rows.length <= CHAIN) return rows.length === 0 ? [] : [rows];
  const middle = Math.ceil(rows.length / 2);
  return [rows.slice(0, middle), rows.slice(middle)];
}

function bytesOf(buffer: RowBuffer, rows: Rows): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < rows.length; ) {
    const from = rows[at] as number;
    let to = from;
    while (rows[at] === to) [at, to] = [at + 1, to + 1];
    pieces.push(...buffer.slice(from, to));
  }
  return pieces;
}

/**
 * Checks the table's columns.
 * @throws UnavailableError when a column is not of the type that the sink writes
 */
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
