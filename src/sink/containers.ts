/**
 * A container of logs or spans is `{"items":[…]}`. Its elements, one log or span each, are cut out
 * as they are, byte for byte.
 */
import { jsonScan } from '../lib/json-text.ts';

const { skipBlank, skipName, skipValue } = jsonScan;
const SPACE = 0x20;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
/** From a bracket to the one that closes it, in ASCII. */
const TO_CLOSING = 2;
const ITEMS = Buffer.from('"items"');

/**
 * Elements of a container, and members of it, beyond which it is not cut. An element of one byte
 * becomes a row that takes 10 µs and some hundred bytes, so rows need a bound of their own. SDKs
 * send 100 logs or up to 1,000 spans at a time.
 */
const PIECES_MAX = 1_000;

export type Container = {
  elements: Uint8Array[];
  /** What else the container says, as JSON; undefined when that is nothing. */
  rest?: Uint8Array;
};

/**
 * An element of a list, or a member of an object: where it begins, where its value begins, where
 * both end.
 */
type Piece = { start: number; value: number; end: number };

/**
 * What is between a bracket and the one that closes it, cut at the commas.
 * @param json valid
 * @param bracket where the bracket is that opens
 * @returns undefined when there are more than PIECES_MAX
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

/**
 * The elements of a container.
 * @param json valid JSON
 * @returns undefined when it is no container, holds none, or more than are cut apart
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
 * A container with some of its elements, beside what else it says.
 * @param json one that is split
 */
export function containerOf(json: Uint8Array, places: readonly number[]): Uint8Array {
  const { elements = [], rest } = splitContainer(json) ?? {};
  const others = rest ? `${Buffer.from(rest).toString().slice(1, -1)},` : '';
  const found = places.flatMap((place) => [elements[place] ?? new Uint8Array(), Buffer.from(',')]);
  return Buffer.concat([Buffer.from(`{${others}"items":[`), ...found.slice(0, -1), Buffer.from(']}')]);
}
