/**
 * Whether bytes are one JSON text (RFC 8259), without building the value.
 *
 * A payload is stored as it was sent: its numbers keep digits that a double would lose, its keys their order and
 * their repeats, and nothing is decoded to a string and encoded again. What is left to do is to look at each byte
 * once, which needs no memory but one byte for each open bracket; JSON.parse of a 64 MiB recording made of `[]` would
 * need a gigabyte.
 */
import { isUtf8 } from 'node:buffer';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const COMMA = 0x2c;
const COLON = 0x3a;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const TAB = 0x09;

/** 1 for the bytes that may follow a backslash by themselves: " \ / b f n r t */
const SIMPLE_ESCAPE = new Uint8Array(256);
for (const char of '"\\/bfnrt') SIMPLE_ESCAPE[char.charCodeAt(0)] = 1;
const HEX = new Uint8Array(256);
for (const char of '0123456789abcdefABCDEF') HEX[char.charCodeAt(0)] = 1;

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/** Every step returns the position behind what it read, or -1. */
function skipSpace(text: Uint8Array, from: number): number {
  let at = from;
  for (let byte = text[at]; byte === SPACE || byte === LF || byte === CR || byte === TAB; byte = text[at])
    at++;
  return at;
}

function skipEscape(text: Uint8Array, at: number): number {
  const kind = text[at] ?? 0;
  if (SIMPLE_ESCAPE[kind]) return at + 1;
  if (kind !== 0x75) return -1; // u
  for (let digit = 1; digit <= 4; digit++) if (!HEX[text[at + digit] ?? 0]) return -1;
  return at + 5;
}

/** `at` is behind the opening quote. */
function skipString(text: Uint8Array, from: number): number {
  let at = from;
  while (at < text.length) {
    const byte = text[at] as number;
    if (byte === QUOTE) return at + 1;
    if (byte < SPACE) return -1;
    if (byte !== BACKSLASH) {
      at++;
      continue;
    }
    at = skipEscape(text, at + 1);
    if (at < 0) return -1;
  }
  return -1;
}

function skipDigits(text: Uint8Array, from: number): number {
  let at = from;
  while (isDigit(text[at])) at++;
  return at === from ? -1 : at;
}

function skipNumber(text: Uint8Array, from: number): number {
  let at = text[from] === 0x2d ? from + 1 : from; // -
  at = text[at] === 0x30 ? at + 1 : skipDigits(text, at); // no further digit after a leading 0
  if (at > 0 && text[at] === 0x2e) at = skipDigits(text, at + 1); // .
  if (at > 0 && ((text[at] ?? 0) | 0x20) === 0x65) {
    const sign = text[at + 1];
    at = skipDigits(text, sign === 0x2b || sign === 0x2d ? at + 2 : at + 1);
  }
  return at;
}

const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word));

function skipWord(text: Uint8Array, at: number): number {
  for (const word of WORDS)
    if (word.every((byte, offset) => text[at + offset] === byte)) return at + word.length;
  return -1;
}

function skipScalar(text: Uint8Array, at: number): number {
  const byte = text[at];
  if (byte === QUOTE) return skipString(text, at + 1);
  return byte === 0x2d || isDigit(byte) ? skipNumber(text, at) : skipWord(text, at);
}

/** The brackets that are open, innermost last. */
class Brackets {
  #open = new Uint8Array(64);
  depth = 0;

  push(bracket: number): void {
    if (this.depth === this.#open.length) {
      const wider = new Uint8Array(this.#open.length * 2);
      wider.set(this.#open);
      this.#open = wider;
    }
    this.#open[this.depth++] = bracket;
  }
  get innermost(): number | undefined {
    return this.depth === 0 ? undefined : this.#open[this.depth - 1];
  }
}

/** From the quote of a member's name to the first byte of its value. */
function skipName(text: Uint8Array, from: number): number {
  if (text[from] !== QUOTE) return -1;
  const end = skipString(text, from + 1);
  if (end < 0) return -1;
  const colon = skipSpace(text, end);
  return text[colon] === COLON ? skipSpace(text, colon + 1) : -1;
}

/** Behind a value: closes what ends here and goes to the first byte of the next value, or to the end of the text. */
function afterValue(text: Uint8Array, from: number, open: Brackets): number {
  let at = skipSpace(text, from);
  for (let bracket = open.innermost; bracket !== undefined; bracket = open.innermost) {
    if (text[at] === COMMA) {
      at = skipSpace(text, at + 1);
      return bracket === OPEN_OBJECT ? skipName(text, at) : at;
    }
    if (text[at] !== (bracket === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY)) return -1;
    open.depth--;
    at = skipSpace(text, at + 1);
  }
  return at === text.length ? at : -1;
}

/** Goes into an object or array: to its first value, or behind it when it is empty. */
function enter(text: Uint8Array, at: number, open: Brackets): { at: number; empty: boolean } {
  const bracket = text[at] as number;
  const first = skipSpace(text, at + 1);
  if (text[first] === (bracket === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY))
    return { at: first + 1, empty: true };
  open.push(bracket);
  return { at: bracket === OPEN_OBJECT ? skipName(text, first) : first, empty: false };
}

function isValue(text: Uint8Array): boolean {
  const open = new Brackets();
  let at = skipSpace(text, 0);
  do {
    const byte = text[at];
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      const inside = enter(text, at, open);
      at = inside.at;
      if (at < 0) return false;
      if (!inside.empty) continue;
    } else {
      at = skipScalar(text, at);
      if (at < 0) return false;
    }
    at = afterValue(text, at, open);
    if (at < 0) return false;
  } while (at < text.length || open.depth > 0);
  return true;
}

export type JsonKind = 'object' | 'array' | 'scalar';

/** What kind of JSON text the bytes are; or why they are none, as words for an operator. */
export function jsonKind(text: Uint8Array): { ok: true; kind: JsonKind } | { ok: false; reason: string } {
  if (text.length === 0) return { ok: false, reason: 'empty, JSON expected' };
  if (!isUtf8(text)) return { ok: false, reason: 'not valid UTF-8' };
  if (!isValue(text)) return { ok: false, reason: 'not valid JSON' };
  const first = text[skipSpace(text, 0)];
  const kind = first === OPEN_OBJECT ? 'object' : first === OPEN_ARRAY ? 'array' : 'scalar';
  return { ok: true, kind };
}

/**
 * The same JSON text without line breaks, which in valid JSON stand only between tokens. Copies only when there are
 * any.
 */
export function onOneLine(text: Uint8Array): Uint8Array {
  if (!text.includes(LF) && !text.includes(CR)) return text;
  return Buffer.from(text).map((byte) => (byte === LF || byte === CR ? SPACE : byte));
}
