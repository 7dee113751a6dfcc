/** `sluice project keys`: the keys of one project. */
import { Command } from 'commander';
import { systemClock } from '../../lib/clock.ts';
import { LABEL_CHARS_MAX, RATE_LIMIT_MAX, RATE_LIMIT_MIN } from '../../limits.ts';
import { addKey, changeKey, keyId, keysOf } from '../../projects/keys.ts';
import type { Project, ProjectKey } from '../../projects/project.ts';
import { mintKey, ProjectStore } from '../../projects/project-store.ts';
import { type HoursOfUse, readUse } from '../../usage/key-use.ts';
import { printJson, printLine, record, table } from '../print.ts';
import { type Session, withSession } from '../session.ts';
import { checked, integerIn, keyJson, parseKey, parseProjectId, refuse } from './fields.ts';

type Output = { json?: boolean };
type AddFlags = Output & { label?: string; expires?: string; rateLimit?: number; key?: string };

const UNITS_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 7 * 86_400_000 } as const;
const DURATION = /^([1-9]\d{0,4})([smhdw])$/;
const DATE = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/;

/** @returns ms */
export function parseDuration(text: string): number {
  const [, count, unit] = DURATION.exec(text) ?? [];
  if (count === undefined) return refuse('It is a number and a unit: 90s, 30m, 12h, 30d or 4w.');
  return Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
}

/** A duration from now, or the moment at which a date (UTC) begins. @returns RFC 3339 */
function parseExpiry(text: string): string {
  const now = systemClock.now();
  const at = DURATION.test(text)
    ? now + parseDuration(text)
    : DATE.test(text)
      ? Date.parse(text)
      : Number.NaN;
  if (Number.isNaN(at)) return refuse('It is a duration such as 30d, a date (2027-01-31), or RFC 3339.');
  return at > now ? new Date(at).toISOString() : refuse('It has passed already.');
}

const parseLabel = (text: string): string =>
  text.length >= 1 && text.length <= LABEL_CHARS_MAX
    ? text
    : refuse(`A label has 1 to ${LABEL_CHARS_MAX} characters.`);

const parseKeyId = (text: string): string =>
  /^[0-9a-f]{8}$/.test(text) ? text : refuse('A key id is 8 hex digits, as sluice project keys list shows.');

const stateOf = ({ enabled, expires }: ProjectKey): string => {
  if (!enabled) return 'disabled';
  return expires !== undefined && Date.parse(expires) <= systemClock.now() ? 'expired' : 'enabled';
};

/** Of one key. */
function print(
  session: Session,
  { project, key }: { project: Project; key: ProjectKey },
  flags: Output,
): void {
  const json = keyJson(project, key, session.publicUrl);
  if (flags.json) return printJson(json);
  printLine(
    record([
      ['id', keyId(key.key)],
      ['key', key.key],
      ['dsn', String(json.dsn)],
      ...(key.label === undefined ? [] : [['label', key.label] as const]),
      ['state', stateOf(key)],
      ...(key.expires === undefined ? [] : [['expires', key.expires] as const]),
      ...(key.rateLimit === undefined ? [] : [['rate limit', `${key.rateLimit} a minute`] as const]),
    ]),
  );
}

function keysText(keys: readonly ProjectKey[], used: HoursOfUse): string {
  const rows = keys.map((key) => [
    keyId(key.key),
    key.key,
    key.label ?? '',
    stateOf(key),
    key.expires ?? 'never',
    key.rateLimit === undefined ? '' : `${key.rateLimit}`,
    used[keyId(key.key)] ?? 'never',
  ]);
  return table(['ID', 'KEY', 'LABEL', 'STATE', 'EXPIRES', 'PER MINUTE', 'LAST USED'], rows);
}

async function add(id: string, flags: AddFlags): Promise<void> {
  const key: ProjectKey = {
    key: flags.key ?? mintKey(),
    ...(flags.label !== undefined && { label: flags.label }),
    enabled: true,
    ...(flags.expires !== undefined && { expires: flags.expires }),
    ...(flags.rateLimit !== undefined && { rateLimit: flags.rateLimit }),
  };
  await withSession(async (session) => {
    const store = await ProjectStore.open(await session.nats());
    const change = (project: Project): Project => checked(addKey(project, key, systemClock.now()));
    print(session, { project: await store.set(id, change), key }, flags);
  });
}

async function list(id: string, flags: Output): Promise<void> {
  await withSession(async (session) => {
    const link = await session.nats();
    const project = await (await ProjectStore.open(link)).get(id);
    const used = await readUse(link, project.id);
    const keys = keysOf(project);
    if (!flags.json) return printLine(keysText(keys, used));
    const json = keys.map((key) => {
      const lastUsed = used[keyId(key.key)];
      return { ...keyJson(project, key, session.publicUrl), ...(lastUsed !== undefined && { lastUsed }) };
    });
    printJson(json);
  });
}

/** Changes one key, or removes it, and prints it as it is then, or was. */
const changing =
  (to: (key: ProjectKey) => ProjectKey | undefined) =>
  (idOrAlias: string, id: string, flags: Output): Promise<void> =>
    withSession(async (session) => {
      const store = await ProjectStore.open(await session.nats());
      let changed: ProjectKey | undefined;
      const change = (key: ProjectKey): ProjectKey | undefined => {
        const after = to(key);
        changed = after ?? key;
        return after;
      };
      const project = await store.set(idOrAlias, (before) =>
        changeKey(before, id, { now: systemClock.now(), change }),
      );
      print(session, { project, key: changed as ProjectKey }, flags);
    });

const CHANGES = {
  disable: ['refuse requests with this key, within a second', (key) => ({ ...key, enabled: false })],
  enable: ['accept requests with this key again', (key) => ({ ...key, enabled: true })],
  remove: ['delete this key; requests with it are refused within a second', () => undefined],
} as const satisfies Record<string, readonly [string, (key: ProjectKey) => ProjectKey | undefined]>;

export function keysCommand(): Command {
  const command = new Command('keys').description('add, look at and change the keys of a project');
  const json = ['--json', 'print JSON'] as const;
  command
    .command('add')
    .description('add a key to a project and print it')
    .argument('<id>', 'id or alias', parseProjectId)
    .option('--label <text>', 'what the key is for', parseLabel)
    .option('--expires <when>', 'a duration such as 30d, a date (UTC), or RFC 3339', parseExpiry)
    .option(
      '--rate-limit <n>',
      "requests a minute with this key, within the project's",
      integerIn(RATE_LIMIT_MIN, RATE_LIMIT_MAX),
    )
    .option('--key <key>', 'the public key; minted when left out', parseKey)
    .option(...json)
    .action(add);
  command
    .command('list')
    .description('print the keys of a project, with the hour in which each was last used')
    .argument('<id>', 'id or alias', parseProjectId)
    .option(...json)
    .action(list);
  for (const [name, [description, to]] of Object.entries(CHANGES))
    command
      .command(name)
      .description(description)
      .argument('<id>', 'id or alias', parseProjectId)
      .argument('<keyId>', 'as list shows it', parseKeyId)
      .option(...json)
      .action(changing(to));
  return command;
}
