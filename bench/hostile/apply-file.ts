/**
 * Files of `sluice project apply` that a seed derives, each with the projects that it declares. A file has at most one fault, so what
 * must be said of it is certain. The last part damages such files anywhere.
 */
import type { FileProject } from '../../src/commands/project/project-file.ts';
import type { Project } from '../../src/projects/project.ts';
import { hex, integer, pick, type Random } from '../random.ts';
import { booleanNode, type Entry, type Node, numberNode, textNode, YamlWriter } from './yaml-writer.ts';

export const FILE_NAME = 'projects.yaml';

export type DerivedFile = {
  text: string;
  /** Projects that the file declares; undefined: it must be refused. */
  declared: FileProject[] | undefined;
  /** How the message begins that refuses the file. Without a line in it, any line may follow. */
  refusal: string | undefined;
  how: string;
};

const NAMES = [
  ...['Shop', 'my shop', '007', 'true', '1e3', '0x10', '.nan', 'null', 'it’s', "it's", '"quoted"', 'a: b'],
  ...['# no comment', '- no list', '{', '*alias', '&anchor', '!!str', '| ', 'two\nlines', '\ttab', ' ', '\0'],
  ...[
    '\u202eb',
    '\u{1f6d2}',
    'ünï',
    '\u0085',
    '\ufeff',
    '\\',
    '%',
    '@',
    '`',
    '<<',
    '---',
    '...',
    'x'.repeat(100),
  ],
];
const TAGS = ['web', 'team/a.b:c', '007', 'x-1', '_', 'true', '1e3', 'a'.repeat(40)];
const ORIGINS = ['*.x.com', 'https://y.org', 'localhost:3000', '*', 'http://[::1]:80', 'a.b'];
const SCRUB_KEYS = ['ssn', 'birth date', '007', 'ä', 'x'.repeat(64)];
const PLANS = ['Free', 'Starter', 'Pro', 'Business', 'Scale', 'Platform'] as const;
const FILTERS = ['browser-extension', 'localhost', 'crawler'] as const;
const SCRUBS = ['emails', 'cards', 'ips', 'user-ip', 'keys'] as const;
const CATEGORIES = ['errors', 'transactions', 'spans', 'logs', 'replays'] as const;
const MOMENTS = ['2020-01-01T00:00:00Z', '2130-01-01T00:00:00.000Z', '2029-02-28T23:59:59.999Z'];
/** Fields of which everything is read as text. */
const TEXTS: readonly string[] = ['id', 'alias', 'name', 'tags', 'key', 'label'];

type Value = string | number | boolean | Value[] | { [name: string]: Value };

function nodeOf(value: Value, random: Random, isText = false): Node {
  if (typeof value === 'string') return textNode(value, random, isText);
  if (typeof value === 'number') return numberNode(value, random);
  if (typeof value === 'boolean') return booleanNode(value, random);
  if (Array.isArray(value)) return { list: value.map((one) => nodeOf(one, random, isText)) };
  return { map: entriesOf(value, random) };
}
const entriesOf = (fields: Record<string, Value>, random: Random): Entry[] =>
  Object.entries(fields).map(([name, value]) => [name, nodeOf(value, random, TEXTS.includes(name))]);

function some<T>(random: Random, list: readonly T[], atMost = 3): T[] {
  const left = [...list];
  const count = integer(random, 0, Math.min(atMost, left.length));
  return Array.from({ length: count }, () => left.splice(integer(random, 0, left.length - 1), 1)[0] as T);
}
const shuffled = <T>(random: Random, list: readonly T[]): T[] => {
  const left = [...list];
  return list.map(() => left.splice(integer(random, 0, left.length - 1), 1)[0] as T);
};
const limit = (random: Random): number => pick(random, [1, 9, integer(random, 1, 100_000), 100_000]);
const keyText = (random: Random): string => `${pick(random, ['', '0', '-', '_', 'K'])}${hex(random, 24)}`;

