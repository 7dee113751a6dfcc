/** Containers of logs or spans, `{"items":[…]}`, whose elements are cut out byte for byte. */
import { jsonScan } from '../lib/json-text.ts';
import { otlpFormOf } from '../lib/otlp.ts';
import type { ItemFields, SinkRecord } from './sink.ts';

const { skipBlank, skipName, skipValue } = jsonScan;
const SPACE = 0x20;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
/** Distance in ASCII from an opening bracket to the closing one. */
const TO_CLOSING = 2;
const ITEMS = Buffer.from('"items"');

/**
 * A container with more elements or more members than this is not split. An element of one byte
 * becomes a row that takes 10 µs and some hundred bytes, so rows need a bound of their own. SDKs
 * send 100 logs or up to 1,000 spans at a time.
 */
const PIECES_MAX = 1_000;

/**
 * A larger container is not split, and {@link filledContainer} adds nothing to it: the search for
 * its elements makes no pauses, and takes some 20 ms for 5 MiB. No SDK sends so much.
 */
const SEARCHED_BYTES_MAX = 5 * 1024 * 1024;

export type Container = {
  elements: Uint8Array[];
  /** The container's members except `items`, as a JSON object; undefined when there are none. */
  rest?: Uint8Array;
};

/**
 * An element of a list, or a member of an object. `start`: where it begins. `value`: where its
 * value begins. `end`: where both end.
 */
type Piece = { start: number; value: number; end: number };

/**
 * Cuts the content of a list or an object at its commas.
 * @param json valid JSON
 * @param bracket place of the opening bracket
 * @returns undefined when there are more than PIECES_MAX pieces
 */
function piecesOf(json: Uint8Array, bracket: number): Piece[] | undefined {
  const found: Piece[] = [];
  const opening = json[bracket] as number;
  let start = skipBlank(json, bracket + 1);
  if (json[start] === opening + TO_CLOSING) return found;
  for (;;) {
    const value = opening === OPEN_OBJECT ? skipBlank(json, skipName(json, start)) : start;
    const next = skipValue(json, value);
    let end = next;
    while ((json[end - 1] as number) <= SPACE) end--;
    found.push({ start, value, end });
    if (json[next] !== COMMA) return found;
    if (found.length === PIECES_MAX) return undefined;
    start = skipBlank(json, next + 1);
  }
}

/** Finds a member by its quoted name. The last one of that name counts, as in JSON.parse. */
const memberOf = (json: Uint8Array, members: readonly Piece[], quoted: Buffer): Piece | undefined =>
  members.findLast(({ start }) => quoted.equals(json.subarray(start, start + quoted.length)));

/**
 * Splits a container into its elements.
 * @param json valid JSON
 * @returns undefined when the JSON is no object with exactly one list `items`, when that list is
 * empty, or when the object or the list has more than PIECES_MAX pieces
 */
export function splitContainer(json: Uint8Array): Container | undefined {
  const bracket = skipBlank(json, 0);
  if (json[bracket] !== OPEN_OBJECT) return undefined;
  const members = piecesOf(json, bracket) ?? [];
  const isList = ({ start }: Piece): boolean => ITEMS.equals(json.subarray(start, start + ITEMS.length));
  const [list, other] = members.filter(isList);
  const pieces = list && !other && json[list.value] === OPEN_ARRAY ? piecesOf(json, list.value) : undefined;
  if (!pieces || pieces.length === 0) return undefined;
  const elements = pieces.map(({ start, end }) => json.subarray(start, end));
  const texts = members
    .filter((member) => member !== list)
    .map(({ start, end }) => Buffer.from(json.subarray(start, end)).toString());
  return texts.length === 0 ? { elements } : { elements, rest: Buffer.from(`{${texts.join(',')}}`) };
}

/**
 * Returns a container with some of its elements and all of its other members.
 * @param json a container that splitContainer can split
 * @param places of the wanted elements
 */
export function containerOf(json: Uint8Array, places: readonly number[]): Uint8Array {
  const { elements = [], rest } = splitContainer(json) ?? {};
  const others = rest ? `${Buffer.from(rest).toString().slice(1, -1)},` : '';
  const found = places.flatMap((place) => [elements[place] ?? new Uint8Array(), Buffer.from(',')]);
  return Buffer.concat([Buffer.from(`{${others}"items":[`), ...found.slice(0, -1), Buffer.from(']}')]);
}

const VERSION = Buffer.from('"version"');
const SETTINGS = Buffer.from('"ingest_settings"');
const ATTRIBUTES = Buffer.from('"attributes"');
const SETTINGS_BYTES_MAX = 1_024;
/** Containers after their envelope's tenth item are not filled in, as SPLIT_INDEX_MAX explains. */
const FILLED_INDEX_MAX = 9;

/** Facts about a request's client that the project wants filled in. */
export type ClientFacts = { clientAddress?: string | undefined; userAgent?: string | undefined };
/** An attribute to add: its name in quotes, and its whole JSON member. */
type Attribute = { quoted: Buffer; member: string };

const attribute = (name: string, value: string): Attribute => ({
  quoted: Buffer.from(`"${name}"`),
  member: `"${name}":${JSON.stringify({ value, type: 'string' })}`,
});

