/**
 * The columns that a sink fills from payloads, and the reader that fills them. The reader walks
 * once over the bytes, and accepts all JSON that the processor accepts. Values that no column asks
 * for are skipped unread, so large numbers, lone surrogates and deep nesting in them do no harm.
 *
 * A column has the payload's value, or its default (`absent`) when the payload has none. It is
 * undefined when there is neither, or when it cannot hold the value. Rules: docs/clickhouse.md.
 */
import { jsonScan } from '../lib/json-text.ts';
import { rfc3339Micros } from '../lib/timestamp.ts';
import type { RecordType } from './sink.ts';

const { skipBlank, skipValue } = jsonScan;
const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
const CLOSE_ARRAY = 0x5d;
const CLOSE_OBJECT = 0x7d;

/** Larger payloads are not read, because the walk makes no pauses. SDKs send at most 1 MiB. */
export const READ_BYTES_MAX = 5 * 1024 * 1024;
/** Longest value of a `word` column, in characters. Longer values are left out, not cut. */
const WORD_CHARACTERS_MAX = 200;
const COUNT_MAX = 0xffff_ffff;
/** Longest name with escapes that is decoded: 32 characters, each an escape of 6 bytes. */
const ESCAPED_NAME_BYTES_MAX = 6 * 32;
/**
 * Whether a moment lies from 1970 up to 2106, where ClickHouse's DateTime ends. ClickHouse's
 * functions for hours and days would give a wrong year for any other moment.
 */
export const isKeptMoment = (ms: number): boolean => ms >= 0 && ms < 1000 * 2 ** 32;

/**
 * Kinds of values. `word`: a text of which there are few different ones. `moment`: Unix
 * microseconds. `count`: an unsigned integer of 32 bits. `duration`: milliseconds from
 * start_timestamp to timestamp.
 */
type Kind = 'text' | 'word' | 'moment' | 'count' | 'flag' | 'duration';
export type Cell = string | number | boolean | undefined;

/** The step of a path that leads to the last element of a list. */
const LAST = Symbol('last');
type Path = readonly (string | typeof LAST)[];
/**
 * `from`: places in the payload. The column gets the first value among them that its kind can hold
 * and that is not empty. `absent`: the column's value when the payload has none.
 */
type Column = { name: string; kind: Kind; from: readonly Path[]; absent?: 'error' | 'event id' };

const column = (name: string, kind: Kind, ...from: readonly Path[]): Column => ({ name, kind, from });
const own = (kind: Kind, ...names: readonly string[]): Column[] =>
  names.map((name) => column(name, kind, [name]));
const attribute = (name: string): Path => ['attributes', name, 'value'];
const ofTrace = (name: string): Path => ['contexts', 'trace', name];
/**
 * Places of a member of the outermost exception, which is the last of the list. Some SDKs send the
 * list without the `values` around it.
 */
const ofException = (name: string): Path[] => [
  ['exception', 'values', LAST, name],
  ['exception', LAST, name],
];

const USER_ID = column('user_id', 'text', ['user', 'id']);
const ORIGIN = own('word', 'environment', 'release', 'platform');
const COMMON = [...ORIGIN, column('trace_id', 'text', ofTrace('trace_id')), USER_ID];
/**
 * Paths of an attribute of the span or log itself, or else of its resource, where OpenTelemetry's
 * SDKs put these attributes.
 */
const ofResource = (name: string): Path[] => [attribute(name), attribute(`resource.${name}`)];
const OF_ATTRIBUTES = [
  column(
    'environment',
    'word',
    attribute('sentry.environment'),
    ...ofResource('deployment.environment.name'),
    ...ofResource('deployment.environment'),
  ),
  column('release', 'word', attribute('sentry.release'), ...ofResource('service.version')),
  column('user_id', 'text', attribute('user.id')),
  column('service', 'word', ...ofResource('service.name')),
];
const DURATION = column('duration_ms', 'duration');

