/** A project's fields as flags of a command line, and a project's text as commands print it. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { originPatternProblem } from '../../ingest/filter/inbound.ts';
import { FILTER_NAMES, type FilterName } from '../../lib/filter-names.ts';
import { CATEGORIES } from '../../lib/item-types.ts';
import { RATE_LIMIT_MAX, RATE_LIMIT_MIN } from '../../limits.ts';
import type { ProjectChanges, ProjectJson } from '../../management/project-json.ts';
import {
  isKey,
  isNumericId,
  isProjectId,
  PLANS,
  type Plan,
  type PlanLimits,
  rateLimitOf,
} from '../../projects/project.ts';
import { SCRUBS, type Scrub } from '../../stream/frame.ts';
import { UsageError } from '../command-error.ts';
import { record } from '../print.ts';

/**
 * Flags of a project. A flag that was not given is absent. `none` stays a word, because commander
 * turns null into an empty string.
 */
export type ProjectFlags = {
  alias?: string;
  name?: string;
  tags?: string[];
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
  const known = (name: string): name is FilterName => FILTER_NAMES.some((filter) => filter === name);
  return names.every(known)
    ? names
    : refuse(`It is none, or a comma-separated list of ${FILTER_NAMES.join(', ')}.`);
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

type CategoryLimits = NonNullable<ProjectChanges['rateLimits']>;

/**
 * Parses the words of `--rate-limit-for`, such as `errors 100 replays none`.
 * @throws UsageError
 */
function categoryLimits(words: readonly string[]): CategoryLimits {
  const limits: CategoryLimits = {};
  for (let at = 0; at < words.length; at += 2) {
    const category = CATEGORIES.find((name) => name === words[at]);
    const figure = words[at + 1] ?? '';
    if (category === undefined)
      throw new UsageError(`--rate-limit-for: ${words[at]} is none of ${CATEGORIES.join(', ')}.`);
    if (figure === 'none') limits[category] = null;
    else if (isIntegerIn(figure, RATE_LIMIT_MIN, RATE_LIMIT_MAX)) limits[category] = Number(figure);
    else
      throw new UsageError(
        `--rate-limit-for ${category}: an integer from ${RATE_LIMIT_MIN} to ${RATE_LIMIT_MAX} is needed, or none.`,
      );
  }
  return limits;
}

/** Adds the flags that `create` and `set` share. */
export function withProjectFlags(command: Command): Command {
  return command
    .option('--alias <n>', 'a numeric name beside the id, used in the DSN', parseAlias)
    .option('--name <text>', 'what people call it; an empty text takes it away')
    .option('--tags <tags>', 'comma-separated, such as team:web,eu; or none', listed)
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
    .option('--filter <names>', `inbound filters: ${FILTER_NAMES.join(',')}, or none`, parseFilters)
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
    .option('--fill-ip', "fill in the client's address where an SDK asks for it (SLUICE_TRUSTED_PROXIES)")
    .option('--no-fill-ip', 'fill in nothing');
}

const figureOf = (flag: number | 'none'): number | null => (flag === 'none' ? null : flag);

const unlessEmpty = <T>(list: T[]): T[] | null => (list.length > 0 ? list : null);

/**
 * Makes the changes of the fields that the flags name; null clears a field.
 * @throws UsageError
 */
export function changesOf(flags: ProjectFlags): ProjectChanges {
  return {
    ...(flags.alias !== undefined && { alias: flags.alias }),
    ...(flags.name !== undefined && { name: flags.name || null }),
    ...(flags.tags && { tags: unlessEmpty(flags.tags) }),
    ...(flags.key !== undefined && { key: flags.key }),
    ...(flags.plan !== undefined && { plan: flags.plan }),
    ...(flags.quota !== undefined && { quota: figureOf(flags.quota) }),
    ...(flags.overage !== undefined && { overage: flags.overage }),
    ...(flags.rateLimit !== undefined && { rateLimit: figureOf(flags.rateLimit) }),
    ...(flags.rateLimitFor !== undefined && { rateLimits: categoryLimits(flags.rateLimitFor) }),
    ...(flags.filter !== undefined && { filters: flags.filter }),
    ...(flags.allowOrigin !== undefined && { allowedOrigins: flags.allowOrigin }),
    ...(flags.scrub && { scrub: unlessEmpty(flags.scrub) }),
    ...(flags.scrubKeys && { scrubKeys: unlessEmpty(flags.scrubKeys) }),
    ...(flags.fillIp !== undefined && { fillIp: flags.fillIp || null }),
  };
}

const list = (words: readonly string[], none: string): string => (words.length > 0 ? words.join(', ') : none);

function limitText(project: ProjectJson, planLimits: PlanLimits): string {
  const inForce = rateLimitOf(project, planLimits);
  if (inForce === undefined) return 'none';
  return project.rateLimit === undefined ? `${inForce} (plan)` : `${inForce}`;
}

const categoriesText = (limits: object): string =>
  `${Object.entries(limits)
    .map(([category, limit]) => `${category} ${limit}`)
    .join(', ')} a minute`;

export const quotaText = ({ quota, overage }: Pick<ProjectJson, 'quota' | 'overage'>): string =>
  quota === undefined ? 'unlimited' : `${quota}${overage ? ' + overage' : ''}`;

/** Shows the first valid key, the number of further keys, and whether the project is disabled. */
function keyText({ key = 'none is valid', keys, enabled }: ProjectJson): string {
  const more = keys.length > 1 ? ` (${keys.length - 1} more)` : '';
  return `${key}${more}${enabled ? '' : ', disabled'}`;
}

/**
 * Makes the text of a project.
 * @param of `remark`: a remark on the DSN
 */
export function projectText(
  project: ProjectJson,
  of: { planLimits: PlanLimits; remark: string | undefined },
): string {
  const { planLimits, remark } = of;
  const { scrub = [], scrubKeys = [] } = project;
  const scrubbed = [...scrub, ...scrubKeys.map((name) => `key ${name}`)];
  return record([
    ['id', project.id],
    ['alias', project.alias],
    ['name', project.name],
    ['tags', project.tags?.join(', ')],
    ['key', keyText(project)],
    ['dsn', project.dsn],
    ['', project.dsn && remark],
    ['plan', project.plan],
    ['rate limit', `${limitText(project, planLimits)}${rateLimitOf(project, planLimits) ? ' a minute' : ''}`],
    ['by category', project.rateLimits && categoriesText(project.rateLimits)],
    ['quota', quotaText(project)],
    ['filters', list(project.filters, 'none')],
    ['allowed origins', list(project.allowedOrigins, 'all')],
    ['scrub', unlessEmpty(scrubbed)?.join(', ')],
    ['fill ip', project.fillIp ? 'yes' : undefined],
  ]);
}
