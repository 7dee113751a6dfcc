/** `sluice project list`: chooses and sorts projects, and makes a table of 80 columns. */
import { matchesText, type ProjectJson } from '../../management/project-json.ts';
import { type PlanLimits, rateLimitOf } from '../../projects/project.ts';
import { compareIds } from '../../projects/project-store.ts';
import { inOneLine, table } from '../print.ts';

const COLUMNS = 80;
const NAME_CHARS_MIN = 4;

export const PROJECT_STATES = ['enabled', 'disabled', 'no key'] as const;
export type ProjectStatus = (typeof PROJECT_STATES)[number];
const stateOf = ({ enabled, key }: ProjectJson): ProjectStatus => {
  if (!enabled) return 'disabled';
  return key === undefined ? 'no key' : 'enabled';
};

/** Matches the state of a project in its line, after the id. */
export const STATES = new RegExp(`^\\S+ +(?<state>${PROJECT_STATES.join('|')})(?= )`, 'gm');

export const SORT_FIELDS = ['id', 'name', 'plan', 'limit', 'quota', 'state'] as const;
export type SortField = (typeof SORT_FIELDS)[number];

type Wanted = {
  search?: string;
  tag?: string;
  state?: ProjectStatus;
  sort: SortField;
  planLimits: PlanLimits;
};

/** Chooses the wanted projects and sorts them. Those without a value to sort by come last. */
export function chosenOf(projects: readonly ProjectJson[], wanted: Wanted): ProjectJson[] {
  const { search = '', tag, state, sort, planLimits } = wanted;
  const chosen = projects.filter(
    (one) =>
      matchesText(one, search) &&
      (tag === undefined || one.tags?.includes(tag)) &&
      (state === undefined || stateOf(one) === state),
  );
  const rankOf = (one: ProjectJson): string | number | undefined => {
    if (sort === 'limit') return rateLimitOf(one, planLimits);
    return sort === 'state' ? stateOf(one) : one[sort];
  };
  const compare = (one: ProjectJson, other: ProjectJson): number => {
    const [value, than] = [rankOf(one), rankOf(other)];
    if (sort === 'id' || value === than) return compareIds(one.id, other.id);
    if (value === undefined || than === undefined) return value === undefined ? 1 : -1;
    return value < than ? -1 : 1;
  };
  return chosen.sort(compare);
}

const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const short = (value: number | undefined): string => (value === undefined ? 'none' : SHORT.format(value));

const cut = (text: string, chars: number): string =>
  text.length > chars ? `${text.slice(0, chars - 1)}…` : text;

export function projectsText(projects: readonly ProjectJson[], planLimits: PlanLimits): string {
  const rows = projects.map((one) => [
    one.id,
    stateOf(one),
    one.plan,
    short(rateLimitOf(one, planLimits)),
    `${short(one.quota)}${one.overage && one.quota !== undefined ? '+' : ''}`,
    `${one.keys.length}`,
  ]);
  const heads = ['ID', 'STATE', 'PLAN', '/ MIN', 'QUOTA', 'KEYS', 'NAME'];
  const width = table(heads.slice(0, -1), rows).split('\n')[0]?.length ?? 0;
  const room = Math.max(NAME_CHARS_MIN, COLUMNS - width - 2);
  const named = rows.map((row, at) => [...row, cut(inOneLine(projects[at]?.name ?? ''), room)]);
  return table(heads, named, ['/ MIN', 'QUOTA', 'KEYS']);
}
