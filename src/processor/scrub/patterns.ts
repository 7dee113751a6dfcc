/**
 * Removes parts of a text that are private by their form. Each function returns the text without
 * these parts, and takes time in proportion to the text, even when the text is hostile.
 */
import { isIPv6 } from 'node:net';
import type { Steps } from '../../lib/slices.ts';
import type { SecretNames } from './names.ts';

export const FILTERED = '[Filtered]';

type Range = readonly [start: number, end: number];
/**
 * Finds the first private range whose sign (such as `@` or `=`) is at `from` or later. Some of
 * these functions stop at `to`.
 */
type Find = (text: string, from: number, to?: number) => Range | undefined;

function without(text: string, find: Find): string {
  let kept = '';
  let from = 0;
  for (let range = find(text, 0); range; range = find(text, from)) {
    kept += text.slice(from, range[0]) + FILTERED;
    from = range[1];
  }
  return from === 0 ? text : kept + text.slice(from);
}

/** Characters that are searched between two pauses. */
const STEP_CHARS = 32 * 1024;
/**
 * Characters before and behind a step that are searched with it, for a range that crosses its end.
 * E-mail addresses, card numbers and IP addresses are shorter.
 */
const BESIDE_CHARS = 4 * 1024;

/**
 * Returns a long text without the ranges that `find` finds, in steps.
 * @param isShort false if a range, with the text that decides about it, may exceed BESIDE_CHARS
 */
function* withoutInSteps(text: string, find: Find, isShort = true): Steps<string> {
  const clean: string[] = [];
  let copied = 0;
  for (let start = 0; start < text.length; start += STEP_CHARS) {
    const end = start + STEP_CHARS;
    const base = isShort ? Math.max(copied, start - BESIDE_CHARS) : 0;
    const part = isShort ? text.slice(base, end + BESIDE_CHARS) : text;
    const pieces: string[] = [];
    let from = Math.max(copied, isShort ? base : start) - base;
    for (let range = find(part, from, end - base); range; range = find(part, from, end - base)) {
      // A range that begins behind this step is left to the next step, which sees all of it.
      if (isShort && range[0] >= end - base) break;
      pieces.push(text.slice(copied, base + range[0]), FILTERED);
      from = range[1];
      copied = base + from;
    }
    // The pieces are joined now: millions of them would take many times their bytes.
    if (pieces.length > 0) clean.push(pieces.join(''));
    yield;
  }
  return copied === 0 ? text : clean.join('') + text.slice(copied);
}

/** Index, in a table of characters, of all characters outside ASCII. */
const BEYOND_ASCII = 0x80;
/**
 * Makes a table of the characters that match. A look-up in it takes less time than a regular
 * expression.
 */
const tableOf = (chars: RegExp): Uint8Array =>
  Uint8Array.from({ length: BEYOND_ASCII + 1 }, (_, code) => Number(chars.test(String.fromCharCode(code))));

const isOneOf = (chars: Uint8Array, text: string, at: number): boolean =>
  chars[Math.min(text.charCodeAt(at), BEYOND_ASCII)] === 1;

type Run = { chars: Uint8Array; lengthMax?: number };

/** Returns where the run of `chars` that starts at `from` ends to the right. */
function rightEnd(text: string, from: number, { chars, lengthMax = Infinity }: Run): number {
  const end = Math.min(text.length, from + lengthMax);
  let at = from;
  while (at < end && isOneOf(chars, text, at)) at++;
  return at;
}

/**
 * Returns where the run of `chars` that ends at `to` begins to the left, but not before `floor`.
 */
function leftEnd(text: string, to: number, { chars, floor }: { chars: Uint8Array; floor: number }): number {
  let at = to;
  while (at > floor && isOneOf(chars, text, at - 1)) at--;
  return at;
}

// ---- E-mail ----

/**
 * Longest part of an e-mail address, before or behind the `@`. RFC 5321, 4.5.3.1, allows 64 and
 * 255.
 */
const EMAIL_PART_CHARS_MAX = 1_024;
const AT = 0x40;
const PERCENT = 0x25;
const LOCAL = tableOf(/[\w.%+~!$*^\u0080-\uffff-]/);
const DOMAIN = tableOf(/[a-z0-9.\u0080-\uffff-]/i);
/**
 * Matches the last label of a domain: a possible top-level domain. Hyphens of the text may follow
 * the label; they are replaced together with the address.
 */
