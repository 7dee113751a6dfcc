/** JSON that ingest accepts and that stores or their readers stumble over, by seed. */
import { integer, pick, type Random } from '../../bench/random.ts';
import type { TypedTable } from './reference.ts';

const nested = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;
const quoted = (text: string): string => JSON.stringify(text);

/** Values that a column may be asked to hold, by kind. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  'a text': ['"info"', '"r9"', '"u1"', '""', '" "', '"caf\u00e9 \u{1f600}"', '"\\u0063af\\u00e9"'],
  'an integer that no double holds': ['12345678901234567890123', '9007199254740993', '-9223372036854775809'],
  'a number beyond all': ['1e400', '-1e400', '1e308', '1e999999', '1e-400'],
  'a number': ['0', '-0', '5', '1.50', '1e3', '1e+2', '2E-1', '-1', '1.9', '4294967295', '4294967296', '1.0'],
  'a number as text': ['"5"', '"42"', '"1e5"', '"1700000000"', '"1700000000.25"', '"-1"'],
  'lone surrogates': ['"\\ud800"', '"a\\udfffb"', '"\\ud83d"', '"\\ud83dx\\ude00"'],
  'an emoji cut by a length': [quoted('\u{1f600}'.slice(0, 1)), '"error \\ud83d\u2026"'],
  NUL: ['"a\\u0000b"', '"\\u0000"'],
  'backslashes and quotes': ['"CORP\\\\bob"', '"\\"q\\""', '"\\\\"', '"\\/a\\/"', '"\'a\'\\t`"', '"\\n"'],
  'null and truth': ['null', 'true', 'false'],
  'a list or an object': ['[]', '{}', '["a"]', '{"id":1}', '[null]', '{"value":"x"}'],
  nesting: [nested(1_100), `{"a":${nested(1_024)}}`],
  'a long text': [
    quoted('x'.repeat(200)),
    quoted('x'.repeat(201)),
    quoted('\u{1f600}'.repeat(150)),
    quoted('y'.repeat(20_000)),
  ],
  'a trace id': ['"abc"', quoted('ab'.repeat(16)), '"0"', '"ABCDEF"'],
  'a moment': [
    '1700000000',
    '1700000000.123456',
    '1700000000.9999999',
    '"2026-01-02T03:04:05Z"',
    '"2026-01-02T03:04:05.678901+02:00"',
    '"2026-01-02 03:04:05"',
    '"2026-01-02t03:04:05.5z"',
    '4294967295.999',
    '"1970-01-01T00:00:00Z"',
    '"2100-02-28T23:59:59.123456789Z"',
  ],
  'a moment out of range': [
    '"1850-01-01T00:00:00Z"',
    '"9999-12-31T23:59:59Z"',
    '-3786825600',
    '253402300799',
    '4294967296',
    '"1969-12-31T23:59:59.999Z"',
    '"2106-02-07T06:28:16Z"',
    '"0000-01-01T00:00:00Z"',
    '1700000000000',
  ],
  'a moment that is none': [
    '"yesterday"',
    '"2026-02-30T00:00:00Z"',
    '"2026-01-02"',
    '"2026-13-01T00:00:00Z"',
    '"2026-01-02T24:00:00Z"',
    '"2026-01-02T03:04:05+25:00"',
  ],
};
export const KINDS = Object.keys(VALUES);

type Draw = () => string;
type Members = readonly (readonly [name: string, value: string])[];

const object = (members: Members): string =>
  `{${members.map(([name, value]) => `${name}:${value}`).join(',')}}`;

/** Where the columns of each table come from. */
const SHAPES: Readonly<Record<TypedTable, (draw: Draw) => Members>> = {
  events: (draw) => [
    ['"timestamp"', draw()],
    ['"level"', draw()],
    ['"environment"', draw()],
    ['"release"', draw()],
    ['"platform"', draw()],
    ['"contexts"', `{"trace":{"trace_id":${draw()}}}`],
    ['"user"', `{"id":${draw()}}`],
    ['"transaction"', draw()],
    ['"logentry"', `{"formatted":${draw()},"message":${draw()}}`],
    ['"message"', draw()],
    ['"exception"', `{"values":[${draw()},{"type":${draw()},"value":${draw()}}]}`],
  ],
  transactions: (draw) => [
    ['"start_timestamp"', draw()],
    ['"timestamp"', draw()],
    ['"transaction"', draw()],
    ['"user"', `{"id":${draw()}}`],
    ['"contexts"', `{"trace":{"trace_id":${draw()},"span_id":${draw()},"op":${draw()},"status":${draw()}}}`],
    ['"environment"', draw()],
    ['"release"', draw()],
    ['"platform"', draw()],
  ],
  spans: (draw) => [
    ['"start_timestamp"', draw()],
    ['"end_timestamp"', draw()],
    ['"name"', draw()],
    ['"description"', draw()],
    ['"op"', draw()],
    ['"status"', draw()],
    ['"trace_id"', draw()],
    ['"span_id"', draw()],
    ['"parent_span_id"', draw()],
    ['"is_segment"', draw()],
    [
      '"attributes"',
      `{"sentry.op":{"value":${draw()}},"sentry.environment":{"value":${draw()}},"sentry.release":{"value":${draw()}},"user.id":{"value":${draw()}}}`,
    ],
  ],
  logs: (draw) => [
    ['"timestamp"', draw()],
    ['"level"', draw()],
    ['"body"', draw()],
    ['"trace_id"', draw()],
    [
      '"attributes"',
      `{"sentry.environment":{"value":${draw()}},"sentry.release":{"value":${draw()}},"user.id":{"value":${draw()}}}`,
    ],
  ],
  replays: (draw) => [
    ['"timestamp"', draw()],
    ['"replay_id"', draw()],
    ['"segment_id"', draw()],
    ['"environment"', draw()],
    ['"release"', draw()],
    ['"platform"', draw()],
    ['"user"', `{"id":${draw()}}`],
  ],
};

