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
const ZERO = 0x30;
const MINUS = 0x2d;

/** 1 for the bytes of `chars`. A look-up a byte, and never one behind the end of the text: that alone halves the time. */
function tableOf(chars: string): Uint8Array {
  const table = new Uint8Array(256);
  for (const char of chars) table[char.charCodeAt(0)] = 1;
  return table;
}

const BLANK = tableOf(' \t\n\r');
const DIGIT = tableOf('0123456789');
const HEX = tableOf('0123456789abcdefABCDEF');
/** What may follow a backslash by itself. */
const SIMPLE_ESCAPE = tableOf('"\\/bfnrt');
/** What stands for itself in a string: nine tenths of a payload. */
const PLAIN = new Uint8Array(256).fill(1, SPACE);
PLAIN[QUOTE] = 0;
PLAIN[BACKSLASH] = 0;

const isAt = (table: Uint8Array, text: Uint8Array, at: number): boolean =>
  at < text.length && table[text[at] as number] === 1;

/** `at` is behind the backslash. Every step returns the position behind what it read, or -1. */
function skipEscape(text: Uint8Array, at: number): number {
  if (isAt(SIMPLE_ESCAPE, text, at)) return at + 1;
  if (text[at] !== 0x75) return -1; // u
  for (let digit = 1; digit <= 4; digit++) if (!isAt(HEX, text, at + digit)) return -1;
  return at + 5;
}

/** `from` is behind the opening quote. */
function skipString(text: Uint8Array, from: number): number {
  const end = text.length;
  let at = from;
  while (at >= 0) {
    while (at < end && PLAIN[text[at] as number] === 1) at++;
    if (at === end) return -1;
    if (text[at] === QUOTE) return at + 1;
    if (text[at] !== BACKSLASH) return -1;
    at = skipEscape(text, at + 1);
  }
  return -1;
}

function skipDigits(text: Uint8Array, from: number): number {
  let at = from;
  while (isAt(DIGIT, text, at)) at++;
  return at === from ? -1 : at;
}

function skipNumber(text: Uint8Array, from: number): number {
  let at = text[from] === MINUS ? from + 1 : from;
  at = text[at] === ZERO ? at + 1 : skipDigits(text, at); // no further digit after a leading 0
  if (at > 0 && text[at] === 0x2e) at = skipDigits(text, at + 1); // .
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

function skipScalar(text: Uint8Array, at: number): number {
  const byte = text[at] as number;
  if (byte === QUOTE) return skipString(text, at + 1);
  return byte === MINUS || DIGIT[byte] === 1 ? skipNumber(text, at) : skipWord(text, at);
}

/** From the quote of a member's name to behind its colon. */
function skipName(text: Uint8Array, from: number): number {
  let at = skipString(text, from + 1);
  if (at < 0) return -1;
  while (isAt(BLANK, text, at)) at++;
  return text[at] === COLON ? at + 1 : -1;
}

/** Brackets that may be open without more memory. */
const BRACKETS_KEPT = 64;

/** The brackets that are open, innermost last. */
class Brackets {
  #outer = new Uint8Array(BRACKETS_KEPT);
  depth = 0;
  /** 0 outside of all. */
  innermost = 0;

  clear(): void {
    this.depth = 0;
    this.innermost = 0;
    if (this.#outer.length > BRACKETS_KEPT) this.#outer = new Uint8Array(BRACKETS_KEPT);
  }

  open(bracket: number): void {
    if (this.depth === this.#outer.length) {
      const wider = new Uint8Array(this.#outer.length * 2);
      wider.set(this.#outer);
      this.#outer = wider;
    }
    this.#outer[this.depth++] = this.innermost;
    this.innermost = bracket;
  }
  close(): void {
    this.innermost = this.#outer[--this.depth] as number;
  }
}

/** Of the one scan that is under way. */
const brackets = new Brackets();

/** What may come next, white space apart. The first two stand behind an opening bracket, where its end may come too. */
type Expected = 'name or end' | 'value or end' | 'name' | 'value' | 'comma or end';

class Scan {
  readonly #text: Uint8Array;
  #expected: Expected = 'value';

  constructor(text: Uint8Array) {
    this.#text = text;
    brackets.clear();
  }

  /** Whether the text is one value and nothing else. */
  isValue(): boolean {
    const text = this.#text;
    let at = 0;
    while (at < text.length) {
      if (BLANK[text[at] as number] === 1) at++;
      else {
        at = this.#step(at);
        if (at < 0) return false;
      }
    }
    return this.#expected === 'comma or end' && brackets.depth === 0;
  }

  #step(at: number): number {
    const byte = this.#text[at] as number;
    switch (this.#expected) {
      case 'comma or end':
        return byte === COMMA ? this.#comma(at) : this.#close(byte, at);
      case 'name or end':
        return byte === CLOSE_OBJECT ? this.#close(byte, at) : this.#name(byte, at);
      case 'value or end':
        return byte === CLOSE_ARRAY ? this.#close(byte, at) : this.#value(byte, at);
      case 'name':
        return this.#name(byte, at);
      case 'value':
        return this.#value(byte, at);
    }
  }

  #comma(at: number): number {
    if (brackets.depth === 0) return -1;
    this.#expected = brackets.innermost === OPEN_OBJECT ? 'name' : 'value';
    return at + 1;
  }

  #close(byte: number, at: number): number {
    const { innermost } = brackets;
    if (innermost === 0 || byte !== (innermost === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY)) return -1;
    brackets.close();
    this.#expected = 'comma or end';
    return at + 1;
  }

  #name(byte: number, at: number): number {
    this.#expected = 'value';
    return byte === QUOTE ? skipName(this.#text, at) : -1;
  }

  #value(byte: number, at: number): number {
    if (byte !== OPEN_OBJECT && byte !== OPEN_ARRAY) {
      this.#expected = 'comma or end';
      return skipScalar(this.#text, at);
    }
    brackets.open(byte);
    this.#expected = byte === OPEN_OBJECT ? 'name or end' : 'value or end';
    return at + 1;
  }
}

export type JsonKind = 'object' | 'array' | 'scalar';

/** What kind of JSON text the bytes are; or why they are none, as words for an operator. */
export function jsonKind(text: Uint8Array): { ok: true; kind: JsonKind } | { ok: false; reason: string } {
  if (text.length === 0) return { ok: false, reason: 'empty, JSON expected' };
  if (!isUtf8(text)) return { ok: false, reason: 'not valid UTF-8' };
  if (!new Scan(text).isValue()) return { ok: false, reason: 'not valid JSON' };
  const first = text.find((byte) => BLANK[byte] === 0);
  const kind = first === OPEN_OBJECT ? 'object' : first === OPEN_ARRAY ? 'array' : 'scalar';
  return { ok: true, kind };
}

/**
 * The same JSON text without line breaks, which in valid JSON stand only between tokens. Copies only when there are
 * any.
 */
export function onOneLine(text: Uint8Array): Uint8Array {
  const view = Buffer.from(text.buffer, text.byteOffset, text.length); // its search is memchr, a Uint8Array's is not
  if (!view.includes(LF) && !view.includes(CR)) return text;
  return Buffer.from(text).map((byte) => (byte === LF || byte === CR ? SPACE : byte));
}