const TOP_LEVEL = /^(?:[a-z\u0080-\uffff]{2,}-*|xn--[a-z0-9-]+)$/i;

/**
 * Returns the length of the longest domain at the beginning of the text; 0 if there is none. The
 * last label of the domain must be a possible top-level domain: letters or `xn--…`, not a number.
 */
function domainLength(text: string): number {
  for (let end = text.length; end > 0; ) {
    const dot = text.lastIndexOf('.', end - 1);
    if (dot <= 0) return 0;
    if (TOP_LEVEL.test(text.slice(dot + 1, end))) return end;
    end = dot;
  }
  return 0;
}

const findEmail: Find = (text, from) => {
  let floor = from;
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    // In a URL the `@` is written as `%40`.
    const isSign = code === AT || (code === PERCENT && text.startsWith('40', at + 1));
    if (!isSign) continue;
    const behind = code === AT ? at + 1 : at + 3;
    const start = leftEnd(text, at, { chars: LOCAL, floor: Math.max(floor, at - EMAIL_PART_CHARS_MAX) });
    // The next address begins behind this sign. Otherwise its local part could include `%40`, and
    // each local part would be read again and again.
    floor = behind;
    if (start === at) continue;
    const domain = { chars: DOMAIN, lengthMax: EMAIL_PART_CHARS_MAX };
    const length = domainLength(text.slice(behind, rightEnd(text, behind, domain)));
    if (length > 0) return [start, behind + length];
  }
  return undefined;
};
export const withoutEmails = (text: string): string => without(text, findEmail);

// ---- Payment cards ----

export const CARD_DIGITS_MIN = 13;
const CARD_DIGITS_MAX = 19;
/**
 * Matches the first digit of a card number, which is 2 to 6 for all issuers. A time in milliseconds
 * begins with 1.
 */
const CARD_START = /(?<![a-z\d]-?)[2-6](?=(?:[ +-]?\d){12})/gi;
const CARD_END = /(?!-?[a-z\d])/iy;
/** Characters that may stand between two digits of a card number. */
const CARD_GAP = tableOf(/[ +-]/);
const DIGIT = tableOf(/\d/);

/**
 * Checks the Luhn sum (ISO/IEC 7812-1, annex B).
 * @param digits the number's digits, from the left
 */
function isLuhn(digits: ArrayLike<number>, count = digits.length): boolean {
  let sum = 0;
  for (let at = count - 1, odd = true; at >= 0; at--, odd = !odd) {
    const digit = digits[at] as number;
    sum += odd ? digit : digit > 4 ? 2 * digit - 9 : 2 * digit;
  }
  return sum % 10 === 0;
}

const ZERO = 0x30;
/** Digits of the number that {@link cardEnd} is reading. */
const cardDigits = new Uint8Array(CARD_DIGITS_MAX);

/**
 * Returns the end of the longest card number that begins at `start`; undefined when there is none.
 */
function cardEnd(text: string, start: number): number | undefined {
  let found: number | undefined;
  let count = 0;
  for (let at = start; count < CARD_DIGITS_MAX; ) {
    if (count > 0 && isOneOf(CARD_GAP, text, at)) at++;
    if (!isOneOf(DIGIT, text, at)) break;
    cardDigits[count++] = text.charCodeAt(at++) - ZERO;
    if (count < CARD_DIGITS_MIN || !isLuhn(cardDigits, count)) continue;
    CARD_END.lastIndex = at;
    if (CARD_END.test(text)) found = at;
  }
  return found;
}

const findCard: Find = (text, from) => {
  CARD_START.lastIndex = from;
  for (let first = CARD_START.exec(text); first; first = CARD_START.exec(text)) {
    const end = cardEnd(text, first.index);
    if (end !== undefined) return [first.index, end];
  }
  return undefined;
};
/**
 * Pattern of a number in groups as printed on a card, with dots or special blanks between the
 * groups.
 */
const GROUPED = [4, 6]
  .map((digits, at) => {
    const gap = `([.\\u00a0\\u2007\\u2009\\u202f]| {2,3})`;
    const back = `\\${at + 1}`;
    return digits === 4
      ? `[2-6]\\d{3}${gap}\\d{4}${back}\\d{4}${back}\\d{1,7}`
      : `3\\d{3}${gap}\\d{6}${back}\\d{5}`;
  })
  .join('|');
