/**
 * The table `seen_items`: items that clients may send again, and the times when they were received.
 * It forgets an item after two hours.
 *
 * An item is noted here before its row is stored. If the process ends between the two, the frame
 * comes again and finds its own row key in the note. So its item is stored, and not taken for a
 * resend of itself. Two processors that get an item and its resend at the same moment may both
 * store it.
 *
 * Some noted items are never stored: the server refused the row, or the frame was set aside after
 * the item was noted. Such an item is a dead letter, and a replay brings it back in another frame
 * with another row key. So for a replayed item, a note counts only if the tables have the noted
 * row.
 */
import { RESEND_WINDOW_MS } from '../../limits.ts';
import { RowBuffer } from './row-buffer.ts';
import { dayOf, type ResendClaim } from './rows.ts';
import type { Server } from './server.ts';
import type { TableName } from './tables.ts';

/**
 * Keys that one query asks for, at most. A key takes 45 bytes of the query, and the server reads
 * queries of up to 256 KiB.
 */
const KEYS_PER_QUERY_MAX = 4_000;
/** Rows that one query looks for, at most. Each takes 110 bytes of the query. */
const ROWS_PER_QUERY_MAX = 2_000;

/** `rowKey` in hex. */
type Seen = { rowKey: string; receivedAt: number };
type SeenRow = { hex_key: string; hex_row_key: string; at: number | string };

/**
 * Reads what is noted for these keys, which are in hex. The result has them by key.
 * @throws UnavailableError
 */
async function lookUp(server: Server, keys: readonly string[]): Promise<Map<string, Seen[]>> {
  const found = new Map<string, Seen[]>();
  for (let from = 0; from < keys.length; from += KEYS_PER_QUERY_MAX) {
    const some = keys.slice(from, from + KEYS_PER_QUERY_MAX);
    // The columns in the result have new names: an alias `key` would replace the column `key` in
    // WHERE.
    const rows = await server.query<SeenRow>(
      `SELECT hex(key) AS hex_key, hex(row_key) AS hex_row_key, toUnixTimestamp64Milli(received_at) AS at
FROM $db.seen_items WHERE key IN (${some.map((key) => `unhex('${key}')`).join(',')})`,
    );
    for (const { hex_key, hex_row_key, at } of rows)
      add(found, hex_key, { rowKey: hex_row_key, receivedAt: Number(at) });
  }
  return found;
}

function add(to: Map<string, Seen[]>, key: string, seen: Seen): void {
  const of = to.get(key);
  if (of) of.push(seen);
  else to.set(key, [seen]);
}

export const hex = (key: Buffer): string => key.toString('hex').toUpperCase();

/**
 * Looks for rows in a table.
 * @returns the row keys, in hex, of the rows that the table has
 * @throws UnavailableError
 */
export async function storedRows(
  server: Server,
  table: TableName,
  places: readonly Seen[],
): Promise<Set<string>> {
  const stored = new Set<string>();
  for (let from = 0; from < places.length; from += ROWS_PER_QUERY_MAX) {
    const some = places.slice(from, from + ROWS_PER_QUERY_MAX);
    const anyOf = (value: (one: Seen) => string): string => [...new Set(some.map(value))].join(',');
    const rows = await server.query<Pick<SeenRow, 'hex_row_key'>>(
      `SELECT hex(row_key) AS hex_row_key FROM $db.${table}
WHERE day IN (${anyOf(({ receivedAt }) => `toDate(${dayOf(receivedAt)})`)})
AND received_at IN (${anyOf(({ receivedAt }) => `fromUnixTimestamp64Milli(${receivedAt}, 'UTC')`)})
AND row_key IN (${anyOf(({ rowKey }) => `unhex('${rowKey}')`)})`,
    );
    for (const { hex_row_key } of rows) stored.add(hex_row_key);
  }
  return stored;
}

/**
 * Looks for the rows that are noted for these items.
 * @returns the row keys, in hex, of the rows that the tables have
 * @throws UnavailableError
 */
async function notedRows(
  server: Server,
  claims: readonly ResendClaim[],
  seen: ReadonlyMap<string, readonly Seen[]>,
): Promise<Set<string>> {
  const stored = new Set<string>();
  for (const table of new Set(claims.map((claim) => claim.table))) {
    const noted = claims.flatMap((claim) => (claim.table === table ? (seen.get(hex(claim.key)) ?? []) : []));
    for (const key of await storedRows(server, table, noted)) stored.add(key);
  }
  return stored;
}

/**
 * Notes the items in `seen_items`, in their order.
 * @returns the items that are a client's resend: another row of the same item, received within
 * RESEND_WINDOW_MS, is noted or comes earlier in this list
 * @throws UnavailableError
 */
export async function claimItems(server: Server, claims: readonly ResendClaim[]): Promise<ResendClaim[]> {
  if (claims.length === 0) return [];
  const seen = await lookUp(server, [...new Set(claims.map(({ key }) => hex(key)))]);
  const replayed = claims.filter(({ isReplayed }) => isReplayed);
  // Row keys, in hex, that are stored or that this batch will store. The stored ones are looked up
  // for replayed items only.
  const stored = await notedRows(server, replayed, seen);
  const news = new RowBuffer();
  const resent = claims.filter(({ key, rowKey, receivedAt, isReplayed }) => {
    const [name, own] = [hex(key), hex(rowKey)];
    const known = seen.get(name) ?? [];
    const isNoted = known.some((one) => one.rowKey === own);
    const isResendOf = (one: Seen): boolean =>
      Math.abs(one.receivedAt - receivedAt) <= RESEND_WINDOW_MS && (!isReplayed || stored.has(one.rowKey));
    if (!isNoted && known.some(isResendOf)) return true;
    stored.add(own);
    if (isNoted) return false;
    add(seen, name, { rowKey: own, receivedAt });
    news.beginRow().key(key).key(rowKey).int64(receivedAt);
    return false;
  });
  if (news.rows > 0) await server.insert('seen_items', news.slice(0, news.rows));
  return resent;
}
