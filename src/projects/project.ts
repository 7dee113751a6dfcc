/**
 * A project as the registry stores it. The keys of the registry's bucket are ids and aliases: an id
 * holds a project's record, an alias holds a claim that names the id. Pure: no I/O.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { FILTER_NAMES } from '../lib/filter-names.ts';
import { CATEGORIES, type Category } from '../lib/item-types.ts';
import { LABEL_CHARS_MAX, PROJECT_KEYS_MAX, RATE_LIMIT_MAX, RATE_LIMIT_MIN } from '../limits.ts';
import { type Privacy, SCRUBS } from '../stream/frame.ts';

export const PLANS = ['Free', 'Starter', 'Pro', 'Business', 'Scale', 'Platform'] as const;
export type Plan = (typeof PLANS)[number];

/** Limit of each plan, in requests a minute. */
export const PLAN_LIMITS: Record<Plan, number> = {
  Free: 60,
  Starter: 300,
  Pro: 1_000,
  Business: 10_000,
  Scale: 30_000,
  Platform: 100_000,
};

const NUMERIC_ID = /^[1-9]\d{0,18}$/;
/**
 * A CUID has 25 characters and begins with c. A CUID2 begins with a letter and may have 2 to 32
 * characters, by default 24 (@paralleldrive/cuid2). A CUID2 with fewer than 20 characters is
 * refused.
 */
const CUID = /^[a-z][a-z0-9]{19,31}$/;

/**
 * A key may have hyphens. SDKs for JavaScript warn about a hyphen in development, but send all the
 * same.
 */
const KEY = /^[\w-]{1,64}$/;

export const isKey = (text: string): boolean => KEY.test(text);
export const isNumericId = (id: string): boolean => NUMERIC_ID.test(id);
export const isProjectId = (id: string): boolean => NUMERIC_ID.test(id) || CUID.test(id);

export const rateLimitSchema = z.int().min(RATE_LIMIT_MIN).max(RATE_LIMIT_MAX);
const keySchema = z.string().refine(isKey, 'a key is 1 to 64 letters, digits, underscores or hyphens');
export const projectKeySchema = z.strictObject({
  key: keySchema,
  label: z.string().min(1).max(LABEL_CHARS_MAX).optional(),
  enabled: z.boolean(),
  /** When the key ceases to be valid, RFC 3339 in UTC. */
  expires: z.iso.datetime().optional(),
  /** Most requests a minute with this key. The project's own limit applies as well. */
  rateLimit: rateLimitSchema.optional(),
});
const areDistinct = (keys: readonly { key: string }[]): boolean =>
  new Set(keys.map(({ key }) => key)).size === keys.length;
export const keyList = <Key extends z.ZodType<{ key: string }>>(key: Key) =>
  z.array(key).min(1).max(PROJECT_KEYS_MAX).refine(areDistinct, 'a key is there twice');

const TAG = /^[A-Za-z0-9._:/-]{1,40}$/;
const TAGS_MAX = 20;

/** Form of each of `scrubKeys`: 1 to 64 characters, no comma, at least one letter or digit. */
const SCRUB_KEY = /^(?=.{1,64}$)[^,]*[\p{L}\p{N}][^,]*$/u;

/**
 * Schema of limits by category. It is no `z.partialRecord`, which would drop a field with the name
 * `__proto__`, and nobody would be told.
 */
export const limitsByCategory = <Limit extends z.ZodType>(limit: Limit) =>
  z
    .strictObject(
      Object.fromEntries(CATEGORIES.map((category) => [category, limit])) as Record<Category, Limit>,
    )
    .partial();

