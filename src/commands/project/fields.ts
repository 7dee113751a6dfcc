/** A project's fields as flags of a command line, and a project as it is printed. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { originPatternProblem } from '../../filter/inbound.ts';
import { systemClock } from '../../lib/clock.ts';
import { CATEGORIES } from '../../lib/item-types.ts';
import { ALLOWED_ORIGINS_MAX, RATE_LIMIT_MAX, RATE_LIMIT_MIN } from '../../limits.ts';
import { problems } from '../../projects/entry.ts';
import { firstKey, keyId, keysOf } from '../../projects/keys.ts';
import {
  FILTERS,
  type FilterName,
  isKey,
  isNumericId,
  isProjectId,
  PLANS,
  type Plan,
  type PlanLimits,
  type Project,
  type ProjectKey,
  projectSchema,
  rateLimitOf,
} from '../../projects/project.ts';
import { SCRUBS, type Scrub } from '../../stream/frame.ts';
import { record, table } from '../print.ts';
import { UsageError } from '../session.ts';

/**
 * A flag that was not given is absent. (Commander turns a null into an empty string, so `none`
 * stays a word.)
 */
export type ProjectFlags = {
  alias?: string;
  key?: string;
  plan?: Plan;
  quota?: number | 'none';
  overage?: boolean;
  rateLimit?: number | 'none';
  filter?: FilterName[];
  allowOrigin?: string[];
  rateLimitFor?: string[];
  scrub?: Scrub[];
  scrubKeys?: string[];
  fillIp?: boolean;
};

export const refuse = (message: string): never => {
  throw new InvalidArgumentError(message);
};

export function parseProjectId(text: string): string {
  return isProjectId(text)
    ? text
    : refuse('A project id is numeric (up to 19 digits, no leading zero) or a CUID.');
}

function parseAlias(text: string): string {
  return isNumericId(text) ? text : refuse('An alias is numeric (up to 19 digits, no leading zero).');
}

export function parseKey(text: string): string {
  return isKey(text) ? text : refuse('A key is 1 to 64 letters, digits, underscores or hyphens.');
}

const isIntegerIn = (text: string, min: number, max: number): boolean =>
  /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max;

export const integerIn =
  (min: number, max: number) =>
  (text: string): number =>
    isIntegerIn(text, min, max) ? Number(text) : refuse(`It is an integer from ${min} to ${max}.`);

const integerOrNone =
  (min: number, max: number) =>
  (text: string): number | 'none' => {
    if (text === 'none') return text;
    return isIntegerIn(text, min, max)
      ? Number(text)
      : refuse(`It is an integer from ${min} to ${max}, or none.`);
  };

const listed = (text: string): string[] =>
  text === 'none' ? [] : [...new Set(text.split(',').map((name) => name.trim()))];

function parseFilters(text: string): FilterName[] {
  const names = listed(text);
  const known = (name: string): name is FilterName => FILTERS.some((filter) => filter === name);
  return names.every(known)
    ? names
    : refuse(`It is none, or a comma-separated list of ${FILTERS.join(', ')}.`);
}

function parseScrub(text: string): Scrub[] {
  if (text === 'default') return [...SCRUBS];
  const names = listed(text);
  const known = (name: string): name is Scrub => SCRUBS.some((scrub) => scrub === name);
  return names.every(known)
    ? names
    : refuse(`It is default, none, or a comma-separated list of ${SCRUBS.join(', ')}.`);
}

function parseOrigins(text: string, before: string[] | undefined): string[] {
  if (before !== undefined && (text === 'none' || before.length === 0))
    return refuse('It is none, or patterns, not both.');
  if (text === 'none') return [];
  const problem = originPatternProblem(text);
  if (problem !== undefined) return refuse(problem);
  return [...new Set([...(before ?? []), text])];
}

type CategoryLimits = NonNullable<Project['rateLimits']>;

/** `errors 100 replays none …` on what was before. @throws UsageError */
export function categoryLimits(
  words: readonly string[],
  before: CategoryLimits = {},
): CategoryLimits | undefined {
  const limits = { ...before };
  for (let at = 0; at < words.length; at += 2) {
    const category = CATEGORIES.find((name) => name === words[at]);
    const figure = words[at + 1] ?? '';
    if (category === undefined)
      throw new UsageError(`--rate-limit-for: ${words[at]} is none of ${CATEGORIES.join(', ')}.`);
    if (figure === 'none') delete limits[category];
    else if (isIntegerIn(figure, RATE_LIMIT_MIN, RATE_LIMIT_MAX)) limits[category] = Number(figure);
    else
      throw new UsageError(
        `--rate-limit-for ${category}: an integer from ${RATE_LIMIT_MIN} to ${RATE_LIMIT_MAX} is needed, or none.`,
      );
  }
  return Object.keys(limits).length > 0 ? limits : undefined;
}

