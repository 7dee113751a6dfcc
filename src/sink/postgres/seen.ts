/**
 * The keys of stored data. For a frame: how many of its entries are stored. For an item that
 * clients may send again: when it was received.
 *
 * The processor that first inserts a key owns the key until its transaction ends. Another processor
 * with the same key waits for that end, and then finds the key. Keys are inserted in sorted order,
 * so there is no deadlock.
 */
import { RESEND_WINDOW_MS } from '../../limits.ts';
import { UnavailableError } from '../unavailable.ts';
import { keyArray, numberArray } from './arrays.ts';
import type { Database, Transaction } from './database.ts';

/** How long keys of frames are kept: a processor that stood still may come back a day later. */
const FRAME_KEYS_KEPT_MS = 24 * 3_600_000;

const hex = (key: Buffer): string => key.toString('hex');
const byKey = (a: { key: Buffer }, b: { key: Buffer }): number => Buffer.compare(a.key, b.key);

type FrameRow = { key: Buffer; entries: number };
type ItemRow = { key: Buffer; received_at: string };

/**
 * Returns the number of stored entries of these frames, by key in hex. Unknown frames are left out.
 * @throws UnavailableError
 */
export async function entriesStored(
  database: Database,
  keys: readonly Buffer[],
): Promise<Map<string, number>> {
  const rows = await database.query<FrameRow>(
    'SELECT key, entries FROM sluice.seen_frames WHERE key = ANY($1::bytea[])',
    [keyArray(keys)],
  );
  return new Map(rows.map(({ key, entries }) => [hex(key), entries]));
}

/** A frame whose first `entries` entries will be stored when the transaction is committed. */
type FrameClaim = { key: Buffer; entries: number };

/**
 * Locks and returns the rows with these keys, which other transactions had inserted.
 * @throws UnavailableError when one of the keys was pruned meanwhile
 */
async function lock<Row extends { key: Buffer }>(
  transaction: Transaction,
  select: string,
  others: readonly { key: Buffer }[],
): Promise<Row[]> {
  if (others.length === 0) return [];
  const keys = keyArray(others.map(({ key }) => key));
  const rows = await transaction.query<Row>(
    `${select} WHERE key = ANY($1::bytea[]) ORDER BY key FOR UPDATE`,
    [keys],
  );
  if (rows.length < others.length)
    throw new UnavailableError('postgres: a key was pruned while it was looked for');
  return rows;
}

/** Statements that insert keys, and return the keys that existed before: nearly always none. */
const INSERT_FRAMES = `WITH mine AS (
  INSERT INTO sluice.seen_frames (key, entries)
  SELECT key, n::int FROM unnest($1::bytea[], $2::float8[]) AS t (key, n)
  ON CONFLICT DO NOTHING RETURNING key)
SELECT key FROM unnest($1::bytea[]) AS t (key) EXCEPT SELECT key FROM mine`;
const INSERT_ITEMS = `WITH mine AS (
  INSERT INTO sluice.seen_items (key, received_at, stream)
  SELECT key, at::bigint, $3 FROM unnest($1::bytea[], $2::float8[]) AS t (key, at)
  ON CONFLICT DO NOTHING RETURNING key)
SELECT key FROM unnest($1::bytea[]) AS t (key) EXCEPT SELECT key FROM mine`;

/**
 * Records for each frame that its first `entries` entries are stored with this transaction.
 * @returns how many entries of each known frame were stored before, by key in hex
 * @throws UnavailableError
 */
export async function claimFrames(
  transaction: Transaction,
  frames: readonly FrameClaim[],
): Promise<Map<string, number>> {
  const claims = [...frames].sort(byKey);
  const found = await transaction.query<FrameRow>(INSERT_FRAMES, [
    keyArray(claims.map(({ key }) => key)),
    numberArray(claims.map(({ entries }) => entries)),
  ]);
  const others = await lock<FrameRow>(transaction, 'SELECT key, entries FROM sluice.seen_frames', found);
  const before = new Map(others.map(({ key, entries }) => [hex(key), entries]));
  const longer = claims.filter(({ key, entries }) => entries > (before.get(hex(key)) ?? entries));
  if (longer.length > 0)
    await transaction.query(
      `UPDATE sluice.seen_frames AS f SET entries = t.entries::int, stored_at = now()
FROM unnest($1::bytea[], $2::float8[]) AS t (key, entries) WHERE f.key = t.key`,
      [keyArray(longer.map(({ key }) => key)), numberArray(longer.map(({ entries }) => entries))],
    );
  return before;
}