/** The typed columns of each table, in the order of the row's values. */
export const COLUMNS = {
  events: [
    ...own('moment', 'timestamp'),
    { ...column('level', 'word', ['level']), absent: 'error' },
    ...COMMON,
    ...own('text', 'transaction'),
    column('message', 'text', ['logentry', 'formatted'], ['logentry', 'message'], ['message']),
    column('exception_type', 'word', ...ofException('type')),
    column('exception_value', 'text', ...ofException('value')),
  ],
  transactions: [
    ...own('moment', 'timestamp', 'start_timestamp'),
    DURATION,
    column('name', 'text', ['transaction']),
    column('op', 'word', ofTrace('op')),
    column('status', 'word', ofTrace('status')),
    column('span_id', 'text', ofTrace('span_id')),
    ...COMMON,
  ],
  spans: [
    column('timestamp', 'moment', ['end_timestamp']),
    ...own('moment', 'start_timestamp'),
    DURATION,
    column('name', 'text', ['name'], ['description']),
    column('op', 'word', attribute('sentry.op'), ['op']),
    ...own('word', 'status'),
    ...own('text', 'trace_id', 'span_id', 'parent_span_id'),
    ...own('flag', 'is_segment'),
    ...OF_ATTRIBUTES,
  ],
  logs: [
    ...own('moment', 'timestamp'),
    ...own('word', 'level'),
    ...own('text', 'body', 'trace_id'),
    ...OF_ATTRIBUTES,
  ],
  replays: [
    ...own('moment', 'timestamp'),
    { ...column('replay_id', 'text', ['replay_id']), absent: 'event id' },
    ...own('count', 'segment_id'),
    ...ORIGIN,
    USER_ID,
  ],
} as const satisfies Record<string, readonly Column[]>;
export type TypedTable = keyof typeof COLUMNS;

/** A place in the payload. It may have a value that a column wants, or further places within. */
type Node = {
  /** Number of this place's value, when a column wants the value. */
  leaf?: number;
  members: Member[];
  last?: Node;
  /** Numbers of all wanted values at this place and within it. */
  leaves: number[];
};
type Member = { name: string; bytes: Uint8Array; node: Node };
type Plan = { root: Node; columns: readonly (Column & { leaves: readonly number[] })[]; count: number };

const emptyNode = (): Node => ({ members: [], leaves: [] });

function nextNode(node: Node, step: string | typeof LAST): Node {
  if (step === LAST) {
    node.last ??= emptyNode();
    return node.last;
  }
  const found = node.members.find(({ name }) => name === step);
  if (found) return found.node;
  const next = emptyNode();
  node.members.push({ name: step, bytes: Buffer.from(step), node: next });
  return next;
}

function planOf(columns: readonly Column[]): Plan {
  const root = emptyNode();
  const numbers = new Map<Node, number>();
  const numberOf = (path: Path): number => {
    const nodes = [root];
    for (const step of path) nodes.push(nextNode(nodes.at(-1) as Node, step));
    const end = nodes.at(-1) as Node;
    end.leaf ??= numbers.size;
    numbers.set(end, end.leaf);
    for (const node of nodes) if (!node.leaves.includes(end.leaf)) node.leaves.push(end.leaf);
    return end.leaf;
  };
  const planned = columns.map((one) => ({ ...one, leaves: one.from.map(numberOf) }));
  return { root, columns: planned, count: numbers.size };
}

const PLANS = Object.fromEntries(
  Object.entries(COLUMNS).map(([table, columns]) => [table, planOf(columns)]),
) as Record<TypedTable, Plan>;

/** Where a value begins and ends. */
type Place = readonly [start: number, end: number];

/** Returns the place after the string's closing quote. */
function stringEnd(json: Uint8Array, open: number): number {
  let at = open + 1;
  for (let byte = json[at]; byte !== QUOTE; byte = json[at]) at += byte === BACKSLASH ? 2 : 1;
  return at + 1;
}

/** Returns a string's text. JSON.parse is used only for a string with escapes. */
function textAt(json: Buffer, [start, end]: Place): string {
  const text = json.toString('utf8', start + 1, end - 1);
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text;
}

