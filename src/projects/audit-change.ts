/**
 * Content of a record of the audit. Pure.
 *
 * A record shows no key and no token: what a key or token was and is can be compared by its
 * fingerprint, and no reader of the audit can send with it.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';

const fields = z.record(z.string(), z.unknown());

export const changeSchema = z.object({
  /** RFC 3339. */
  at: z.string(),
  /** The label of a token of the management API, or user@host of a command. */
  by: z.string(),
  /** create, change or delete. */
  action: z.string(),
  /** The project's id; absent of a heartbeat token. */
  project: z.string().optional(),
  /** The token's fingerprint. */
  heartbeat: z.string().optional(),
  /** The fields that changed, as they were; absent when it was created. */
  from: fields.optional(),
  /** The same fields as they are since; absent when it was deleted. */
  to: fields.optional(),
});
export type Change = z.infer<typeof changeSchema>;

/** `sequence` is its place in the audit. */
export type RecordedChange = Change & { sequence: number };

const FINGERPRINT_CHARS = 12;
export const fingerprint = (secret: string): string =>
  `sha256:${createHash('sha256').update(secret).digest('hex').slice(0, FINGERPRINT_CHARS)}`;

/** A copy in which every text under the name `key` is a fingerprint, at any depth. */
export function withoutKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutKeys);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name,
      name === 'key' && typeof inner === 'string' ? fingerprint(inner) : withoutKeys(inner),
    ]),
  );
}

type Fields = Readonly<Record<string, unknown>>;
const isSame = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);

/**
 * The fields that differ between two states of a record; `before` undefined: it was created,
 * `after` undefined: it was deleted.
 * @returns undefined when none does
 */
export function changeBetween(
  before: Fields | undefined,
  after: Fields | undefined,
): Pick<Change, 'action' | 'from' | 'to'> | undefined {
  const names = Object.keys({ ...before, ...after }).filter((name) => !isSame(before?.[name], after?.[name]));
  if (names.length === 0) return undefined;
  const pick = (state: Fields): Record<string, unknown> =>
    Object.fromEntries(names.filter((name) => state[name] !== undefined).map((name) => [name, state[name]]));
  const shown = (state: Fields) => withoutKeys(pick(state)) as Record<string, unknown>;
  if (!before) return { action: 'create', to: shown(after ?? {}) };
  if (!after) return { action: 'delete', from: shown(before) };
  return { action: 'change', from: shown(before), to: shown(after) };
}

/** Fingerprints of the keys in a record as the audit shows it. */
function keysIn({ key, keys }: Fields): Set<unknown> {
  const listed = Array.isArray(keys) ? (keys as { key: unknown }[]).map((one) => one.key) : [key];
  return new Set(listed.filter((print) => print !== undefined));
}

/**
 * Fingerprints of the keys that were taken from a project and not given back. A key that a project
 * had when it was deleted is not among them. @param history of the project, oldest first
 */
export function removedKeys(history: readonly Change[]): Set<unknown> {
  const removed = new Set<unknown>();
  let state: Fields = {};
  for (const { action, from = {}, to = {} } of history) {
    const before = { ...state, ...from };
    const kept = Object.entries(before).filter(([name]) => !Object.hasOwn(from, name));
    const after: Fields = { ...Object.fromEntries(kept), ...to };
    const keys = keysIn(after);
    // Without keys it was deleted, or the audit does not go back to what they were.
    if (action === 'change' && keys.size > 0) for (const key of keysIn(before)) removed.add(key);
    for (const key of keys) removed.delete(key);
    state = after;
  }
  return removed;
}
