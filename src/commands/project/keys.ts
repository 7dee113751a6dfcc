/** `sluice project keys`: the keys of one project. */
import { Command } from 'commander';
import { systemClock } from '../../lib/clock.ts';
import { LABEL_CHARS_MAX, RATE_LIMIT_MAX, RATE_LIMIT_MIN } from '../../limits.ts';
import type { Operations } from '../../management/operations.ts';
import type { KeyJson } from '../../management/project-json.ts';
import { expiresAt } from '../../projects/project.ts';
import { printLine, record, table } from '../print.ts';
import { type ApiFlags, printUrls, remarkOnUrls, withApi, withOperations } from '../session.ts';
import { integerIn, parseKey, parseProjectId, refuse } from './fields.ts';

type Output = ApiFlags & { json?: boolean };
type AddFlags = Output & { label?: string; expires?: string; rateLimit?: number; key?: string };

const UNITS_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 7 * 86_400_000 } as const;
const DURATION = /^([1-9]\d{0,4})([smhdw])$/;
const DATE = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/;

/**
 * Parses a duration such as `90s` or `4w`.
 * @returns milliseconds
 */
export function parseDuration(text: string): number {
  const [, count, unit] = DURATION.exec(text) ?? [];
  if (count === undefined) return refuse('It is a number and a unit: 90s, 30m, 12h, 30d or 4w.');
  return Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
}

/**
 * Parses a date or an RFC 3339 text.
 * @returns Unix ms; NaN for any other text, and for a day that no month has, such as 2027-02-31
 */
function parseDate(text: string): number {
  const [, day] = DATE.exec(text) ?? [];
  const midnight = Date.parse(`${day}T00:00Z`);
  const isReal = !Number.isNaN(midnight) && new Date(midnight).toISOString().slice(0, 10) === day;
  return isReal ? Date.parse(text) : Number.NaN;
}

/**
 * Parses a future time: a duration from now, a date (its midnight in UTC), or RFC 3339.
 * @returns RFC 3339
 */
function parseExpiry(text: string): string {
  const now = systemClock.now();
  const at = DURATION.test(text) ? now + parseDuration(text) : parseDate(text);
  if (Number.isNaN(at)) return refuse('It is a duration such as 30d, a date (2027-01-31), or RFC 3339.');
  return at > now ? new Date(at).toISOString() : refuse('It has passed already.');
}

/**
 * Parses a past time: a duration ago, a date (its midnight in UTC), or RFC 3339.
 * @returns RFC 3339
 */
export function parsePast(text: string): string {
  const at = DURATION.test(text) ? systemClock.now() - parseDuration(text) : parseDate(text);
  if (Number.isNaN(at)) return refuse('It is a duration such as 2h, a date (2027-01-31), or RFC 3339.');
  return new Date(at).toISOString();
}

const parseLabel = (text: string): string =>
  text.length >= 1 && text.length <= LABEL_CHARS_MAX
    ? text
    : refuse(`A label has 1 to ${LABEL_CHARS_MAX} characters.`);

const parseKeyId = (text: string): string =>
  /^[0-9a-f]{8}$/.test(text) ? text : refuse('A key id is 8 hex digits, as sluice project keys list shows.');

const stateOf = (key: KeyJson): string => {
  if (!key.enabled) return 'disabled';
  return systemClock.now() < expiresAt(key) ? 'enabled' : 'expired';
};

function print(operations: Operations, key: KeyJson, { json }: Output): void {
  if (json) return printUrls(operations, key);
  printLine(
    record([
      ['id', key.id],
      ['key', key.key],
      ['dsn', key.dsn],
      ['', remarkOnUrls(operations)],
      ['label', key.label],
      ['state', stateOf(key)],
      ['expires', key.expires],
      ['rate limit', key.rateLimit && `${key.rateLimit} a minute`],
    ]),
  );
}

function keysText(keys: readonly KeyJson[]): string {
  const rows = keys.map((key) => [
    key.id,
    key.key,
    key.label ?? '',
    stateOf(key),
    key.expires ?? 'never',
    key.rateLimit === undefined ? '' : `${key.rateLimit}`,
    key.lastUsed ?? 'never',
  ]);
  return table(['ID', 'KEY', 'LABEL', 'STATE', 'EXPIRES', 'PER MINUTE', 'LAST USED'], rows);
}

async function add(id: string, flags: AddFlags): Promise<void> {
  const { label, expires, rateLimit, key } = flags;
  await withOperations(flags, async (operations) =>
    print(operations, (await operations.addKey(id, { label, expires, rateLimit, key })).key, flags),
  );
}

async function list(id: string, flags: Output): Promise<void> {
  await withOperations(flags, async (operations) => {
    const keys = await operations.listKeys(id);
    if (flags.json) printUrls(operations, keys);
    else printLine(keysText(keys));
  });
}

type Change = (operations: Operations, id: string, keyId: string) => Promise<KeyJson>;

const enabling =
  (enabled: boolean): Change =>
  async (operations, id, keyId) =>
    (await operations.setKey(id, keyId, { changes: { enabled } })).key;

const CHANGES: Readonly<Record<string, readonly [description: string, change: Change]>> = {
  disable: ['refuse requests with this key, within a second', enabling(false)],
  enable: ['accept requests with this key again', enabling(true)],
  remove: [
    'delete this key; requests with it are refused within a second',
    (operations, id, keyId) => operations.removeKey(id, keyId),
  ],
};

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
  for (const [name, [description, change]] of Object.entries(CHANGES))
    command
      .command(name)
      .description(description)
      .argument('<id>', 'id or alias', parseProjectId)
      .argument('<keyId>', 'as list shows it', parseKeyId)
      .option(...json)
      .action((id: string, keyId: string, flags: Output) =>
        withOperations(flags, async (operations) =>
          print(operations, await change(operations, id, keyId), flags),
        ),
      );
  for (const sub of command.commands) withApi(sub);
  return command;
}