/** What an SDK sends, to stand beside values of a kind. */
const PLAIN = [
  '"info"',
  '"prod"',
  '1700000000',
  '1700000000.5',
  '"2026-01-02T03:04:05Z"',
  '7',
  '"u1"',
  'true',
];

function shuffled(random: Random, members: Members): Members {
  const list = [...members];
  for (let from = list.length - 1; from > 0; from--) {
    const to = integer(random, 0, from);
    const [one, other] = [list[from], list[to]];
    if (one && other) [list[from], list[to]] = [other, one];
  }
  return list;
}

/** How the text around the values may differ and say the same, or more. */
const FORMS: readonly ((random: Random, members: Members, other: Members) => string)[] = [
  (_random, members) => object(members),
  (random, members) => object(shuffled(random, members)),
  (random, members) => object(members.filter(() => random() < 0.5)),
  // Names twice, the second time with other values: the last one counts, whole.
  (random, members, other) => object([...members, ...shuffled(random, other).slice(0, 4)]),
  // A name spelled with an escape is the same name.
  (_random, members) =>
    object(
      members.map(([name, value]) => [
        name.replace(/^"(.)/, (_, letter: string) => `"\\u00${letter.charCodeAt(0).toString(16)}`),
        value,
      ]),
    ),
  (_random, members) => ` {\t${members.map(([name, value]) => `${name} : ${value} `).join(' , ')}} `,
  (random, members) =>
    object([
      ['"extra"', `{"n":${pick(random, ['12345678901234567890123', '1e400', '"\\ud800"', nested(1_100)])}}`],
      ...members,
    ]),
  (random, members) =>
    pick(random, ['5', 'null', '[]', '"x"', object([['"a"', object(members)]]), `[${object(members)}]`]),
];

/** A payload whose values are of one kind, or as SDKs send them. */
export function hostilePayload(random: Random, table: TypedTable, kind: string): string {
  const draw = (): string => pick(random, random() < 0.6 ? (VALUES[kind] ?? []) : PLAIN);
  const form = random() < 0.4 ? FORMS[0] : pick(random, FORMS);
  return form?.(random, SHAPES[table](draw), SHAPES[table](draw)) ?? '';
}
