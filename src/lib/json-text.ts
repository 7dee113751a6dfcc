/**
 * Checks whether bytes are one JSON text (RFC 8259), without building the value.
 *
 * A payload is stored as it was sent: numbers keep digits that a double would lose, and keys keep
 * their order and repetitions. The check reads each byte once, and needs one byte of memory for
 * each open bracket. JSON.parse would need a gigabyte for a recording of 64 MiB of `[]` pairs.
 */
import { isUtf8 } from 'node:buffer';
import { atOnce, type Steps } from './slices.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;
const COMMA = 0x2c;
const COLON = 0x3a;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const ZERO = 0x30;
const MINUS = 0x2d;

/**
 * Makes a table with 1 for the bytes of `chars` and 0 for all others. A look-up was measured to be
 * twice as fast as comparisons. A caller must not look up beyond the end of the text.
 */
function tableOf(chars: string): Uint8Array {
  const table = new Uint8Array(256);
  for (const char of chars) table[char.charCodeAt(0)] = 1;
  return table;
}

const BLANK = tableOf(' \t\n\r');
/** Value in {@link BLANK} of the two bytes that end a line, instead of 1. */
const BREAK = 3;
BLANK[LF] = BREAK;
BLANK[CR] = BREAK;
const DIGIT = tableOf('0123456789');
const HEX = tableOf('0123456789abcdefABCDEF');
/** Characters that complete an escape when they follow a backslash. */
const SIMPLE_ESCAPE = tableOf('"\\/bfnrt');
/** Bytes of a string without a special meaning; they are nine tenths of a payload. */
const PLAIN = new Uint8Array(256).fill(1, SPACE);
PLAIN[QUOTE] = 0;
PLAIN[BACKSLASH] = 0;

const isAt = (table: Uint8Array, text: Uint8Array, at: number): boolean =>
  at < text.length && table[text[at] as number] === 1;

/**
 * Skips an escape; `at` is after the backslash. Each skip function returns the position after what
 * it read, or -1 when the text is invalid.
 */
function skipEscape(text: Uint8Array, at: number): number {
  if (isAt(SIMPLE_ESCAPE, text, at)) return at + 1;
  if (text[at] !== 0x75) return -1; // the letter u
  for (let digit = 1; digit <= 4; digit++) if (!isAt(HEX, text, at + digit)) return -1;
  return at + 5;
}

/** Returned by {@link skipString} when the scan must pause within a string. */
const PAUSED = -2;
/** Position in the string at which the scan paused. */
let pausedAt = 0;

/**
 * Skips the rest of a string, and pauses at `until`. Reading four bytes at a time was measured to
 * halve the time for long texts.
 * @param from after the opening quote, or between two characters
 * @returns the position after the closing quote; PAUSED, or -1 for an invalid string
 */
function skipString(text: Uint8Array, from: number, until = text.length): number {
  const end = Math.min(until, text.length);
  let at = from;
  while (at >= 0) {
    while (
      at + 4 <= end &&
      (PLAIN[text[at]!]! & PLAIN[text[at + 1]!]! & PLAIN[text[at + 2]!]! & PLAIN[text[at + 3]!]!) === 1
    )
      at += 4;
    while (at < end && PLAIN[text[at] as number] === 1) at++;
    if (at >= end) {
      pausedAt = at;
      return end < text.length ? PAUSED : -1;
    }
    if (text[at] === QUOTE) return at + 1;
    if (text[at] !== BACKSLASH) return -1;
    at = skipEscape(text, at + 1);
  }
  return -1;
}

/** Bitwise OR of the {@link BLANK} values of the blanks so far: BREAK after a line break. */
let blanks = 0;

function skipBlank(text: Uint8Array, from: number): number {
  const end = text.length;
  let at = from;
  for (; at < end; at++) {
    const blank = BLANK[text[at] as number] as number;
    if (blank === 0) break;
    blanks |= blank;
  }
  return at;
}

function skipDigits(text: Uint8Array, from: number): number {
  let at = from;
  while (isAt(DIGIT, text, at)) at++;
  return at === from ? -1 : at;
}

