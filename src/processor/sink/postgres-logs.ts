/**
 * A log container is `{"items":[…]}`. Its logs are cut out byte for byte: the text is valid JSON
 * already, so only strings and brackets have to be told apart.
 */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN = new Set([0x5b, 0x7b]);
const CLOSE = new Set([0x5d, 0x7d]);
const SPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);
const ITEMS = '"items"';

/**
 * Logs of a container, and members of it, beyond which it is not cut. A log of one byte becomes a
 * row that takes 10 µs and some hundred bytes, so rows need a bound of their own: the hundred items
 * of an envelope make 100,000, in a second. SDKs send a hundred logs at a time.
 */
const PARTS_MAX = 1_000;

export type Logs = {
  logs: Uint8Array[];
  /** The container without its logs, as JSON; undefined when nothing else is in it. */
  container?: Uint8Array;
};

/** @param at behind the opening quote. @returns the place behind the closing one */
function afterString(json: Uint8Array, at: number): number {
  let place = at;
  while (json[place] !== QUOTE) place += json[place] === BACKSLASH ? 2 : 1;
  return place + 1;
}

function trimmed(json: Uint8Array, from: number, to: number): Uint8Array {
  let [start, end] = [from, to];
  while (start < end && SPACE.has(json[start] as number)) start++;
  while (end > start && SPACE.has(json[end - 1] as number)) end--;
  return json.subarray(start, end);
}

/**
 * The text between the outermost brackets, cut at its commas; none when it is empty.
 * @param json valid, trimmed
 * @returns undefined when there are more than PARTS_MAX
 */
function parts(json: Uint8Array): Uint8Array[] | undefined {
  const found: Uint8Array[] = [];
  let depth = 0;
  let from = 1;
  for (let at = 1; at < json.length - 1; at++) {
    const byte = json[at] as number;
    if (byte === QUOTE) at = afterString(json, at + 1) - 1;
    else if (OPEN.has(byte)) depth++;
    else if (CLOSE.has(byte)) depth--;
    else if (byte === COMMA && depth === 0) {
      found.push(trimmed(json, from, at));
      if (found.length === PARTS_MAX) return undefined;
      from = at + 1;
    }
  }
  const last = trimmed(json, from, json.length - 1);
  return found.length === 0 && last.length === 0 ? [] : [...found, last];
}

/** @param member `"name" : value` */
function valueIn(member: Uint8Array): Uint8Array {
  const colon = member.indexOf(COLON, afterString(member, 1));
  return trimmed(member, colon + 1, member.length);
}

const nameOf = (member: Uint8Array): string =>
  Buffer.from(member.subarray(0, afterString(member, 1))).toString();

/**
 * The logs of a container.
 * @param json valid JSON
 * @returns undefined when it is no container, holds none, or more than are cut apart
 */
export function splitLogs(json: Uint8Array): Logs | undefined {
  const text = trimmed(json, 0, json.length);
  if (text[0] !== 0x7b) return undefined;
  const members = parts(text) ?? [];
  const lists = members.filter((member) => nameOf(member) === ITEMS);
  const list = lists.length === 1 && lists[0] ? valueIn(lists[0]) : undefined;
  const logs = list?.[0] === 0x5b ? parts(list) : undefined;
  if (!logs || logs.length === 0) return undefined;
  const others = members
    .filter((member) => member !== lists[0])
    .map((member) => Buffer.from(member).toString());
  return others.length === 0 ? { logs } : { logs, container: Buffer.from(`{${others.join(',')}}`) };
}
