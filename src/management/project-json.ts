/** A project's record as the command line, the project file and the API accept and show it. */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { originPatternProblem } from '../ingest/filter/inbound.ts';
import { FILTER_NAMES } from '../lib/filter-names.ts';
import { firstKey, replaceKey, withKeys } from '../projects/keys.ts';
import {
  keyId,
  keyList,
  keysOf,
  limitsByCategory,
  type Project,
  type ProjectKey,
  projectKeySchema,
  projectSchema,
  rateLimitSchema,
} from '../projects/project.ts';
import type { NewProject } from '../projects/project-store.ts';
import { type FieldProblem, InvalidError } from './failure.ts';

/** Most origin patterns of a project. Each browser request is compared with all of them. */
const ALLOWED_ORIGINS_MAX = 100;

/** Key of a project. `lastUsed` is an hour (RFC 3339); only lists of keys have it. */
export type KeyJson = ProjectKey & { id: string; dsn: string; lastUsed?: string };

/**
 * Project as it is shown. `key` and `dsn` belong to the first valid key, and are absent while there
 * is none. `revision`: the record's; only lists have it. `usage`: this month's accepted requests,
 * at most CHECKPOINT_MS_MAX late; only lists that ask for it have it.
 */
export type ProjectJson = Omit<Project, 'key' | 'keys' | 'enabled'> & {
  revision?: number;
  usage?: number;
  key?: string;
  dsn?: string;
  enabled: boolean;
  keys: KeyJson[];
};

/** Defaults for fields that the creator of a project left out. */
const PROJECT_DEFAULTS = { overage: false, filters: [...FILTER_NAMES], allowedOrigins: [] };

const { shape } = projectSchema;

const revisionSchema = z.int().min(0).max(Number.MAX_SAFE_INTEGER);

/** Key in a list. The schema also accepts a key as it is shown, and drops `id` and `dsn`. */
const listedKeySchema = projectKeySchema
  .extend({ enabled: z.boolean().default(true), id: z.string().optional(), dsn: z.string().optional() })
  .transform(({ id: _id, dsn: _dsn, ...key }): ProjectKey => key);

/** Project to be made. The schema also accepts a project as it is shown. */
export const newProjectSchema = projectSchema.extend({
  id: shape.id.optional(),
  enabled: z.boolean().optional(),
  key: shape.key.optional(),
  keys: keyList(listedKeySchema).optional(),
  overage: shape.overage.default(PROJECT_DEFAULTS.overage),
  filters: shape.filters.default(PROJECT_DEFAULTS.filters),
  allowedOrigins: shape.allowedOrigins.default(PROJECT_DEFAULTS.allowedOrigins),
  dsn: z.string().optional(),
  revision: revisionSchema.optional(),
});

/** Project to be made, as a caller gives it. Missing fields get a default or are minted. */
export type WantedProject = z.input<typeof newProjectSchema>;
/** Project to be made, with its defaults. */
type DeclaredProject = z.output<typeof newProjectSchema>;

/** Changes of a project as a merge patch (RFC 7396): null removes a field or a category's limit. */
export const patchSchema = projectSchema
  .omit({ id: true, keys: true })
  .partial()
  .extend({
    enabled: z.boolean().optional(),
    name: shape.name.nullable(),
    tags: shape.tags.nullable(),
    rateLimit: shape.rateLimit.nullable(),
    rateLimits: limitsByCategory(rateLimitSchema.nullable()).nullable().optional(),
    quota: shape.quota.nullable(),
    scrub: shape.scrub.nullable(),
    scrubKeys: shape.scrubKeys.nullable(),
    fillIp: shape.fillIp.nullable(),
  });
export type ProjectChanges = z.infer<typeof patchSchema>;

/** Key to be added. A missing `key` is minted, and a missing `enabled` means true. */
export const newKeySchema = projectKeySchema.partial();
export type WantedKey = z.infer<typeof newKeySchema>;

const { shape: keyShape } = projectKeySchema;
export const keyPatchSchema = projectKeySchema.omit({ key: true }).partial().extend({
  label: keyShape.label.nullable(),
  expires: keyShape.expires.nullable(),
  rateLimit: keyShape.rateLimit.nullable(),
});
export type KeyChanges = z.infer<typeof keyPatchSchema>;

/** Makes a DSN: `http://KEY@host:port/<numeric id or alias>` */
const dsnOf = ({ id, alias }: Project, key: string, publicUrl: string): string =>
  `${publicUrl.replace('://', `://${key}@`)}/${alias ?? id}`;

export const keyJson = (project: Project, key: ProjectKey, publicUrl: string): KeyJson => ({
  id: keyId(key.key),
  ...key,
  dsn: dsnOf(project, key.key, publicUrl),
});