/** Adds the flags that `create` and `set` share. */
export function withProjectFlags(command: Command): Command {
  return command
    .option('--alias <n>', 'a numeric name beside the id, used in the DSN', parseAlias)
    .option('--key <key>', 'the public key: 1 to 64 letters, digits, underscores or hyphens', parseKey)
    .addOption(new Option('--plan <plan>', 'decides the default rate limit').choices(PLANS))
    .option('--quota <n>', 'accepted requests a month, or none', integerOrNone(0, Number.MAX_SAFE_INTEGER))
    .option('--overage', 'go on accepting beyond the quota')
    .option('--no-overage', 'refuse beyond the quota')
    .option(
      '--rate-limit <n>',
      `requests a minute in place of the plan's, ${RATE_LIMIT_MIN} to ${RATE_LIMIT_MAX}, or none`,
      integerOrNone(RATE_LIMIT_MIN, RATE_LIMIT_MAX),
    )
    .option(
      '--rate-limit-for <category n...>',
      `envelopes a minute with items of a category (${CATEGORIES.join(', ')}), or none; may be repeated`,
    )
    .option('--filter <names>', `inbound filters: ${FILTERS.join(',')}, or none`, parseFilters)
    .option(
      '--allow-origin <patterns...>',
      'browser origins that may send, [scheme://]host[:port] with *.host for subdomains; or none',
      parseOrigins,
    )
    .option(
      '--scrub <what>',
      `removed before items are stored: default (all), none, or of ${SCRUBS.join(',')}`,
      parseScrub,
    )
    .option('--scrub-keys <names>', 'further names whose values are removed: ssn,birth_date; or none', listed)
    .option('--fill-ip', "put the client's address where a user's is {{auto}} (SLUICE_TRUSTED_PROXIES)")
    .option('--no-fill-ip', 'leave {{auto}} as it is');
}

const figureOf = (flag: number | 'none'): number | undefined => (flag === 'none' ? undefined : flag);

const unlessEmpty = <T>(list: T[]): T[] | undefined => (list.length > 0 ? list : undefined);

/**
 * Only the fields that the flags name, in the record's terms; undefined clears a field. The key is
 * not among them: see keys.ts.
 */
export function changesOf(flags: ProjectFlags): Partial<Project> {
  return {
    ...(flags.alias !== undefined && { alias: flags.alias }),
    ...(flags.plan !== undefined && { plan: flags.plan }),
    ...(flags.quota !== undefined && { quota: figureOf(flags.quota) }),
    ...(flags.overage !== undefined && { overage: flags.overage }),
    ...(flags.rateLimit !== undefined && { rateLimit: figureOf(flags.rateLimit) }),
    ...(flags.filter !== undefined && { filters: flags.filter }),
    ...(flags.allowOrigin !== undefined && { allowedOrigins: flags.allowOrigin }),
    ...(flags.scrub && { scrub: unlessEmpty(flags.scrub) }),
    ...(flags.scrubKeys && { scrubKeys: unlessEmpty(flags.scrubKeys) }),
    ...(flags.fillIp !== undefined && { fillIp: flags.fillIp || undefined }),
  };
}

/** What `create` and `apply` fill in. */
export const PROJECT_DEFAULTS = {
  overage: false,
  filters: [...FILTERS],
  allowedOrigins: [],
} satisfies Partial<Project>;

type FieldProblem = { path: string[]; text: string };

/** What is wrong with fields that fit the schema one by one. */
export function recordProblems(project: Omit<Project, 'key'>): FieldProblem[] {
  const origins = project.allowedOrigins.map(originPatternProblem).filter((text) => text !== undefined);
  if (project.allowedOrigins.length > ALLOWED_ORIGINS_MAX)
    origins.unshift(`at most ${ALLOWED_ORIGINS_MAX} patterns`);
  return [
    ...(project.alias === project.id ? [{ path: ['alias'], text: 'it must differ from the id' }] : []),
    ...origins.map((text) => ({ path: ['allowedOrigins'], text })),
    ...(project.fillIp && project.scrub?.some((scrub) => scrub === 'ips' || scrub === 'user-ip')
      ? [{ path: ['fillIp'], text: 'what is filled in would be removed by the scrub of ips or user-ip' }]
      : []),
  ];
}