/** A key as it is written, and what is declared by that. */
function keyOf(random: Random): Record<string, Value> {
  const rare = (): boolean => random() < 0.3;
  return {
    key: keyText(random),
    ...(rare() && { label: pick(random, NAMES) }),
    ...(rare() && { enabled: random() < 0.5 }),
    ...(rare() && { expires: pick(random, MOMENTS) }),
    ...(rare() && { rateLimit: limit(random) }),
    ...(random() < 0.1 && { id: 'cd', dsn: 'http://k@h/1' }),
  };
}

const isRemoved = (scrub: string): boolean => scrub === 'ips' || scrub === 'user-ip';

/** Fields that a project may have beside id and plan, in the values of a sound file. */
function optionalFields(random: Random): Record<string, Value> {
  const rare = (): boolean => random() < 0.2;
  const fillIp = rare() && random() < 0.5;
  const keys = rare() && Array.from({ length: integer(random, 1, 3) }, () => keyOf(random));
  return {
    ...(rare() && { name: pick(random, NAMES) }),
    ...(rare() && { tags: some(random, [...TAGS, ...TAGS]) }),
    ...(rare() && { enabled: random() < 0.5 }),
    ...(rare() && { key: keys ? (pick(random, keys).key as string) : keyText(random) }),
    ...(keys && { keys }),
    ...(rare() && { rateLimit: limit(random) }),
    ...(rare() && {
      rateLimits: Object.fromEntries(some(random, CATEGORIES).map((one) => [one, limit(random)])),
    }),
    ...(rare() && { quota: pick(random, [0, 1, 1_000_000, Number.MAX_SAFE_INTEGER]) }),
    ...(rare() && { overage: random() < 0.5 }),
    ...(rare() && { filters: some(random, FILTERS) }),
    ...(rare() && { allowedOrigins: some(random, ORIGINS) }),
    ...(rare() && { scrub: some(random, SCRUBS).filter((one) => !fillIp || !isRemoved(one)) }),
    ...(rare() && { scrubKeys: some(random, SCRUB_KEYS) }),
    ...((fillIp || rare()) && { fillIp }),
  };
}

/** What a file declares by these fields: left-out fields have their defaults. */
function declaredBy({ keys, dsn: _, ...fields }: Record<string, Value>): FileProject {
  const bare = (keys as Record<string, Value>[] | undefined)?.map(({ id: _id, dsn: _dsn, ...key }) => ({
    enabled: true,
    ...key,
  }));
  const project = {
    overage: false,
    filters: [...FILTERS],
    allowedOrigins: [],
    ...fields,
    ...(bare && { keys: bare }),
  };
  return project as unknown as FileProject;
}

// ---- one fault ----

/**
 * A file that is being made. `fields` are the projects as they are written. `strays` stand behind them in their list, `beside` beside
 * that list, and `tail` behind all.
 */
type Draft = {
  projects: Record<string, Value>[];
  fields: Entry[][];
  strays: Node[];
  beside: Entry[];
  tail: string;
};
type Lines = ReadonlyMap<string, number>;
/** Damages a draft. @returns how the message begins, once the lines are known */
type Break = (draft: Draft, random: Random) => (lines: Lines) => string;
/** `path`: of the wrong field in its project. `line`: of the value whose line is told. `who`: if the project is not named by its id. */
type Fault = { path: string; line?: string; who?: string | undefined };
/** Damages the fields of one project. */
type FieldBreak = (fields: Entry[], random: Random) => Fault;

const raw = (text: string): Node => ({ raw: text });
function put(fields: Entry[], name: string, node: Node): void {
  const at = fields.findIndex(([found]) => found === name);
  if (at < 0) fields.push([name, node]);
  else fields[at] = [name, node];
}
const drop = (fields: Entry[], name: string): void => {
  const at = fields.findIndex(([found]) => found === name);
  if (at >= 0) fields.splice(at, 1);
};
const long = (length: number): string => 'x'.repeat(length);