/**
 * Makes the JSON of a project that commands and the API show.
 * @param of `now`: Unix ms
 */
export function projectJson(project: Project, of: { publicUrl: string; now: number }): ProjectJson {
  const { publicUrl, now } = of;
  const key = firstKey(project, now)?.key;
  return {
    id: project.id,
    ...(project.alias !== undefined && { alias: project.alias }),
    ...(project.name !== undefined && { name: project.name }),
    ...(project.tags !== undefined && { tags: project.tags }),
    ...(key !== undefined && { key, dsn: dsnOf(project, key, publicUrl) }),
    enabled: project.enabled !== false,
    keys: keysOf(project).map((one) => keyJson(project, one, publicUrl)),
    plan: project.plan,
    ...(project.rateLimit !== undefined && { rateLimit: project.rateLimit }),
    ...(project.rateLimits !== undefined && { rateLimits: project.rateLimits }),
    ...(project.quota !== undefined && { quota: project.quota }),
    overage: project.overage,
    filters: project.filters,
    allowedOrigins: project.allowedOrigins,
    ...(project.scrub !== undefined && { scrub: project.scrub }),
    ...(project.scrubKeys !== undefined && { scrubKeys: project.scrubKeys }),
    ...(project.fillIp !== undefined && { fillIp: project.fillIp }),
  };
}

type Recordable = Omit<Project, 'enabled'> & { enabled?: boolean | undefined };

/** Brings a record into one form. Fields whose value means the same as no value are left out. */
function canonical(given: Recordable, now: number): Project {
  const { enabled, rateLimits = {}, tags = [], scrub = [], scrubKeys = [], fillIp, ...project } = given;
  const record: Project = {
    ...project,
    ...(tags.length > 0 && { tags: [...new Set(tags)] }),
    ...(scrub.length > 0 && { scrub }),
    ...(scrubKeys.length > 0 && { scrubKeys }),
    ...(fillIp && { fillIp }),
    ...(enabled === false && { enabled }),
    ...(Object.keys(rateLimits).length > 0 && { rateLimits }),
  };
  return withKeys(record, keysOf(record), now);
}

/** Turns a project as commands and the API show it back into its record, in canonical form. */
export function recordOf(json: ProjectJson, now: number): Project {
  const { dsn: _, revision: _r, usage: _u, key, keys, ...fields } = json;
  const own = keys.map(({ id: _id, dsn: _dsn, ...one }): ProjectKey => one);
  return canonical({ ...fields, key: key ?? `${own[0]?.key}`, keys: own }, now);
}

const KINDS: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
};
const UNITS: Readonly<Record<string, string>> = { string: ' characters', array: ' entries' };

/** Makes the message for a wrong value, where the schema has no message of its own. */
export const inOurWords: z.core.$ZodErrorMap = (issue) => {
  if (issue.code === 'invalid_type')
    return issue.input === undefined
      ? 'it is missing'
      : `it must be ${KINDS[issue.expected] ?? issue.expected}`;
  if (issue.code === 'invalid_value') return `it must be one of ${issue.values.join(', ')}`;
  if (issue.code === 'too_big') return `it is at most ${issue.maximum}${UNITS[issue.origin] ?? ''}`;
  if (issue.code === 'too_small') return `it is at least ${issue.minimum}${UNITS[issue.origin] ?? ''}`;
  if (issue.code === 'invalid_format' && issue.format === 'datetime')
    return 'it must be a moment in UTC, such as 2027-01-31T00:00:00Z';
  return undefined;
};

/** Makes one problem for each wrong field, unknown fields included. */
export const fieldProblems = (error: z.ZodError): FieldProblem[] =>
  error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((name) => ({ field: [...issue.path, name].join('.'), detail: 'unknown field' }))
      : [{ field: issue.path.join('.'), detail: issue.message }],
  );

type Fields = Pick<WantedProject, 'id' | 'alias' | 'key' | 'keys' | 'allowedOrigins' | 'scrub' | 'fillIp'>;

