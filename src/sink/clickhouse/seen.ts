/**
 * Items that clients may send again, and when they were received: a table that forgets after two
 * hours.
 *
 * An item is noted before its row is stored. If the process ends between the two, the frame comes
 * again and finds its own row key, so it is stored and not taken for a resend of itself. Two
 * processors that get an item and its resend in the same moment may both store it.
 */
import { RESEND_WINDOW_MS } from '../../limits.ts';
import { RowBuffer } from './row-buffer.ts';
import type { ResendClaim } from './rows.ts';
import type { Server } from './server.ts';

/** Keys of items that one query asks for: 45 bytes each, and the server reads 256 KiB. */
const KEYS_PER_QUERY_MAX = 4_000;

type Seen = { rowKey: string; receivedAt: number };
type SeenRow = { hex_key: string; hex_row_key: string; at: number | string };

/** What is noted of these keys, by key in hex. @throws UnavailableError */
async function lookUp(server: Server, keys: readonly string[]): Promise<Map<string, Seen[]>> {
  const found = new Map<string, Seen[]>();
  for (let from = 0; from < keys.length; from += KEYS_PER_QUERY_MAX) {
    const some = keys.slice(from, from + KEYS_PER_QUERY_MAX);
    // Names of their own: an alias would take the column's place in WHERE.
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

const hex = (key: Buffer): string => key.toString('hex').toUpperCase();

/**
 * Notes the items, in their order.
 * @returns those that are a client's resend: received within RESEND_WINDOW_MS of another row that
 * is noted or precedes them
 * @throws UnavailableError
 */
export async function claimItems(server: Server, claims: readonly ResendClaim[]): Promise<ResendClaim[]> {
  if (claims.length === 0) return [];
  const seen = await lookUp(server, [...new Set(claims.map(({ key }) => hex(key)))]);
  const news = new RowBuffer();
  const resent = claims.filter((claim) => {
    const { key, rowKey, receivedAt } = claim;
    const [name, own] = [hex(key), hex(rowKey)];
    const known = seen.get(name) ?? [];
    if (known.some((one) => one.rowKey === own)) return false;
    if (known.some((one) => Math.abs(one.receivedAt - receivedAt) <= RESEND_WINDOW_MS)) return true;
    add(seen, name, { rowKey: own, receivedAt });
    news.beginRow().key(key).key(rowKey).int64(receivedAt);
    return false;
  });
  if (news.rows > 0) await server.insert('seen_items', news.slice(0, news.rows));
  return resent;
}
