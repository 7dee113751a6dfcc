import { UnavailableError } from '../unavailable.ts';
import type { Origin, TableRows } from './rows.ts';
import { hex, storedRows } from './seen.ts';
import { RefusedError, type Server } from './server.ts';
import { type TableName, WRITTEN } from './tables.ts';

/** Number of a refused row, and the reason for the refusal. */
type Refused = { row: number; reason: string };
/** Numbers of rows, in order. */
type Rows = readonly number[];
type Insert = TableRows & { table: TableName; leftOut: ReadonlySet<number> };

/**
 * Number of parts into which rows are split when their insert is refused, and number of inserts
 * that run at the same time.
 */
const PARTS = 4;
/** A part of at most this many rows is split into single rows. */
const FEW = 8;

/**
 * Stores all rows except those in `leftOut`. When the store refuses some rows, the rows of each
 * project are inserted separately, so that no project waits for another's rows.
 *
 * When rows violate constraints, one more insert stores the others ({@link violatingRows}). When
 * the store refuses rows for another reason, they are inserted in ever smaller parts, until each
 * refused row is alone. A row that is inserted again has the same row key, and a merge keeps one.
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
  for (let parts = byProject(rows, insert.origins); parts.length > 0; ) {
    const smaller: Rows[] = [];
    const untried = each(parts);
    const tryNext = async (): Promise<void> => {
      for (const part of untried) {
        const refusal = await refusalOf(server, insert, part);
        if (!refusal) continue;
        const [row, another] = part;
        if (row !== undefined && another === undefined) {
          refused.push({ row, reason: refusal.message });
          continue;
        }
        const violating = await violatingRows(server, insert, { rows: part, refusal });
        if (violating) refused.push(...violating);
        else smaller.push(...partsOf(part));
      }
    };
    await Promise.all(Array.from({ length: PARTS }, tryNext));
    parts = smaller;
  }
  return refused.sort((one, other) => one.row - other.row);
}

/**
 * Stores the rows that violate no constraint. This takes a few statements, however many rows
 * violate one.
 *
 * The rows that the table then lacks are taken for the violating ones. But a replica that lags
 * behind may lack good rows, too, which must not become dead letters. So the store has to confirm
 * that each of these rows breaks a rule.
 * @param refusal why the store refuses some of the rows
 * @returns the rows that violate a constraint. Undefined, perhaps after storing some rows, when the
 * store does not name the rule, cannot apply it in an insert, or does not confirm
 * @throws UnavailableError
 */
async function violatingRows(
  server: Server,
  insert: Insert,
  { rows, refusal }: { rows: Rows; refusal: RefusedError },
): Promise<Refused[] | undefined> {
  const rules = new Map<string, string>();
  let holds = '';
  for (let next: RefusedError | undefined = refusal; next; ) {
    if (next.rule === undefined || rules.has(next.rule)) return undefined;
    rules.set(next.rule, next.message);
    holds = [...rules.keys()].map((rule) => `(${rule})`).join(' AND ');
    next = await refusalOf(server, insert, rows, holds);
  }
  const places = rows.flatMap((row) => placeOf(insert.origins[row]) ?? []);
  if (places.length < rows.length) return undefined;
  const stored = await storedRows(server, insert.table, places);
  const lacking = rows.filter((_, at) => !stored.has(places[at]?.rowKey ?? ''));
  // This insert stores nothing. It is refused if one of these rows breaks no rule.
  const breaksNone = `throwIf(ifNull(${holds}, 0))`;
  if (lacking.length > 0 && (await refusalOf(server, insert, lacking, breaksNone))) return undefined;
  const reason = [...new Set(rules.values())].join(', ');
  return lacking.map((row) => ({ row, reason }));
}

const placeOf = (origin: Origin | undefined): { rowKey: string; receivedAt: number } | undefined =>
  origin && { rowKey: hex(origin.rowKey), receivedAt: origin.receivedAt };

/** Yields the parts to several loops. When one loop throws, the parts end for all of them. */
function* each(parts: readonly Rows[]): Generator<Rows> {
  yield* parts;
}

/**
 * Inserts these rows; with `where`, only those for which this expression is true.
 * @returns why the store refuses some of them; undefined when the rows are stored
 */
async function refusalOf(
  server: Server,
  { table, buffer }: Insert,
  rows: Rows,
  where?: string,
): Promise<RefusedError | undefined> {
  try {
    await server.insert(table, bytesOf(buffer, rows), where);
    return undefined;
  } catch (error) {
    if (error instanceof RefusedError) return error;
    throw error;
  }
}

function byProject(rows: Rows, origins: readonly Origin[]): Rows[] {
  const projects = new Map<string, number[]>();
  for (const row of rows) {
    const projectId = origins[row]?.projectId ?? '';
    const own = projects.get(projectId) ?? [];
    projects.set(projectId, own);
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

function bytesOf(buffer: TableRows['buffer'], rows: Rows): Uint8Array[] {
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