/** Values that are wrong as a whole. */
const WRONG: Readonly<Record<string, readonly string[]>> = {
  alias: ['"01"', '0', 'x', '""', 'null', '[]', '{}', '1.5', '-1', '12345678901234567890'],
  name: ['""', 'null', '[]', '{}', long(101)],
  tags: ['web', 'null', '{}', '5'],
  enabled: ['1', 'yes', 'null', '"true"', '[]'],
  key: ['""', '"a b"', long(65), 'null', '[]', 'ü', '{}'],
  plan: ['Gold', 'free', 'null', '1', '[]', '""', 'Pro ü', '"Pro "'],
  rateLimit: ['0', '100001', '-1', '1.5', '"5"', 'many', 'null', '.inf', '.nan', '[]', 'true', '1e9'],
  rateLimits: ['null', '5', '[]', 'errors'],
  quota: ['-1', '1.5', '9007199254740992', '"5"', 'null', '1e300'],
  overage: ['no', '1', 'null', '"false"'],
  filters: ['crawler', 'null', '{}'],
  allowedOrigins: ['x.com', 'null', '{}', '["ftp://x"]', '["x/y"]', '[""]', '["*.*"]'],
  scrub: ['emails', 'null', '{}'],
  scrubKeys: ['ssn', 'null', '{}'],
  fillIp: ['yes', 'null', '1'],
  revision: ['-1', '1.5', '"1"', 'null', '[]'],
  keys: ['[]', 'null', '{}', 'k', '[{ key: k }, { key: k }]'],
};
const WRONG_NAMES = Object.keys(WRONG);
/** Members of lists and maps that are wrong. */
const WRONG_INSIDE: readonly (readonly [field: string, member: string, before: Node[], wrong: string])[] = [
  ['tags', '', [], '"a b"'],
  ['tags', '', [raw('web')], '""'],
  ['tags', '', [], 'null'],
  ['filters', '', [raw('crawler')], 'spam'],
  ['filters', '', [], '5'],
  ['allowedOrigins', '', [raw('y.org')], '5'],
  ['scrub', '', [], 'email'],
  ['scrubKeys', '', [raw('ssn')], '"a,b"'],
  ['scrubKeys', '', [], '"--"'],
  ['scrubKeys', '', [], '007'],
  ['keys', '', [], 'k'],
  ['keys', 'key', [], '"a b"'],
  ['keys', 'label', [{ map: [['key', raw('other')]] }], '""'],
  ['keys', 'enabled', [], 'yes'],
  ['keys', 'expires', [], '30d'],
  ['keys', 'expires', [], '2030-01-01'],
  ['keys', 'rateLimit', [{ map: [['key', raw('other')]] }], '0'],
  ['keys', 'colour', [], 'red'],
  ['keys', '__proto__', [], '{}'],
];
/** A project is named by its id, if that is a text, whatever is wrong with it. */
const WRONG_IDS: readonly (readonly [wrong: string, who: string])[] = [
  ['007', '007'],
  ['0', '0'],
  ['x', 'x'],
  ['1.5', '1.5'],
  ['0x10', '0x10'],
  ['true', 'true'],
  ['"a b"', 'a b'],
  ['12345678901234567890', '12345678901234567890'],
  ['null', ''],
  ['[]', ''],
  ['{}', ''],
];
const UNKNOWN = ['colour', 'Plan', 'idx', 'constructor', 'toString', 'rate-limit', '__proto__'];
/** Lists with one entry more than they may have. */
const TOO_MANY: readonly (readonly [path: string, length: number, entry: (at: number) => Node])[] = [
  ['tags', 21, () => raw('x')],
  ['keys', 101, (at) => ({ map: [['key', raw(`k${at}`)]] })],
  ['allowedOrigins', 101, () => raw('x.com')],
  ['scrubKeys', 51, () => raw('x')],
];

const told = (line: number | undefined, text: string): string =>
  `${FILE_NAME}${line === undefined ? '' : `:${line}`}: ${text}`;