function skipNumber(text: Uint8Array, from: number): number {
  let at = text[from] === MINUS ? from + 1 : from;
  at = text[at] === ZERO ? at + 1 : skipDigits(text, at); // after a leading 0 no digit may follow
  if (at > 0 && text[at] === 0x2e) at = skipDigits(text, at + 1); // a point
  if (at > 0 && ((text[at] ?? 0) | 0x20) === 0x65) {
    const sign = text[at + 1];
    at = skipDigits(text, sign === 0x2b || sign === MINUS ? at + 2 : at + 1);
  }
  return at;
}

const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word));

function skipWord(text: Uint8Array, at: number): number {
  const word = WORDS.find(([first]) => first === text[at]);
  if (!word) return -1;
  for (let offset = 1; offset < word.length; offset++) if (text[at + offset] !== word[offset]) return -1;
  return at + word.length;
}

function skipScalar(text: Uint8Array, at: number, until: number): number {
  if (at === text.length) return -1;
  const byte = text[at] as number;
  if (byte === QUOTE) return skipString(text, at + 1, until);
  return byte === MINUS || DIGIT[byte] === 1 ? skipNumber(text, at) : skipWord(text, at);
}

/**
 * Skips a member's name and its colon, with the blanks before each.
 * @returns the position after the colon; negative when there is no name with a colon, or when the
 * scan must pause within the name
 */
function skipName(text: Uint8Array, from: number, until = text.length): number {
  const quote = skipBlank(text, from);
  if (quote === text.length || text[quote] !== QUOTE) return -1;
  return skipColon(text, skipString(text, quote + 1, until));
}

/**
 * Skips the colon after a name.
 * @param end position after the name; a negative one is returned as it is
 * @returns the position after the colon; negative when there is none
 */
function skipColon(text: Uint8Array, end: number): number {
  if (end < 0) return end;
  const colon = skipBlank(text, end);
  return colon < text.length && text[colon] === COLON ? colon + 1 : -1;
}

/** Number of brackets that may be open before the scan needs more memory. */
const BRACKETS_KEPT = 64;
/** Difference in ASCII between a bracket and the one that closes it. */
const TO_CLOSING = 2;

/** Memory of a finished scan, kept for the next scan. */
let spare: Uint8Array | undefined;

/**
 * Scans one value with the blanks on both sides. The scan may pause between two tokens and within a
 * string, so that a large value is read in pieces. There is no pause within a number or within
 * blanks.
 */
class ValueScan {
  readonly #text: Uint8Array;
  /** For each open bracket, the bracket that encloses it; 0 for the outermost. */
  #outer: Uint8Array;
  #depth = 0;
  #innermost = 0;
  /** Where the scan paused. `closing` means among the brackets that close after a value. */
  #pausedIn: 'name' | 'string' | 'closing' | undefined;
  /**
   * Position at which the scan goes on. When the scan is over: the end of the value, or negative
   * when the text is invalid.
   */
  at: number;
  /** Bitwise OR of the {@link BLANK} values of this scan's blanks. */
  blanks = 0;

  constructor(text: Uint8Array, from: number) {
    this.#text = text;
    this.at = from;
    this.#outer = spare ?? new Uint8Array(BRACKETS_KEPT);
    spare = undefined;
  }