/**
 * The project with all its fields checked together. @throws UsageError naming each field that is
 * wrong
 */
export function checked(project: Project): Project {
  const parsed = projectSchema.safeParse(project);
  const wrong = parsed.success ? [] : problems(parsed.error);
  wrong.push(...recordProblems(project).map(({ path, text }) => `${path.join('.')}: ${text}`));
  if (wrong.length > 0) throw new UsageError(wrong.join('; '));
  return project;
}

/** `http://KEY@host:port/<numeric id or alias>` */
export const dsnOf = ({ id, alias }: Project, key: string, publicUrl: string): string =>
  `${publicUrl.replace('://', `://${key}@`)}/${alias ?? id}`;

export const keyJson = (project: Project, key: ProjectKey, publicUrl: string): Record<string, unknown> => ({
  id: keyId(key.key),
  ...key,
  dsn: dsnOf(project, key.key, publicUrl),
});

/** The fields of contract part 4, in its order; `key` and `dsn` only while a key is valid. */
export function projectJson(project: Project, publicUrl: string): Record<string, unknown> {
  const key = firstKey(project, systemClock.now())?.key;
  return {
    id: project.id,
    ...(project.alias !== undefined && { alias: project.alias }),
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

const list = (words: readonly string[], none: string): string => (words.length > 0 ? words.join(', ') : none);

function limitText(project: Project, planLimits: PlanLimits): string {
  const inForce = rateLimitOf(project, planLimits);
  if (inForce === undefined) return 'none';
  return project.rateLimit === undefined ? `${inForce} (plan)` : `${inForce}`;
}

const categoriesText = (limits: CategoryLimits): string =>
  `${Object.entries(limits)
    .map(([category, limit]) => `${category} ${limit}`)
    .join(', ')} a minute`;

const quotaText = ({ quota, overage }: Project): string =>
  quota === undefined ? 'unlimited' : `${quota}${overage ? ' + overage' : ''}`;

/** The first valid key, how many there are beside it, and whether the project is enabled. */
function keyText(project: Project): string {
  const key = firstKey(project, systemClock.now())?.key ?? 'none is valid';
  const more = keysOf(project).length - 1;
  return `${key}${more > 0 ? ` (${more} more)` : ''}${project.enabled === false ? ', disabled' : ''}`;
}

function privacyRows({ scrub = [], scrubKeys = [], fillIp }: Project): (readonly [string, string])[] {
  const removed = [...scrub, ...scrubKeys.map((name) => `key ${name}`)];
  return [
    ...(removed.length > 0 ? [['scrub', removed.join(', ')] as const] : []),
    ...(fillIp ? [['fill ip', 'yes'] as const] : []),
  ];
}

export function projectText(project: Project, publicUrl: string, planLimits: PlanLimits): string {
  const key = firstKey(project, systemClock.now())?.key;
  return record([
    ['id', project.id],
    ...(project.alias === undefined ? [] : [['alias', project.alias] as const]),
    ['key', keyText(project)],
    ...(key === undefined ? [] : [['dsn', dsnOf(project, key, publicUrl)] as const]),
    ['plan', project.plan],
    ['rate limit', `${limitText(project, planLimits)}${rateLimitOf(project, planLimits) ? ' a minute' : ''}`],
    ...(project.rateLimits === undefined
      ? []
      : [['by category', categoriesText(project.rateLimits)] as const]),
    ['quota', quotaText(project)],
    ['filters', list(project.filters, 'none')],
    ['allowed origins', list(project.allowedOrigins, 'all')],
    ...privacyRows(project),
  ]);
}

export function projectsText(projects: readonly Project[], planLimits: PlanLimits): string {
  const rows = projects.map((project) => [
    project.id,
    project.alias ?? '',
    keyText(project),
    project.plan,
    limitText(project, planLimits),
    quotaText(project),
    list(project.filters, 'none'),
    list(project.allowedOrigins, 'all'),
  ]);
  return table(['ID', 'ALIAS', 'KEY', 'PLAN', 'PER MINUTE', 'QUOTA', 'FILTERS', 'ORIGINS'], rows);
}