const inOneProject =
  (damage: FieldBreak): Break =>
  ({ projects, fields }, random) => {
    const at = integer(random, 0, projects.length - 1);
    const { path, line = path, who } = damage(fields[at] as Entry[], random);
    const name = who === '' ? `project number ${at + 1}` : `project ${who ?? projects[at]?.id}`;
    const place = ['projects', at, ...(line === '' ? [] : [line])].join('.');
    return (lines) => told(lines.get(place), `${name}, ${path}: `);
  };

/** Faults in one project. */
const FIELD_BREAKS: Readonly<Record<string, FieldBreak>> = {
  'a wrong value': (fields, random) => {
    const name = pick(random, WRONG_NAMES);
    put(fields, name, raw(pick(random, WRONG[name] as string[])));
    if (name === 'key' || name === 'keys') drop(fields, name === 'key' ? 'keys' : 'key');
    return { path: name };
  },
  'a wrong member': (fields, random) => {
    const [field, member, before, wrong] = pick(random, WRONG_INSIDE);
    const key: Entry[] = member === 'key' ? [] : [['key', raw('k')]];
    const node: Node = member === '' ? raw(wrong) : { map: [...key, [member, raw(wrong)]] };
    put(fields, field, { list: [...before, node] });
    if (field === 'keys') drop(fields, 'key');
    return { path: [field, before.length, ...(member === '' ? [] : [member])].join('.') };
  },
  'a wrong limit of a category': (fields, random) => {
    const [name, node] = pick(random, [['errors', raw('0')] as const, ['logs', raw('x')] as const]);
    put(fields, 'rateLimits', {
      map: [
        ['spans', raw('5')],
        [name, node],
      ],
    });
    return { path: `rateLimits.${name}` };
  },
  'an unknown category': (fields) => {
    put(fields, 'rateLimits', { map: [['sessions', raw('5')]] });
    return { path: 'rateLimits.sessions' };
  },
  'an unknown field': (fields, random) => {
    const name = pick(random, UNKNOWN);
    fields.splice(integer(random, 0, fields.length), 0, [name, raw(pick(random, ['1', 'null', '{}', '[]']))]);
    return { path: name };
  },
  'no plan': (fields) => {
    drop(fields, 'plan');
    return { path: 'plan', line: '' };
  },
  'a key without a key': (fields) => {
    put(fields, 'keys', { list: [{ map: [['label', raw('x')]] }] });
    drop(fields, 'key');
    return { path: 'keys.0.key', line: 'keys.0' };
  },
  'a wrong id': (fields, random) => {
    const [wrong, who] = pick(random, WRONG_IDS);
    put(fields, 'id', raw(wrong));
    return { path: 'id', who };
  },
  'no id': (fields) => {
    drop(fields, 'id');
    return { path: 'id', line: '', who: '' };
  },
  'an alias that is the id': (fields) => {
    put(fields, 'id', raw('777777777777777777'));
    put(fields, 'alias', raw('"777777777777777777"'));
    return { path: 'alias', who: '777777777777777777' };
  },
  'a key that is none of the keys': (fields) => {
    put(fields, 'key', raw('other'));
    put(fields, 'keys', { list: [{ map: [['key', raw('k')]] }] });
    return { path: 'key' };
  },
  'an address that would be removed': (fields, random) => {
    put(fields, 'fillIp', raw('true'));
    put(fields, 'scrub', { list: [raw('emails'), raw(pick(random, ['ips', 'user-ip']))] });
    return { path: 'fillIp' };
  },
  'too many entries': (fields, random) => {
    const [path, length, entry] = pick(random, TOO_MANY);
    put(fields, path, { list: Array.from({ length }, (_, at) => entry(at)) });
    if (path === 'keys') drop(fields, 'key');
    return { path };
  },
};