const isName = (json: Uint8Array, start: number, { bytes }: Member): boolean => {
  for (let at = 0; at < bytes.length; at++) if (json[start + at] !== bytes[at]) return false;
  return true;
};

/**
 * Returns the member with this name; undefined when no column asks for it. Names are compared byte
 * by byte; only a name with escapes is decoded.
 */
function memberAt(json: Buffer, node: Node, [start, end]: Place): Node | undefined {
  const length = end - start - 2;
  for (const member of node.members)
    if (member.bytes.length === length && isName(json, start + 1, member)) return member.node;
  if (length > ESCAPED_NAME_BYTES_MAX) return undefined;
  for (let at = start; at < end; at++)
    if (json[at] === BACKSLASH) {
      const name = textAt(json, [start, end]);
      return node.members.find((member) => member.name === name)?.node;
    }
  return undefined;
}

/** Whether the byte belongs to a number, `true`, `false` or `null`. */
const isWordByte = (byte: number | undefined): boolean =>
  byte !== undefined && byte > SPACE && byte !== COMMA && byte !== CLOSE_ARRAY && byte !== CLOSE_OBJECT;

/** One walk over a payload that is valid JSON. */
class Walk {
  readonly #json: Buffer;
  /** Places of the wanted values, by their numbers; undefined where the payload has no value. */
  readonly found: (Place | undefined)[];

  constructor(json: Buffer, count: number) {
    this.#json = json;
    this.found = Array(count).fill(undefined);
  }

  /**
   * Reads the value that begins at `start`.
   * @returns the place after the value and the blanks that follow
   */
  value(start: number, node: Node | undefined): number {
    const json = this.#json;
    const byte = json[start];
    let end: number;
    if (byte === QUOTE) end = stringEnd(json, start);
    else if (byte === OPEN_OBJECT && node && node.members.length > 0) end = this.#members(start, node);
    else if (byte === OPEN_ARRAY && node?.last) end = this.#elements(start, node.last);
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) end = skipValue(json, start);
    else for (end = start; isWordByte(json[end]); ) end++;
    if (node?.leaf !== undefined) this.found[node.leaf] = [start, end];
    return skipBlank(json, end);
  }

  /** Reads an object's members. If a name repeats, its last value counts, as in JSON.parse. */
  #members(open: number, node: Node): number {
    const json = this.#json;
    let at = skipBlank(json, open + 1);
    if (json[at] === CLOSE_OBJECT) return at + 1;
    for (;;) {
      const nameEnd = stringEnd(json, at);
      const member = memberAt(json, node, [at, nameEnd]);
      if (member) this.#forget(member);
      const colon = skipBlank(json, nameEnd);
      at = this.value(skipBlank(json, colon + 1), member);
      if (json[at] !== COMMA) return at + 1;
      at = skipBlank(json, at + 1);
    }
  }

  #elements(open: number, last: Node): number {
    const json = this.#json;
    let at = skipBlank(json, open + 1);
    if (json[at] === CLOSE_ARRAY) return at + 1;
    for (;;) {
      this.#forget(last);
      at = this.value(at, last);
      if (json[at] !== COMMA) return at + 1;
      at = skipBlank(json, at + 1);
    }
  }

  #forget({ leaves }: Node): void {
    for (const leaf of leaves) this.found[leaf] = undefined;
  }
}

/** Stands for a value that the column cannot hold. */
const UNREADABLE = Symbol('unreadable');

const isNumber = (byte: number | undefined): boolean =>
  byte !== undefined && (byte === MINUS || (byte >= ZERO && byte <= NINE));
const rawAt = (json: Buffer, [start, end]: Place): string => json.toString('latin1', start, end);
const numberAt = (json: Buffer, place: Place): number =>
  isNumber(json[place[0]]) ? Number(rawAt(json, place)) : Number.NaN;