/** An item that a client may send again. `receivedAt`: Unix milliseconds. */
type ItemClaim = { key: Buffer; receivedAt: number };

/**
 * Stores the keys of the items, in their order.
 * @returns for each item whether it is a client's resend: the same item, received within
 * RESEND_WINDOW_MS, is stored or comes earlier in the list
 * @throws UnavailableError
 */
export async function claimItems(
  transaction: Transaction,
  stream: string,
  items: readonly ItemClaim[],
): Promise<boolean[]> {
  if (items.length === 0) return [];
  const first = new Map<string, ItemClaim>();
  for (const item of items) if (!first.has(hex(item.key))) first.set(hex(item.key), item);
  const claims = [...first.values()].sort(byKey);
  const found = await transaction.query<ItemRow>(INSERT_ITEMS, [
    keyArray(claims.map(({ key }) => key)),
    numberArray(claims.map(({ receivedAt }) => receivedAt)),
    stream,
  ]);
  const others = await lock<ItemRow>(transaction, 'SELECT key, received_at FROM sluice.seen_items', found);
  const stored = new Map(others.map(({ key, received_at }) => [hex(key), Number(received_at)]));
  const changed = new Map<string, ItemClaim>();
  const resends = items.map((item) => {
    const key = hex(item.key);
    const at = stored.get(key);
    if (at !== undefined && Math.abs(item.receivedAt - at) <= RESEND_WINDOW_MS) return true;
    stored.set(key, item.receivedAt);
    if (at !== undefined) changed.set(key, item);
    return false;
  });
  await updateItems(transaction, [...changed.values()]);
  return resends;
}

async function updateItems(transaction: Transaction, items: readonly ItemClaim[]): Promise<void> {
  if (items.length === 0) return;
  await transaction.query(
    `UPDATE sluice.seen_items AS i SET received_at = t.received_at::bigint
FROM unnest($1::bytea[], $2::float8[]) AS t (key, received_at) WHERE i.key = t.key`,
    [keyArray(items.map(({ key }) => key)), numberArray(items.map(({ receivedAt }) => receivedAt))],
  );
}

/**
 * Removes the keys of items that were refused.
 * @throws UnavailableError
 */
export async function forgetItems(transaction: Transaction, keys: readonly Buffer[]): Promise<void> {
  if (keys.length === 0) return;
  await transaction.query('DELETE FROM sluice.seen_items WHERE key = ANY($1::bytea[])', [keyArray(keys)]);
}

const PRUNE_FRAMES = `DELETE FROM sluice.seen_frames WHERE key IN (
  SELECT key FROM sluice.seen_frames WHERE stored_at < now() - $1 * interval '1 ms'
  ORDER BY stored_at LIMIT $2 FOR UPDATE SKIP LOCKED)`;
const PRUNE_ITEMS = `DELETE FROM sluice.seen_items WHERE key IN (
  SELECT key FROM sluice.seen_items WHERE stream = $1 AND received_at < $2
  ORDER BY received_at LIMIT $3 FOR UPDATE SKIP LOCKED)`;

/**
 * Removes keys that are too old to matter, at most `rows` of frames and `rows` of items. Waits for
 * no other processor.
 * @param resendsFrom the oldest received_at of this stream that still matters, Unix milliseconds;
 * undefined when the batch had no item that clients may send again
 * @throws UnavailableError
 */
export async function prune(
  transaction: Transaction,
  { stream, resendsFrom, rows }: { stream: string; resendsFrom: number | undefined; rows: number },
): Promise<void> {
  await transaction.query(PRUNE_FRAMES, [FRAME_KEYS_KEPT_MS, rows]);
  if (resendsFrom !== undefined)
    await transaction.query(PRUNE_ITEMS, [stream, Math.floor(resendsFrom), rows]);
}
