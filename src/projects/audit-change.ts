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
function withoutKeys(value: unknown): unknown {
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