const CARD_IN_GROUPS = new RegExp(`(?<![a-z\\d.-])(?:${GROUPED})(?![a-z\\d])`, 'gi');
const digitsOf = (text: string): number[] => [...text].filter((char) => /\d/.test(char)).map(Number);
const findGroupedCard: Find = (text, from) => {
  CARD_IN_GROUPS.lastIndex = from;
  for (let found = CARD_IN_GROUPS.exec(text); found; found = CARD_IN_GROUPS.exec(text))
    if (isLuhn(digitsOf(found[0]))) return [found.index, CARD_IN_GROUPS.lastIndex];
  return undefined;
};
export const withoutCards = (text: string): string => without(without(text, findCard), findGroupedCard);

// ---- IP addresses ----

const BYTE = '(?:25[0-5]|2[0-4]\\d|[01]?\\d?\\d)';
/** Matches an IPv4 address. `140.0.0.0` is none: browsers write their versions like this. */
const IPV4 = new RegExp(`(?<!\\d|\\d\\.)(?!\\d+\\.0\\.0\\.0)${BYTE}(?:\\.${BYTE}){3}(?!\\d|\\.\\d)`, 'g');
const IPV6_CHARS = tableOf(/[\da-f:.]/i);
const WORD_CHAR = /\w/;
const HEX_DIGITS = tableOf(/[\da-f]/i);

/**
 * Matches what tells an IPv6 address from a name like `a::b`: a digit, or more than two groups.
 */
const ADDRESS_PARTS = /\d|[^:]:+[^:]+:+[^:]/;
const isAddress = (text: string): boolean => ADDRESS_PARTS.test(text) && isIPv6(text);

/** Leaves out of a range the characters that belong to a word or a sentence around it. */
function trimmedRun(text: string, [start, end]: Range): Range {
  let [left, right] = [start, end];
  if (left > 0 && WORD_CHAR.test(text.charAt(left - 1))) left = rightEnd(text, left, { chars: HEX_DIGITS });
  if (WORD_CHAR.test(text.charAt(right))) right = leftEnd(text, right, { chars: HEX_DIGITS, floor: left });
  while (right > left && text.charAt(right - 1) === '.') right--;
  if (text.charAt(left) === ':' && text.charAt(left + 1) !== ':') left++;
  if (text.charAt(right - 1) === ':' && text.charAt(right - 2) !== ':') right--;
  return [left, right];
}

/** Lengths of the shortest address, `::1`, and of the longest one with a port. */
const IPV6_CHARS_MIN = 3;
const IPV6_CHARS_MAX = 52;
/** Characters that are read on each side of a colon, at most. A longer run is no address. */
const IPV6_RUN_CHARS_MAX = 256;

/**
 * Finds the address in one run of digits, letters and colons. The address is the whole run, or the
 * run without its first or last group. Undefined when none of these is an address.
 */
function addressIn(text: string, run: Range): Range | undefined {
  if (run[1] - run[0] < IPV6_CHARS_MIN) return undefined;
  const [left, right] = trimmedRun(text, run);
  if (right - left > IPV6_CHARS_MAX || !ADDRESS_PARTS.test(text.slice(left, right))) return undefined;
  const ranges: Range[] = [
    [left, right],
    [left, text.lastIndexOf(':', right - 1)],
    [text.indexOf(':', left) + 1, right],
  ];
  return ranges.find(([start, end]) => start < end && isAddress(text.slice(start, end)));
}
const findIpv6: Find = (text, from) => {
  for (let colon = text.indexOf(':', from); colon !== -1; ) {
    const floor = Math.max(from, colon - IPV6_RUN_CHARS_MAX);
    const start = leftEnd(text, colon, { chars: IPV6_CHARS, floor });
    const end = rightEnd(text, colon, { chars: IPV6_CHARS, lengthMax: IPV6_RUN_CHARS_MAX });
    const found = addressIn(text, [start, end]);
    if (found) return found;
    colon = text.indexOf(':', end);
  }
  return undefined;
};
const findIpv4: Find = (text, from) => {
  IPV4.lastIndex = from;
  const found = IPV4.exec(text);
  return found ? [found.index, IPV4.lastIndex] : undefined;
};
export const withoutIps = (text: string): string =>
  (text.includes(':') ? without(text, findIpv6) : text).replace(IPV4, FILTERED);