const READERS: Readonly<Record<Exclude<Kind, 'duration'>, (json: Buffer, place: Place) => Cell | symbol>> = {
  text: (json, place) => {
    const byte = json[place[0]];
    if (byte === QUOTE) return textAt(json, place);
    return isNumber(byte) ? rawAt(json, place) : UNREADABLE;
  },
  word: (json, place) => {
    const text = READERS.text(json, place);
    const isLong = typeof text === 'string' && text.length > WORD_CHARACTERS_MAX;
    return isLong && [...text.slice(0, 2 * WORD_CHARACTERS_MAX + 1)].length > WORD_CHARACTERS_MAX
      ? UNREADABLE
      : text;
  },
  moment: (json, place) => {
    const isText = json[place[0]] === QUOTE;
    const found = isText ? rfc3339Micros(textAt(json, place)) : Math.round(numberAt(json, place) * 1e6);
    return found !== undefined && isKeptMoment(found / 1000) ? found + 0 : UNREADABLE; // 0, not -0
  },
  count: (json, place) => {
    const number = numberAt(json, place);
    return Number.isInteger(number) && number >= 0 && number <= COUNT_MAX ? number + 0 : UNREADABLE;
  },
  flag: (json, place) => {
    const raw = json[place[0]] === QUOTE ? '' : rawAt(json, place);
    return raw === 'true' || (raw === 'false' ? false : UNREADABLE);
  },
};

const isNull = (json: Buffer, [start]: Place): boolean => json[start] === 0x6e; // the n of null

/** The typed columns of one row. `unread`: the payload has a value for a column that is empty. */
export type TypedRow = { cells: Cell[]; unread: boolean };

function readCells(plan: Plan, json: Buffer, eventId: string): TypedRow {
  const walk = new Walk(json, plan.count);
  walk.value(skipBlank(json, 0), plan.root);
  let unread = false;
  const cells = plan.columns.map(({ kind, leaves, absent }): Cell => {
    if (kind === 'duration') return undefined;
    let isSaid = false;
    let empty: '' | undefined;
    for (const leaf of leaves) {
      const place = walk.found[leaf];
      if (!place || isNull(json, place)) continue;
      isSaid = true;
      const cell = READERS[kind](json, place);
      if (cell === '') empty = '';
      else if (typeof cell !== 'symbol') return cell;
    }
    if (isSaid && empty === undefined) unread = true;
    return isSaid ? empty : absent && (absent === 'event id' ? eventId : absent);
  });
  return { cells, unread };
}

/** Computes the duration in milliseconds from the moments in microseconds, when both are known. */
function addDuration({ columns }: Plan, { cells }: TypedRow): void {
  const at = columns.findIndex(({ kind }) => kind === 'duration');
  if (at < 0) return;
  const cellOf = (wanted: string): Cell => cells[columns.findIndex(({ name }) => name === wanted)];
  const [from, to] = [cellOf('start_timestamp'), cellOf('timestamp')];
  if (typeof from === 'number' && typeof to === 'number') cells[at] = (to - from) / 1000;
}

const RECORDING = Buffer.from(',"recording":');

/**
 * Returns the typed columns of a row.
 * @param json the payload, which is valid JSON; undefined when it is not to be read
 */
export function typedRow(
  table: TypedTable,
  json: Uint8Array | undefined,
  { type, eventId }: { type: RecordType; eventId: string },
): TypedRow {
  const plan = PLANS[table];
  const bytes = json && Buffer.from(json.buffer, json.byteOffset, json.length);
  const isRecording = type === 'replay_recording';
  // All values that columns want from a recording come before `"recording"`.
  const read =
    bytes && isRecording ? Buffer.concat([bytes.subarray(0, bytes.indexOf(RECORDING)), CLOSING]) : bytes;
  if (!read || read.length > READ_BYTES_MAX) {
    const cells = plan.columns.map(({ absent }) =>
      isRecording && absent === 'event id' ? eventId : undefined,
    );
    return { cells, unread: true };
  }
  const row = readCells(plan, read, eventId);
  addDuration(plan, row);
  return row;
}

const CLOSING = Buffer.from('}');