/** Finds what the schema does not: bad origin patterns, and fields that contradict each other. */
export function recordProblems(fields: Fields): FieldProblem[] {
  const { id, alias, key, keys, allowedOrigins = [], scrub = [], fillIp } = fields;
  const origins = allowedOrigins.flatMap((pattern) => originPatternProblem(pattern) ?? []);
  if (allowedOrigins.length > ALLOWED_ORIGINS_MAX) origins.unshift(`at most ${ALLOWED_ORIGINS_MAX} patterns`);
  const isSame = alias !== undefined && alias === id;
  const isForeign = key !== undefined && keys !== undefined && !keys.some((one) => one.key === key);
  const isRemoved = fillIp && scrub.some((one) => one === 'ips' || one === 'user-ip');
  return [
    ...(isSame ? [{ field: 'alias', detail: 'it must differ from the id' }] : []),
    ...(isForeign ? [{ field: 'key', detail: 'it is none of keys' }] : []),
    ...origins.map((detail) => ({ field: 'allowedOrigins', detail })),
    ...(isRemoved
      ? [{ field: 'fillIp', detail: 'what is filled in would be removed by the scrub of ips or user-ip' }]
      : []),
  ];
}

/**
 * Parses a project by a schema, and checks that its fields fit together.
 * @throws InvalidError naming each wrong field
 */
function checkedBy<Schema extends z.ZodType<Fields>>(schema: Schema, project: Fields): z.output<Schema> {
  const parsed = schema.safeParse(project, { error: inOurWords });
  const problems = parsed.success ? [] : fieldProblems(parsed.error);
  problems.push(...recordProblems(project));
  if (!parsed.success || problems.length > 0) throw new InvalidError(problems);
  return parsed.data;
}

/** @throws InvalidError naming each wrong field */
export function checked(project: Project): Project {
  checkedBy(projectSchema, project);
  return project;
}

/**
 * Checks a project to be made, and adds its defaults.
 * @throws InvalidError naming each wrong field
 */
export const checkedWanted = (wanted: WantedProject): DeclaredProject => checkedBy(newProjectSchema, wanted);

/**
 * Makes the record of a new project. The store mints a missing id, alias or key.
 * @throws InvalidError naming each wrong field
 */
export function newRecord(wanted: WantedProject, now: number): NewProject {
  const { dsn: _, revision: _r, id, key = wanted.keys?.[0]?.key, ...fields } = checkedWanted(wanted);
  const record = canonical({ ...fields, id: id ?? '', key: key ?? '' }, now);
  return { ...record, id, key: key === undefined ? key : record.key };
}

/**
 * Makes the record that replaces `before`. Alias and keys stay where `wanted` has none. A `key`
 * that `before` has already changes nothing; any other `key` replaces the first valid key.
 */
export function wantedRecord(before: Project, wanted: DeclaredProject, now: number): Project {
  const { dsn: _, revision: _r, key, keys, alias = before.alias, ...fields } = wanted;
  const names = { id: before.id, key: before.key, ...(alias !== undefined && { alias }) };
  const own = keys ?? before.keys;
  const record = canonical({ ...fields, ...names, ...(own && { keys: own }) }, now);
  if (keys || key === undefined || keysOf(before).some((one) => one.key === key)) return record;
  return replaceKey(record, key, now);
}

/** Lists the fields in which two records differ, after both are brought into the same form. */
export function differences(one: Project, other: Project, now: number): (keyof Project)[] {
  const [before, after] = [canonical(one, now), canonical(other, now)];
  const names = Object.keys({ ...after, ...before }) as (keyof Project)[];
  return names.filter((name) => !isDeepStrictEqual(before[name], after[name]));
}

/**
 * Makes the record that a project has after the changes.
 * @throws InvalidError naming each wrong field; ConflictError when the new key is another key of
 * the project
 */
export function changedRecord(before: Project, changes: ProjectChanges, now: number): Project {
  const { key, enabled = before.enabled !== false, rateLimits = {}, ...fields } = changes;
  const limits = Object.entries({ ...(rateLimits && before.rateLimits), ...rateLimits });
  const kept = limits.filter(([, limit]) => limit !== null);
  const given = Object.entries({ ...before, ...fields, enabled, rateLimits: Object.fromEntries(kept) });
  const said = given.filter(([, value]) => value !== null && value !== undefined);
  const record = canonical(Object.fromEntries(said) as Project, now);
  return checked(key === undefined ? record : replaceKey(record, key, now));
}

export function changedKey(before: ProjectKey, changes: KeyChanges): ProjectKey {
  const fields = Object.entries({ ...before, ...changes });
  return Object.fromEntries(
    fields.filter(([, value]) => value !== null && value !== undefined),
  ) as ProjectKey;
}

/** Whether a project's id, alias, name, tags, plan or key labels contain a text, in any case. */
export function matchesText(project: Omit<Project, 'key' | 'enabled'>, text: string): boolean {
  const { id, alias = '', name = '', tags = [], plan, keys = [] } = project;
  const labels = keys.map(({ label = '' }) => label);
  const wanted = text.toLowerCase();
  return [id, alias, name, ...tags, plan, ...labels].some((one) => one.toLowerCase().includes(wanted));
}