  #widen(): Uint8Array {
    const wider = new Uint8Array(this.#outer.length * 2);
    wider.set(this.#outer);
    this.#outer = wider;
    return wider;
  }

  /**
   * Scans up to `until`, or a little further. All of the scan is one function, because several
   * functions were measured to take a fifth more time.
   * @returns whether the scan is over
   */
  run(until: number): boolean {
    const text = this.#text;
    const end = text.length;
    let outer = this.#outer;
    let depth = this.#depth;
    let innermost = this.#innermost;
    let { at } = this;
    let pausedIn = this.#pausedIn;
    let isOver = false;
    blanks = this.blanks;
    if (pausedIn === 'name') {
      at = skipColon(text, skipString(text, at, until));
      pausedIn = undefined;
    }
    // Each turn begins where a value is expected, or within the value in which the scan paused.
    while (at >= 0 && at < until) {
      const isInString = pausedIn === 'string';
      const isBehind = pausedIn === 'closing';
      pausedIn = undefined;
      if (!isInString && !isBehind) at = skipBlank(text, at);
      const byte = !isInString && at < end ? text[at] : 0;
      if (isBehind) at = skipBlank(text, at);
      else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (depth === outer.length) outer = this.#widen();
        outer[depth++] = innermost;
        innermost = byte;
        at = skipBlank(text, at + 1);
        if (at < end && text[at] !== byte + TO_CLOSING) {
          at = byte === OPEN_OBJECT ? skipName(text, at, until) : at;
          continue;
        }
      } else {
        at = isInString ? skipString(text, at, until) : skipScalar(text, at, until);
        pausedIn = at === PAUSED ? 'string' : undefined;
        if (at < 0) break;
        at = skipBlank(text, at);
      }
      while (depth > 0 && at < until && at < end && text[at] === innermost + TO_CLOSING) {
        innermost = outer[--depth] as number;
        at = skipBlank(text, at + 1);
      }
      isOver = depth === 0;
      if (isOver) break;
      if (at >= until) pausedIn = 'closing';
      else if (at === end || text[at] !== COMMA) at = -1;
      else at = innermost === OPEN_OBJECT ? skipName(text, at + 1, until) : at + 1;
    }
    if (at === PAUSED) {
      at = pausedAt;
      pausedIn ??= 'name';
    }
    this.#depth = depth;
    this.#innermost = innermost;
    this.#pausedIn = pausedIn;
    this.at = at;
    this.blanks = blanks;
    if (!isOver && at >= 0) return false;
    if (outer.length === BRACKETS_KEPT) spare = outer;
    return true;
  }
}

/** Skips a value with the blanks on both sides. */
function skipValue(text: Uint8Array, from: number): number {
  const scan = new ValueScan(text, from);
  scan.run(text.length + 1);
  return scan.at;
}

/**
 * Steps of the scan, for files that cut up JSON that is known to be valid. They are exported as
 * members of one object: each use of a name that is exported itself goes through a cell of the
 * module, which was measured to cost the scan 7 %.
 */
export const jsonScan = { skipBlank, skipName, skipValue, ValueScan } as const;

type JsonKind = 'object' | 'array' | 'scalar';
type JsonText =
  | {
      ok: true;
      kind: JsonKind;
      /**
       * The text on one line. It is a copy, with spaces for line breaks, when the text has line
       * breaks; otherwise it is the text itself. Valid JSON has line breaks only between tokens.
       */
      line: Uint8Array;
    }
  | { ok: false; reason: string };

/** Bytes that are read between two pauses. */
const STEP_BYTES = 256 * 1024;
const isMidCharacter = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

function* isUtf8InSteps(text: Uint8Array): Steps<boolean> {
  for (let from = 0, to = 0; from < text.length; from = to) {
    to = Math.min(from + STEP_BYTES, text.length);
    while (isMidCharacter(text[to]) && to < from + 2 * STEP_BYTES) to++;
    if (!isUtf8(text.subarray(from, to))) return false;
    yield;
  }
  return true;
}

function* onOneLine(text: Uint8Array): Steps<Uint8Array> {
  const line = new Uint8Array(text.length);
  for (let at = 0; at < text.length; yield) {
    const end = Math.min(at + STEP_BYTES, text.length);
    line.set(text.subarray(at, end), at);
    for (; at < end; at++) if (BLANK[text[at] as number] === BREAK) line[at] = SPACE;
  }
  return line;
}

/** Does the same as {@link jsonText}, in steps. */
export function* jsonTextInSteps(text: Uint8Array): Steps<JsonText> {
  if (text.length === 0) return { ok: false, reason: 'empty, JSON expected' };
  const isSmall = text.length <= STEP_BYTES;
  if (!(isSmall ? isUtf8(text) : yield* isUtf8InSteps(text))) return { ok: false, reason: 'not valid UTF-8' };
  const scan = new ValueScan(text, 0);
  while (!scan.run(isSmall ? text.length + 1 : scan.at + STEP_BYTES)) yield;
  if (scan.at !== text.length) return { ok: false, reason: 'not valid JSON' };
  const line = scan.blanks === BREAK ? yield* onOneLine(text) : text;
  const first = text[skipBlank(text, 0)];
  const kind = first === OPEN_OBJECT ? 'object' : first === OPEN_ARRAY ? 'array' : 'scalar';
  return { ok: true, kind, line };
}

/** Returns the kind of a JSON text and the text on one line; or the fault, for an operator. */
export const jsonText = (text: Uint8Array): JsonText => atOnce(jsonTextInSteps(text));
