/**
 * Content of the audit's records. Pure.
 *
 * A record shows fingerprints instead of keys and tokens. Fingerprints can be compared, but a
 * reader of the audit cannot send requests with them.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';

const fields = z.record(z.string(), z.unknown());

export const changeSchema = z.object({
  /** When the change was made, RFC 3339. */
  at: z.string(),
  /**
   * Who made the change: the label of a token of the management API, or the user@host of a command.
   */
  by: z.string(),
  /** `create`, `change` or `delete`. */
  action: z.string(),
  /** Id of the changed project; absent when a heartbeat token was changed. */
  project: z.string().optional(),
  /** Fingerprint of the changed heartbeat token. */
  heartbeat: z.string().optional(),
  /** The fields that changed, with their old values; absent after a creation. */
  from: fields.optional(),
  /** The fields that changed, with their new values; absent after a deletion. */
  to: fields.optional(),
});
export type Change = z.infer<typeof changeSchema>;

/** `sequence` is the record's position in the audit. */
export type RecordedChange = Change & { sequence: number };

const FINGERPRINT_CHARS = 12;
export const fingerprint = (secret: string): string =>
  `sha256:${createHash('sha256').update(secret).digest('hex').slice(0, FINGERPRINT_CHARS)}`;

/**
 * Returns a copy in which each text under the name `key`, at any depth, is replaced with its
 * fingerprint.
 */
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
 * The fields that differ between two states of a record. Without `before` the record was created,
 * without `after` it was deleted.
 * @returns undefined when no field differs
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

/** Fingerprints of the keys in a project's record as it appears in the audit. */
function keysIn({ key, keys }: Fields): Set<unknown> {
  const listed = Array.isArray(keys) ? (keys as { key: unknown }[]).map((one) => one.key) : [key];
  return new Set(listed.filter((print) => print !== undefined));
}

/**
 * Fingerprints of the keys that were removed from a project and not added again. Keys that a
 * project had when it was deleted do not count.
 * @param history changes of the project, oldest first
 */
export function removedKeys(history: readonly Change[]): Set<unknown> {
  const removed = new Set<unknown>();
  let state: Fields = {};
  for (const { action, from = {}, to = {} } of history) {
    const before = { ...state, ...from };
    const kept = Object.entries(before).filter(([name]) => !Object.hasOwn(from, name));
    const after: Fields = { ...Object.fromEntries(kept), ...to };
    const keys = keysIn(after);
    // If no key is known after the change, the audit does not go back far enough to show which keys
    // were left. Then no key counts as removed.
    if (action === 'change' && keys.size > 0) for (const key of keysIn(before)) removed.add(key);
    for (const key of keys) removed.delete(key);
    state = after;
  }
  return removed;
}
