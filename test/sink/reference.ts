/**
 * A plain reader of what payloads say, to compare sinks with. JSON.parse reads; nothing here knows how the product does it.
 *
 * The rules are those of docs/clickhouse.md: a text as it is, a number as it is written, a moment from 1970 up to 2106; all else is null,
 * and where the payload said something there, the row is `unread`.
 */

/** A string or number of JSON; a number keeps its spelling. */
class Scalar {
  readonly isText: boolean;
  readonly text: string;

  constructor(marked: string) {
    this.isText = marked.startsWith('s');
    this.text = marked.slice(1);
  }
}

type Value = null | boolean | Scalar | Value[] | { [name: string]: Value };
type Cell = string | number | boolean | null;
export type Row = Record<string, Cell>;

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/** Each string gets an `s` in front, each number becomes a string with an `n` in front. */
function parse(text: string): Value {
  const marked = text.replace(TOKEN, (token) => (token[0] === '"' ? `"s${token.slice(1)}` : `"n${token}"`));
  return JSON.parse(marked, (_name, value) =>
    typeof value === 'string' ? new Scalar(value) : value,
  ) as Value;
}

const LAST = -1;
/** Undefined where the payload says nothing. */
function at(value: Value | undefined, ...path: readonly (string | typeof LAST)[]): Value | undefined {
  let found = value;
  for (const step of path) {
    if (Array.isArray(found)) found = step === LAST ? found.at(-1) : undefined;
    else if (typeof found !== 'object' || found === null || found instanceof Scalar || step === LAST)
      return undefined;
    // The names in the marked text begin with an s, too.
    else found = Object.hasOwn(found, `s${step}`) ? found[`s${step}`] : undefined;
  }
  return found === null ? undefined : found;
}

const UNREADABLE: unique symbol = Symbol('said, and not of the kind of the column');
type Read = Cell | symbol;
type Reader = (value: Value | undefined) => Read;

const text: Reader = (value) =>
  value === undefined ? null : value instanceof Scalar ? Buffer.from(value.text).toString() : UNREADABLE;
const word: Reader = (value) => {
  const found = text(value);
  return typeof found === 'string' && [...found].length > 200 ? UNREADABLE : found;
};
const RFC_3339 = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)?$/;
const DAY = /^(\d{4})-(\d\d)-(\d\d)$/;

function micros(scalar: Scalar): number {
  if (!scalar.isText) return Math.round(Number(scalar.text) * 1e6);
  const [, day = '', time = '', fraction = '', zone = 'Z'] = RFC_3339.exec(scalar.text) ?? [];
  const [, year = '', month = '', date = ''] = DAY.exec(day) ?? [];
  const isDay =
    new Date(Date.UTC(Number(year), Number(month) - 1, Number(date))).getUTCDate() === Number(date);
  const seconds = Date.parse(`${day}T${time}${zone.toUpperCase()}`) / 1000;
  if (!isDay || time > '23:59:59') return Number.NaN;
  return seconds * 1e6 + Math.floor(Number(`0.${fraction || '0'}`) * 1e6 + 1e-6);
}
const moment: Reader = (value) => {
  if (value === undefined) return null;
  if (!(value instanceof Scalar)) return UNREADABLE;
  const found = micros(value);
  return found >= 0 && found < 2 ** 32 * 1e6 ? found + 0 : UNREADABLE;
};
const count: Reader = (value) => {
  if (value === undefined) return null;
  const number = value instanceof Scalar && !value.isText ? Number(value.text) : Number.NaN;
  return Number.isInteger(number) && number >= 0 && number < 2 ** 32 ? number + 0 : UNREADABLE;
};
const flag: Reader = (value) =>
  value === undefined ? null : typeof value === 'boolean' ? value : UNREADABLE;

/** The first that has something in it. */
function first(...reads: readonly Read[]): Read {
  const said = reads.filter((read) => read !== null && read !== UNREADABLE);
  return said.find((read) => read !== '') ?? said[0] ?? (reads.includes(UNREADABLE) ? UNREADABLE : null);
}

/** Milliseconds, where both are known. */
const between = (from: Read, to: Read): Read =>
  typeof from === 'number' && typeof to === 'number' ? (to - from) / 1000 : null;