/** Returns the attributes that `ingest_settings` asks for, as far as their values are known. */
function wantedOf(json: Uint8Array, members: readonly Piece[], facts: ClientFacts): Attribute[] {
  const text = (quoted: Buffer): string => {
    const { value = 0, end = 0 } = memberOf(json, members, quoted) ?? {};
    return end - value > SETTINGS_BYTES_MAX ? '' : Buffer.from(json.subarray(value, end)).toString();
  };
  const settings: unknown = text(VERSION) === '2' && JSON.parse(text(SETTINGS) || 'null');
  if (typeof settings !== 'object' || settings === null) return [];
  const { infer_ip, infer_user_agent } = settings as Record<string, unknown>;
  const wanted: Attribute[] = [];
  const { clientAddress, userAgent } = facts;
  if (infer_ip === 'auto' && clientAddress) wanted.push(attribute('client.address', clientAddress));
  if (infer_user_agent === 'auto' && userAgent) wanted.push(attribute('user_agent.original', userAgent));
  return wanted;
}

/**
 * Finds the text to insert into one element, so that the element gets its missing attributes.
 * @returns the place in `json` and the text. Undefined when the element has all wanted attributes,
 * or when the element or its `attributes` is no object or has more than PIECES_MAX members
 */
function insertion(
  json: Uint8Array,
  element: Piece,
  wanted: readonly Attribute[],
): [number, string] | undefined {
  const members = json[element.value] === OPEN_OBJECT ? piecesOf(json, element.value) : undefined;
  if (!members) return undefined;
  const attributes = memberOf(json, members, ATTRIBUTES);
  const inner =
    !attributes || json[attributes.value] === OPEN_OBJECT
      ? attributes && piecesOf(json, attributes.value)
      : undefined;
  if (attributes && !inner) return undefined;
  const missing = wanted
    .filter(({ quoted }) => !memberOf(json, inner ?? [], quoted))
    .map(({ member }) => member);
  if (missing.length === 0) return undefined;
  const list = missing.join(',');
  const text = attributes ? list : `"attributes":{${list}}`;
  const rest = attributes ? (inner ?? []) : members;
  return [(attributes ?? element).value + 1, rest.length > 0 ? `${text},` : text];
}

/**
 * Fills in the attributes that a container of logs, spans or metrics asks for. All other bytes stay
 * as they are.
 * @param json valid JSON on one line
 * @param index place of the item in its envelope
 * @returns the same bytes when there is nothing to do
 */
export function filledContainer(json: Uint8Array, index: number, facts: ClientFacts): Uint8Array {
  const bytes = Buffer.from(json.buffer as ArrayBuffer, json.byteOffset, json.length);
  if (index > FILLED_INDEX_MAX || json.length > SEARCHED_BYTES_MAX || !bytes.includes(SETTINGS)) return json;
  const bracket = skipBlank(bytes, 0);
  if (bytes[bracket] !== OPEN_OBJECT) return json;
  const members = piecesOf(bytes, bracket) ?? [];
  const wanted = wantedOf(bytes, members, facts);
  const list = memberOf(bytes, members, ITEMS);
  if (wanted.length === 0 || !list || bytes[list.value] !== OPEN_ARRAY) return json;
  const found: Uint8Array[] = [];
  let copied = 0;
  for (const element of piecesOf(bytes, list.value) ?? []) {
    const [at, text] = insertion(bytes, element, wanted) ?? [];
    if (at === undefined || text === undefined) continue;
    found.push(bytes.subarray(copied, at), Buffer.from(text));
    copied = at;
  }
  return found.length === 0 ? json : Buffer.concat([...found, bytes.subarray(copied)]);
}

/** A record as it will be sent. `bytes`: its size. `split`: set when each element gets a row. */
export type SentRecord = SinkRecord & { bytes: number; split?: Container };

/**
 * Each row of a container repeats its item's header and ids. A container whose rows would repeat
 * more bytes than this is stored in one row. Otherwise 1,000 logs of one byte below a header of 16
 * KiB would become 16 MB of rows.
 */
const REPEATED_BYTES_MAX = 1024 * 1024;
/** Bytes of an element's row besides its texts: ten lengths and at most four numbers. */
const ELEMENT_ROW_BYTES = 10 * 4 + 4 * 8;
/**
 * Containers after the tenth item of their envelope are stored in one row each. Otherwise a request
 * of 600 bytes could bring a hundred containers that become 100,000 rows. An SDK sends one or two
 * containers in an envelope. OTLP requests have no such bound: the processor makes their
 * containers, no smaller than they must be.
 */
const SPLIT_INDEX_MAX = 9;

/** Types of the containers whose elements each get a row. */
const SPLIT_TYPES = ['log', 'span'] as const;
export type SplitType = (typeof SPLIT_TYPES)[number];
export const isSplit = (type: string): type is SplitType => (SPLIT_TYPES as readonly string[]).includes(type);

/** Returns the bytes of a container's rows; undefined when the rows would repeat too much. */
function bytesOfRows({ envelope, header }: ItemFields, { elements, rest }: Container): number | undefined {
  const texts = [envelope.projectId, envelope.eventId, envelope.sdk ?? '', header];
  const own = ELEMENT_ROW_BYTES + (rest?.length ?? 0);
  const repeated = texts.reduce((sum, text) => sum + Buffer.byteLength(text), own);
  if ((elements.length - 1) * repeated > REPEATED_BYTES_MAX) return undefined;
  return elements.reduce((sum, element) => sum + element.length, elements.length * repeated);
}

/**
 * Decides by the record alone how it is stored, so a frame that comes again makes the same rows.
 */
export function toSend(record: SinkRecord): SentRecord {
  const { type, fields, head, json } = record;
  const whole = { ...record, bytes: head.length + json.length };
  if ('token' in fields || !isSplit(type)) return whole;
  if (fields.index > SPLIT_INDEX_MAX && otlpFormOf(fields.header) === undefined) return whole;
  if (json.length > SEARCHED_BYTES_MAX) return whole;
  const split = splitContainer(json);
  const bytes = split && bytesOfRows(fields, split);
  return split && bytes ? { ...record, split, bytes } : whole;
}
