/** A project's fields as flags of a command line, and a project as it is printed. Pure. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { originPatternProblem } from '../../filter/inbound.ts';
import { RATE_LIMIT_MAX, RATE_LIMIT_MIN } from '../../limits.ts';
import type { ProjectChanges, ProjectJson } from '../../management/project-json.ts';
import {
  FILTERS,
  type FilterName,
  isNumericId,
  isProjectId,
  PLANS,
  type Plan,
  type PlanLimits,
  type Project,
  rateLimitOf,
} from '../../projects/project.ts';
import { record, table } from '../print.ts';

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
};

const refuse = (message: string): never => {
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

function parseKey(text: string): string {
  return /^\w{1,64}$/.test(text) ? text : refuse('A key is 1 to 64 letters, digits or underscores.');
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

function parseFilters(text: string): FilterName[] {
  if (text === 'none') return [];
  const names = [...new Set(text.split(',').map((name) => name.trim()))];
  const known = (name: string): name is FilterName => FILTERS.some((filter) => filter === name);
  return names.every(known)
    ? names
    : refuse(`It is none, or a comma-separated list of ${FILTERS.join(', ')}.`);
}

function parseOrigins(text: string, before: string[] | undefined): string[] {
  if (before !== undefined && (text === 'none' || before.length === 0))
    return refuse('It is none, or patterns, not both.');
  if (text === 'none') return [];
  const problem = originPatternProblem(text);
  if (problem !== undefined) return refuse(problem);
  return [...new Set([...(before ?? []), text])];
}

/** Adds the flags that `create` and `set` share. */
export function withProjectFlags(command: Command): Command {
  return command
    .option('--alias <n>', 'a numeric name beside the id, used in the DSN', parseAlias)
    .option('--key <key>', 'the public key: 1 to 64 letters, digits or underscores', parseKey)
    .addOption(new Option('--plan <plan>', 'decides the default rate limit').choices(PLANS))
    .option('--quota <n>', 'accepted requests a month, or none', integerOrNone(0, Number.MAX_SAFE_INTEGER))
    .option('--overage', 'go on accepting beyond the quota')
    .option('--no-overage', 'refuse beyond the quota')
    .option(
      '--rate-limit <n>',
      `requests a minute in place of the plan's, ${RATE_LIMIT_MIN} to ${RATE_LIMIT_MAX}, or none`,
      integerOrNone(RATE_LIMIT_MIN, RATE_LIMIT_MAX),
    )
    .option('--filter <names>', `inbound filters: ${FILTERS.join(',')}, or none`, parseFilters)
    .option(
      '--allow-origin <patterns...>',
      'browser origins that may send, [scheme://]host[:port] with *.host for subdomains; or none',
      parseOrigins,
    );
}

const figureOf = (flag: number | 'none'): number | undefined => (flag === 'none' ? undefined : flag);

/** Only the fields that the flags name, in the record's terms; undefined clears a field. */
export function changesOf(flags: ProjectFlags): ProjectChanges {
  return {
    ...(flags.alias !== undefined && { alias: flags.alias }),
    ...(flags.key !== undefined && { key: flags.key }),
    ...(flags.plan !== undefined && { plan: flags.plan }),
    ...(flags.quota !== undefined && { quota: figureOf(flags.quota) }),
    ...(flags.overage !== undefined && { overage: flags.overage }),
    ...(flags.rateLimit !== undefined && { rateLimit: figureOf(flags.rateLimit) }),
    ...(flags.filter !== undefined && { filters: flags.filter }),
    ...(flags.allowOrigin !== undefined && { allowedOrigins: flags.allowOrigin }),
  };
}

const list = (words: readonly string[], none: string): string => (words.length > 0 ? words.join(', ') : none);

function limitText(project: Project, planLimits: PlanLimits): string {
  const inForce = rateLimitOf(project, planLimits);
  if (inForce === undefined) return 'none';
  return project.rateLimit === undefined ? `${inForce} (plan)` : `${inForce}`;
}

const quotaText = ({ quota, overage }: Project): string =>
  quota === undefined ? 'unlimited' : `${quota}${overage ? ' + overage' : ''}`;

export function projectText(project: ProjectJson, planLimits: PlanLimits): string {
  return record([
    ['id', project.id],
    ...(project.alias === undefined ? [] : [['alias', project.alias] as const]),
    ['key', project.key],
    ['dsn', project.dsn],
    ['plan', project.plan],
    ['rate limit', `${limitText(project, planLimits)}${rateLimitOf(project, planLimits) ? ' a minute' : ''}`],
    ['quota', quotaText(project)],
    ['filters', list(project.filters, 'none')],
    ['allowed origins', list(project.allowedOrigins, 'all')],
  ]);
}

export function projectsText(projects: readonly Project[], planLimits: PlanLimits): string {
  const rows = projects.map((project) => [
    project.id,
    project.alias ?? '',
    project.key,
    project.plan,
    limitText(project, planLimits),
    quotaText(project),
    list(project.filters, 'none'),
    list(project.allowedOrigins, 'all'),
  ]);
  return table(['ID', 'ALIAS', 'KEY', 'PLAN', 'PER MINUTE', 'QUOTA', 'FILTERS', 'ORIGINS'], rows);
}