/** Faults of a file with projects. */
const BREAKS: Readonly<Record<string, Break>> = {
  ...Object.fromEntries(Object.entries(FIELD_BREAKS).map(([how, damage]) => [how, inOneProject(damage)])),
  'a name of another project': ({ projects, fields }, random) => {
    if (projects.length === 1) {
      projects.push({ id: '555555555555555555', plan: 'Pro' });
      fields.push([
        ['id', raw('555555555555555555')],
        ['plan', raw('Pro')],
      ]);
    }
    const [first, last] = [integer(random, 0, projects.length - 2), projects.length - 1];
    const { id, alias = id } = projects[first] as { id: string; alias?: string };
    const taken = pick(random, [id, alias]);
    const field = pick(random, /^\d+$/.test(taken) ? ['id', 'alias'] : ['id']);
    const own = fields[last] as Entry[];
    put(own, field, raw(`"${taken}"`));
    // The alias that it had may be the name that it has now.
    if (field === 'id') drop(own, 'alias');
    const who = field === 'id' ? taken : projects[last]?.id;
    const text = `project ${who}, ${field}: ${taken} is also the id or alias of project number ${first + 1} in this file`;
    return (lines) => told(lines.get(`projects.${last}.${field}`), text);
  },
  'a field twice': ({ fields }, random) => {
    const at = integer(random, 0, fields.length - 1);
    const own = fields[at] as Entry[];
    const again = pick(random, own);
    own.push(again);
    return (lines) => told(lines.get(`projects.${at}.${again[0]}'`), 'Map keys must be unique');
  },
};
const BREAK_NAMES = Object.keys(BREAKS);

/** Faults of any file. */
const OUTER_BREAKS: Readonly<Record<string, Break>> = {
  'a field beside projects': ({ beside }, random) => {
    const name = pick(random, ['project', 'version', '__proto__', 'constructor']);
    beside.push([name, raw(pick(random, ['1', 'null', '[]']))]);
    return (lines) => told(lines.get(name), `${name}: there is no such field`);
  },
  'a project that is no object': ({ fields, strays }, random) => {
    strays.push(raw(pick(random, ['null', '5', '[]', 'x', '""'])));
    const at = fields.length;
    return (lines) => told(lines.get(`projects.${at}`), `project number ${at + 1}: it must be an object`);
  },
  'no YAML': (draft, random) => {
    draft.tail = pick(random, ['\n}', '\n"', '\n---\n{}\n', '\n]', '\n%%%\n"', '\n\t- {']);
    return () => `${FILE_NAME}:`;
  },
};
const OUTER_NAMES = Object.keys(OUTER_BREAKS);

// ---- whole files ----

/** A project that the registry has already. */
export type Known = Pick<Project, 'id' | 'alias'> & { revision: number };

/** Names that no project has yet. */
function freshName(random: Random, used: Set<string>, isNumeric: boolean): string {
  for (;;) {
    const digits = `${integer(random, 1, 9)}${integer(random, 0, 999_999_999)}`;
    const name = isNumeric
      ? digits.slice(0, integer(random, 1, 10))
      : `c${hex(random, integer(random, 19, 31))}`;
    if (used.has(name)) continue;
    used.add(name);
    return name;
  }
}

/** @param known projects that may be declared anew; no other project gets a name of theirs */
function projectsOf(random: Random, known: readonly Known[]): Record<string, Value>[] {
  const used = new Set(known.flatMap(({ id, alias }) => (alias === undefined ? [id] : [id, alias])));
  const left = [...known];
  return Array.from({ length: pick(random, [0, 1, 1, 1, 1, 1, 2, 2, 3]) }, () => {
    const isKnown = left.length > 0 && random() < 0.6;
    const found = isKnown ? left.splice(integer(random, 0, left.length - 1), 1)[0] : undefined;
    const id = found?.id ?? freshName(random, used, random() < 0.7);
    const alias = random() < 0.2 && { alias: freshName(random, used, true) };
    const revision = random() < 0.2 && { revision: found?.revision ?? integer(random, 0, 99) };
    const plan = pick(random, PLANS);
    const dsn = random() < 0.1 && { dsn: pick(random, ['http://k@h/1', 5, [], ''] as Value[]) };
    return { id, plan, ...alias, ...revision, ...dsn, ...optionalFields(random) };
  });
}