const attribute = (payload: Value, name: string): Value | undefined =>
  at(payload, 'attributes', name, 'value');
/** The first of these attributes that has something in it. */
const wordOf = (payload: Value, ...names: readonly string[]): Read =>
  first(...names.map((name) => word(attribute(payload, name))));
const common = (payload: Value): Record<string, Read> => ({
  environment: word(at(payload, 'environment')),
  release: word(at(payload, 'release')),
  platform: word(at(payload, 'platform')),
  trace_id: text(at(payload, 'contexts', 'trace', 'trace_id')),
  user_id: text(at(payload, 'user', 'id')),
});
const ofAttributes = (payload: Value): Record<string, Read> => ({
  environment: wordOf(
    payload,
    'sentry.environment',
    'deployment.environment.name',
    'resource.deployment.environment.name',
    'deployment.environment',
    'resource.deployment.environment',
  ),
  release: wordOf(payload, 'sentry.release', 'service.version', 'resource.service.version'),
  service: wordOf(payload, 'service.name', 'resource.service.name'),
  trace_id: text(at(payload, 'trace_id')),
  user_id: text(attribute(payload, 'user.id')),
});
function times(from: Value | undefined, to: Value | undefined): Record<string, Read> {
  const [start_timestamp, timestamp] = [moment(from), moment(to)];
  return { start_timestamp, timestamp, duration_ms: between(start_timestamp, timestamp) };
}

const TABLES = {
  events: (payload: Value) => ({
    ...common(payload),
    timestamp: moment(at(payload, 'timestamp')),
    level: word(at(payload, 'level')) ?? 'error',
    transaction: text(at(payload, 'transaction')),
    message: first(
      text(at(payload, 'logentry', 'formatted')),
      text(at(payload, 'logentry', 'message')),
      text(at(payload, 'message')),
    ),
    exception_type: first(
      word(at(payload, 'exception', 'values', LAST, 'type')),
      word(at(payload, 'exception', LAST, 'type')),
    ),
    exception_value: first(
      text(at(payload, 'exception', 'values', LAST, 'value')),
      text(at(payload, 'exception', LAST, 'value')),
    ),
  }),
  transactions: (payload: Value) => ({
    ...common(payload),
    ...times(at(payload, 'start_timestamp'), at(payload, 'timestamp')),
    name: text(at(payload, 'transaction')),
    op: word(at(payload, 'contexts', 'trace', 'op')),
    status: word(at(payload, 'contexts', 'trace', 'status')),
    span_id: text(at(payload, 'contexts', 'trace', 'span_id')),
  }),
  spans: (payload: Value) => ({
    ...ofAttributes(payload),
    ...times(at(payload, 'start_timestamp'), at(payload, 'end_timestamp')),
    name: first(text(at(payload, 'name')), text(at(payload, 'description'))),
    op: first(word(attribute(payload, 'sentry.op')), word(at(payload, 'op'))),
    status: word(at(payload, 'status')),
    span_id: text(at(payload, 'span_id')),
    parent_span_id: text(at(payload, 'parent_span_id')),
    is_segment: flag(at(payload, 'is_segment')),
  }),
  logs: (payload: Value) => ({
    ...ofAttributes(payload),
    timestamp: moment(at(payload, 'timestamp')),
    level: word(at(payload, 'level')),
    body: text(at(payload, 'body')),
  }),
  replays: (payload: Value, eventId: string) => ({
    timestamp: moment(at(payload, 'timestamp')),
    replay_id: text(at(payload, 'replay_id')) ?? eventId,
    segment_id: count(at(payload, 'segment_id')),
    environment: word(at(payload, 'environment')),
    release: word(at(payload, 'release')),
    platform: word(at(payload, 'platform')),
    user_id: text(at(payload, 'user', 'id')),
  }),
} as const;
export type TypedTable = keyof typeof TABLES;

/** The columns that a row of this payload has. */
export function referenceRow(table: TypedTable, payload: string, eventId: string): Row {
  const reads = Object.entries(TABLES[table](parse(payload), eventId) as Record<string, Read>);
  const row = Object.fromEntries(reads.map(([name, read]) => [name, typeof read === 'symbol' ? null : read]));
  return { ...row, unread: reads.some(([, read]) => read === UNREADABLE) };
}
