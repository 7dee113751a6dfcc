/**
 * What must not be written twice: how many entries of a frame are stored, and when an item that clients may send again was received.
 *
 * Whoever inserts a key first owns it until the end of the transaction; another processor with the same key waits for that end and
 * then finds it. Keys go in sorted, so that two processors never wait for each other.
 */
import { POSTGRES_FRAME_MEMORY_MS, RESEND_WINDOW_MS } from '../../limits.ts';
import { UnavailableError } from '../unavailable.ts';
import type { Database, Transaction } from './postgres-database.ts';

const hex = (key: Buffer): string => key.toString('hex');
const byKey = (a: { key: Buffer }, b: { key: Buffer }): number => Buffer.compare(a.key, b.key);

type FrameRow = { key: Buffer; entries: number };
type ItemRow = { key: Buffer; received_at: string };

/** Entries of these frames that are stored, by key in hex; those of which nothing is known are left out. @throws UnavailableError */
export async function entriesStored(
  database: Database,
  keys: readonly Buffer[],
): Promise<Map<string, number>> {
  const rows = await database.query<FrameRow>(
    'SELECT key, entries FROM sluice.seen_frames WHERE key = ANY($1::bytea[])',
    [keys],
  );
  return new Map(rows.map(({ key, entries }) => [hex(key), entries]));
}

/** A frame of which the entries before `entries` are stored when the transaction is committed. */
export type FrameClaim = { key: Buffer; entries: number };

/** Rows of `claimed` keys that were there before, locked. */
async function lockOthers<Row extends { key: Buffer }>(
  transaction: Transaction,
  select: string,
  { claims, inserted }: { claims: readonly { key: Buffer }[]; inserted: readonly { key: Buffer }[] },
): Promise<Row[]> {
  const mine = new Set(inserted.map(({ key }) => hex(key)));
  const others = claims.map(({ key }) => key).filter((key) => !mine.has(hex(key)));
  if (others.length === 0) return [];
  const rows = await transaction.query<Row>(
    `${select} WHERE key = ANY($1::bytea[]) ORDER BY key FOR UPDATE`,
    [others],
  );
  if (rows.length < others.length)
    throw new UnavailableError('postgres: a key was pruned while it was looked for');
  return rows;
}

/**
 * Marks the entries as stored.
 * @returns how many entries of each frame were stored before, by key in hex; those that were unknown are left out
 * @throws UnavailableError
 */
export async function claimFrames(
  transaction: Transaction,
  frames: readonly FrameClaim[],
): Promise<Map<string, number>> {
  const claims = [...frames].sort(byKey);
  const inserted = await transaction.query<FrameRow>(
    `INSERT INTO sluice.seen_frames (key, entries) SELECT * FROM unnest($1::bytea[], $2::int[])
ON CONFLICT DO NOTHING RETURNING key`,
    [claims.map(({ key }) => key), claims.map(({ entries }) => entries)],
  );
  const select = 'SELECT key, entries FROM sluice.seen_frames';
  const others = await lockOthers<FrameRow>(transaction, select, { claims, inserted });
  const before = new Map(others.map(({ key, entries }) => [hex(key), entries]));
  const longer = claims.filter(({ key, entries }) => entries > (before.get(hex(key)) ?? entries));
  if (longer.length > 0)
    await transaction.query(
      `UPDATE sluice.seen_frames AS f SET entries = t.entries, stored_at = now()
FROM unnest($1::bytea[], $2::int[]) AS t (key, entries) WHERE f.key = t.key`,
      [longer.map(({ key }) => key), longer.map(({ entries }) => entries)],
    );
  return before;
}

/** An item that a client may send again; `receivedAt` in Unix milliseconds. */
export type ItemClaim = { key: Buffer; receivedAt: number };

/**
 * Notes items, in the order given.
 * @returns for each whether it is a client's resend: received within RESEND_WINDOW_MS of one that is stored or stands before it
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
  const inserted = await transaction.query<ItemRow>(
    `INSERT INTO sluice.seen_items (key, received_at, stream) SELECT *, $3 FROM unnest($1::bytea[], $2::bigint[])
ON CONFLICT DO NOTHING RETURNING key`,
    [claims.map(({ key }) => key), claims.map(({ receivedAt }) => receivedAt), stream],
  );
  const select = 'SELECT key, received_at FROM sluice.seen_items';
  const others = await lockOthers<ItemRow>(transaction, select, { claims, inserted });
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
    `UPDATE sluice.seen_items AS i SET received_at = t.received_at
FROM unnest($1::bytea[], $2::bigint[]) AS t (key, received_at) WHERE i.key = t.key`,
    [items.map(({ key }) => key), items.map(({ receivedAt }) => receivedAt)],
  );
}

const PRUNE_FRAMES = `DELETE FROM sluice.seen_frames WHERE key IN (
  SELECT key FROM sluice.seen_frames WHERE stored_at < now() - $1 * interval '1 ms'
  ORDER BY stored_at LIMIT $2 FOR UPDATE SKIP LOCKED)`;
const PRUNE_ITEMS = `DELETE FROM sluice.seen_items WHERE key IN (
  SELECT key FROM sluice.seen_items WHERE stream = $1 AND received_at < $2
  ORDER BY received_at LIMIT $3 FOR UPDATE SKIP LOCKED)`;

/**
 * Removes up to `rows` of each that are older than anybody asks for. Waits for nobody.
 * @param resendsFrom the oldest received_at of this stream that still matters, Unix milliseconds; undefined when the batch does not tell
 * @throws UnavailableError
 */
export async function prune(
  transaction: Transaction,
  { stream, resendsFrom, rows }: { stream: string; resendsFrom: number | undefined; rows: number },
): Promise<void> {
  await transaction.query(PRUNE_FRAMES, [POSTGRES_FRAME_MEMORY_MS, rows]);
  if (resendsFrom !== undefined)
    await transaction.query(PRUNE_ITEMS, [stream, Math.floor(resendsFrom), rows]);
}