export const projectSchema = z.strictObject({
  id: z.string().refine(isProjectId, 'a project id is numeric (no leading zero) or a CUID'),
  alias: z.string().refine(isNumericId, 'an alias is numeric (no leading zero)').optional(),
  /** A name for people; nothing is looked up by it. */
  name: z.string().min(1).max(LABEL_CHARS_MAX).optional(),
  tags: z
    .array(z.string().regex(TAG, 'a tag is 1 to 40 letters, digits and . _ : / -'))
    .max(TAGS_MAX)
    .optional(),
  /** Absent: the project is enabled. */
  enabled: z.literal(false).optional(),
  key: keySchema,
  /**
   * Absent: `key` is the only key and does not expire. Present: `key` was the first valid one of
   * `keys` when the record was last written.
   */
  keys: keyList(projectKeySchema).optional(),
  plan: z.enum(PLANS),
  rateLimit: rateLimitSchema.optional(),
  /** Limits of categories: envelopes a minute with items of the category. */
  rateLimits: limitsByCategory(rateLimitSchema).optional(),
  quota: z.int().min(0).max(Number.MAX_SAFE_INTEGER).optional(),
  overage: z.boolean(),
  filters: z.array(z.enum(FILTER_NAMES)),
  allowedOrigins: z.array(z.string()),
  /**
   * Kinds of private data that the processor removes from payloads before they are stored
   * (docs/privacy.md).
   */
  scrub: z.array(z.enum(SCRUBS)).optional(),
  /** Further names of JSON members whose values the processor removes. */
  scrubKeys: z
    .array(z.string().regex(SCRUB_KEY, 'a name has letters or digits, and no comma'))
    .max(50)
    .optional(),
  /** Whether the user's address `{{auto}}` is replaced with the client's. */
  fillIp: z.boolean().optional(),
});

export type Project = z.infer<typeof projectSchema>;
export type ProjectKey = z.infer<typeof projectKeySchema>;
export type PlanLimits = 'table' | 'free-only';

// ---- A project's keys ----

const ID_CHARS = 8;

/**
 * Id of a key in commands and statistics. It is computed from the key, so that the record needs no
 * further field.
 */
export const keyId = (key: string): string =>
  createHash('sha256').update(key).digest('hex').slice(0, ID_CHARS);

/** Name of a key's own window, when the key has a limit of its own. */
export const keyWindow = (key: string): string => `key:${keyId(key)}`;

/** All keys of a project, in order. */
export const keysOf = ({ key, keys }: Project): readonly ProjectKey[] => keys ?? [{ key, enabled: true }];

/** When a key expires, Unix ms; Infinity: never. */
export const expiresAt = ({ expires }: Pick<ProjectKey, 'expires'>): number =>
  expires === undefined ? Infinity : Date.parse(expires);

/** Until when a key is valid, Unix ms; 0 for a disabled key. */
export const validUntil = (key: ProjectKey): number => (key.enabled ? expiresAt(key) : 0);

// ---- Settings derived from a record ----

/** The limit per minute that applies to a project (see SLUICE_PLAN_LIMITS); undefined: none. */
export function rateLimitOf(
  project: Pick<Project, 'plan' | 'rateLimit'>,
  planLimits: PlanLimits,
): number | undefined {
  if (project.rateLimit !== undefined) return project.rateLimit;
  if (planLimits === 'free-only' && project.plan !== 'Free') return undefined;
  return PLAN_LIMITS[project.plan];
}

/** How the payloads of a project's envelopes are changed before they are stored. */
export type ProjectPrivacy = Privacy & { fillIp: boolean };

export function privacyOf({
  scrub = [],
  scrubKeys = [],
  fillIp = false,
}: Project): ProjectPrivacy | undefined {
  return scrub.length + scrubKeys.length > 0 || fillIp ? { scrub, names: scrubKeys, fillIp } : undefined;
}

const claimSchema = z.strictObject({ aliasOf: z.string() });

export type ParsedEntry =
  | { kind: 'project'; project: Project }
  | { kind: 'alias'; id: string }
  | { kind: 'broken'; reason: string };

export const projectText = (project: Project): string => JSON.stringify(project);
export const claimText = (id: string): string => JSON.stringify({ aliasOf: id });

/**
 * Parses an entry of the bucket. Never throws: a record that another program spoiled must not end a
 * worker.
 */
export function parseEntry(key: string, text: string): ParsedEntry {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { kind: 'broken', reason: 'not JSON' };
  }
  const claim = claimSchema.safeParse(value);
  if (claim.success && isNumericId(key)) return { kind: 'alias', id: claim.data.aliasOf };
  const record = projectSchema.safeParse(value);
  if (!record.success) return { kind: 'broken', reason: problems(record.error).join('; ') };
  if (record.data.id !== key) return { kind: 'broken', reason: `the record's id is ${record.data.id}` };
  return { kind: 'project', project: record.data };
}

/** Describes each wrong field in one sentence. */
const problems = (error: z.ZodError): string[] =>
  error.issues.map((issue) =>
    issue.path.length > 0 ? `${issue.path.join('.')}: ${issue.message}` : issue.message,
  );