/** Lets two projects share a list, by an anchor and an alias of YAML. */
function shareList({ projects, fields }: Draft): void {
  const [first, second] = projects;
  const [written, again] = fields;
  if (!first || !second || !written || !again) return;
  first.filters = ['localhost'];
  second.filters = ['localhost'];
  put(written, 'filters', raw('&shared [localhost]'));
  put(again, 'filters', raw('*shared'));
}

function textOf({ fields, strays, beside, tail }: Draft, random: Random): { text: string; lines: Lines } {
  const writer = new YamlWriter(random);
  const list: Node[] = [...fields.map((map) => ({ map })), ...strays];
  const all = shuffled(random, [['projects', { list }] as const, ...beside]);
  writer.put(pick(random, ['', '', '# Projects: {\n', '---\n', '%YAML 1.2\n---\n', '\ufeff']));
  if (random() < 0.2) writer.flow({ map: all }, '', 0);
  else writer.block(all, '', 0);
  writer.put(tail === '' ? pick(random, ['', '\n', '\n\n', '\n...\n', '\n# end']) : tail);
  const text = random() < 0.05 ? writer.text.replaceAll('\n', '\r\n') : writer.text;
  return { text, lines: writer.lines };
}

/**
 * About as many files that are to be applied as such that are to be refused.
 * @param known projects that may be declared anew; no other project gets a name of theirs
 */
export function derivedFile(
  random: Random,
  known: readonly Known[] = [],
  isFaulty = random() < 0.5,
): DerivedFile {
  const projects = projectsOf(random, known);
  const fields = projects.map((project) => shuffled(random, entriesOf(project, random)));
  const draft: Draft = { projects, fields, strays: [], beside: [], tail: '' };
  if (!isFaulty) {
    if (random() < 0.1) shareList(draft);
    const { text } = textOf(draft, random);
    return { text, declared: projects.map(declaredBy), refusal: undefined, how: 'sound' };
  }
  const isOuter = projects.length === 0 || random() < 0.1;
  const how = pick(random, isOuter ? OUTER_NAMES : BREAK_NAMES);
  const refusalIn = ((isOuter ? OUTER_BREAKS : BREAKS)[how] as Break)(draft, random);
  const { text, lines } = textOf(draft, random);
  return { text, declared: undefined, refusal: refusalIn(lines), how };
}

// ---- damage ----

/** Signs and words of YAML, values of the wrong type, names that JavaScript knows. */
const PIECES = [
  ...['&a ', '*a', '<<: *a', '!!binary ', '!!set ', '!!js/function ', '? ', '? [a]\n: ', '| ', '> '],
  ...['---\n', '...\n', '%YAML 1.1\n', '{', '}', '[', ']', ':', ': ', ',', '- ', '\n', '  ', '\t', '"', "'"],
  ...[
    '#',
    '~',
    '@',
    '`',
    '\0',
    '\ufeff',
    '\ud800',
    'null',
    'true',
    '1e400',
    '-1',
    '.nan',
    '0x10',
    '2030-01-01',
  ],
  ...['9007199254740993', '__proto__: 1', 'constructor: {}', 'projects: ', '\x1b[2J', '\u2028', '\r'],
];

type Damage = (random: Random) => readonly [dropped: number, put: string];
const DAMAGES: readonly Damage[] = [
  (random) => [0, pick(random, PIECES)],
  (random) => [integer(random, 1, 12), pick(random, PIECES)],
  (random) => [integer(random, 1, 12), ''],
  (random) => [1, String.fromCharCode(integer(random, 0, 255))],
  (random) => [1, pick(random, ['0', '1', '9', 'a', 'e', 'x'])],
  (random) => [1, pick(random, ['0', '1', '9', 'a', 'e', 'x'])],
];

/** A derived file that broke in one place or a few. */
export function damagedFile(random: Random, known: readonly Known[] = []): string {
  let { text } = derivedFile(random, known, random() < 0.2);
  for (let left = pick(random, [1, 1, 1, 2, 4]); left > 0; left--) {
    const from = integer(random, 0, text.length);
    const [dropped, put] = pick(random, DAMAGES)(random);
    text = text.slice(0, from) + put + text.slice(from + dropped);
  }
  return text;
}