// ---- Secrets by name, in a text ----

const NAME_IN_TEXT_MAX = 64;
/** Characters of a name: `%` for percent-encoding, and letters of any script. */
const NAME = tableOf(/[\w.%[\]\u0080-\uffff-]/);
/** ASCII characters of a name. In `用户token=` the letters before the name may belong to the text. */
const ASCII_NAME = tableOf(/[\w.%[\]-]/);
const ASCII_BLANKS = tableOf(/\s/);
const isBlank = (text: string, at: number): boolean =>
  text.charCodeAt(at) < BEYOND_ASCII ? isOneOf(ASCII_BLANKS, text, at) : /\s/.test(text.charAt(at));
const SLASHES = tableOf(/\\/);
/** Matches the end of a value in a query, a list of cookies or a sentence. */
const VALUE_END = /[&;,\s"'<>)}\]]|$/g;
const BARE_VALUE_END = /[,\s}\]]|$/g;
/** Matches an opening quote. In a string of JSON, a quote has backslashes before it. */
const OPENING_QUOTE = /\\{0,1023}["']/y;
/** Matches a scheme of authorization. The word behind the scheme is the secret (RFC 9110, 11.4). */
const SCHEME = /(?:bearer|basic|token|digest) {1,1000}/iy;
/**
 * Characters within which the end of a value, or of the blanks before it, is looked for. When there
 * is no end, all of the remaining text is secret.
 */
const VALUE_CHARS_MAX = 1024 * 1024;
const HEADER = /(?<=authorization): {0,2}(?=(?:bearer|basic|token|digest) )/iy;

/** Returns the length of the pattern's match right at `from`; 0 without a match. */
function lengthAt(text: string, from: number, pattern: RegExp): number {
  pattern.lastIndex = from;
  return pattern.test(text) ? pattern.lastIndex - from : 0;
}

/** Returns the end of the value without quotes that begins at `start`. */
function bareEnd(text: string, start: number, end: RegExp): number {
  // A list or an object that was cut off: all of the remaining text may belong to it.
  if (text.charAt(start) === '[' || text.charAt(start) === '{') return text.length;
  const from = start + lengthAt(text, start, SCHEME);
  const near = text.length - from > VALUE_CHARS_MAX ? text.slice(from, from + VALUE_CHARS_MAX) : undefined;
  end.lastIndex = near === undefined ? from : 0;
  const at = end.exec(near ?? text)?.index ?? text.length;
  if (near === undefined) return at;
  return at < VALUE_CHARS_MAX ? from + at : text.length;
}

/**
 * Returns the value that begins at `from`, without its quotes; undefined for a value that was
 * removed already. `end` matches the end of a value that has no quotes.
 */
function valueAt(text: string, from: number, end: RegExp): Range | undefined {
  const start = from + lengthAt(text, from, OPENING_QUOTE);
  // A value that was removed already is skipped. Otherwise its end would be searched again for each
  // name.
  if (text.startsWith(FILTERED, start + lengthAt(text, start, SCHEME))) return undefined;
  const sign = text.slice(from, start);
  return [start, sign === '' ? bareEnd(text, start, end) : closingQuote(text, start, sign)];
}

/**
 * Finds the secret value in `name=value`, in a query, a cookie or a log line; undefined when the
 * name names no secret. `at` is the `=`.
 */
function assigned(text: string, at: number, names: SecretNames): Range | undefined {
  const floor = Math.max(0, at - NAME_IN_TEXT_MAX);
  const start = leftEnd(text, at, { chars: ASCII_NAME, floor });
  const outer = leftEnd(text, start, { chars: NAME, floor });
  const isName = (from: number, end: number): boolean => from < end && names.has(text.slice(from, at));
  return isName(start, at) || isName(outer, start) ? valueAt(text, at + 1, VALUE_END) : undefined;
}

/**
 * Finds the secret value in `"name": value`, in JSON that was cut off or in the text of an object;
 * undefined when no name before the colon names a secret. `at` is the colon.
 */
function quotedMember(text: string, at: number, names: SecretNames): Range | undefined {
  const floor = Math.max(0, at - NAME_IN_TEXT_MAX);
  let closing = at - 1;
  while (closing >= floor && isBlank(text, closing)) closing--;
  const mark = text.charAt(closing);
  if (mark !== '"' && mark !== "'") return undefined;
  const end = leftEnd(text, closing, { chars: SLASHES, floor });
  const before = text.slice(floor, end);
  const opening = before.lastIndexOf(mark);
  if (opening === -1 || !names.has(before.slice(opening + 1))) return undefined;
  const blanksEnd = Math.min(text.length, at + VALUE_CHARS_MAX);
  let from = at + 1;
  while (from < blanksEnd && isBlank(text, from)) from++;
  return from === blanksEnd ? [from, text.length] : valueAt(text, from, BARE_VALUE_END);
}

/**
 * Finds the secret value in `Authorization: Bearer value`, a header line; undefined for other text.
 * `at` is the colon.
 */
function header(text: string, at: number, names: SecretNames): Range | undefined {
  const length = names.has('authorization') ? lengthAt(text, at, HEADER) : 0;
  return length > 0 ? valueAt(text, at + length, VALUE_END) : undefined;
}

/** Longest user and password in a URL. */
const USERINFO_CHARS_MAX = 512;
const USERINFO = tableOf(/[^\s/?#"'<>\\]/);
/**
 * Finds the password in `https://user:password@host`; undefined for a URL without one. `at` is the
 * colon before the slashes.
 */
function userinfo(text: string, at: number, names: SecretNames): Range | undefined {
  if (!text.startsWith('//', at + 1) || !names.has('password')) return undefined;
  const start = at + 3;
  const authority = text.slice(
    start,
    rightEnd(text, start, { chars: USERINFO, lengthMax: USERINFO_CHARS_MAX }),
  );
  const colon = authority.indexOf(':');
  const sign = authority.lastIndexOf('@');
  if (colon === -1 || sign < colon || authority.slice(colon + 1, sign) === FILTERED) return undefined;
  return [start + colon + 1, start + sign];
}

const BACKSLASH = 0x5c;
/**
 * Returns where the value's closing quote begins. When `sign`, the opening quote, has backslashes
 * before it, the closing quote has as many. When `sign` has none, the closing quote has an even
 * number of backslashes before it. Any other quote belongs to the value.
 */
function closingQuote(text: string, from: number, sign: string): number {
  const escapes = sign.length - 1;
  const quote = sign.charCodeAt(escapes);
  const until = Math.min(text.length, from + VALUE_CHARS_MAX);
  let slashes = 0;
  for (let at = from; at < until; at++) {
    const code = text.charCodeAt(at);
    if (code === BACKSLASH) slashes++;
    else {
      const closes = escapes > 0 ? slashes === escapes : slashes % 2 === 0;
      if (code === quote && closes) return at - escapes;
      slashes = 0;
    }
  }
  return text.length;
}

const EQUALS = 0x3d;
const COLON = 0x3a;

const findSecret =
  (names: SecretNames): Find =>
  (text, from, to = text.length) => {
    const end = Math.min(to, text.length);
    for (let at = from; at < end; at++) {
      const sign = text.charCodeAt(at);
      if (sign !== EQUALS && sign !== COLON) continue;
      const range =
        sign === EQUALS
          ? assigned(text, at, names)
          : (quotedMember(text, at, names) ?? header(text, at, names) ?? userinfo(text, at, names));
      if (range && range[0] < range[1]) return range;
    }
    return undefined;
  };
export const withoutSecrets = (text: string, names: SecretNames): string => without(text, findSecret(names));

/** The kinds of data that a project wants removed. */
export type Patterns = { secrets: SecretNames | undefined; emails: boolean; cards: boolean; ips: boolean };

/** Returns a long text without these kinds of data, in steps. */
export function* cleanInSteps(text: string, { secrets, emails, cards, ips }: Patterns): Steps<string> {
  let clean = secrets ? yield* withoutInSteps(text, findSecret(secrets), false) : text;
  if (emails) clean = yield* withoutInSteps(clean, findEmail);
  if (cards) clean = yield* withoutInSteps(yield* withoutInSteps(clean, findCard), findGroupedCard);
  if (ips) clean = yield* withoutInSteps(yield* withoutInSteps(clean, findIpv6), findIpv4);
  return clean;
}
