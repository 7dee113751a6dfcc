/**
 * Removes from a JSON text what a project does not want stored (docs/privacy.md). Everything else
 * is copied unchanged: numbers keep their digits, and members keep their order. Time and memory are
 * in proportion to the text, even when the text is hostile.
 */
import { assert } from '../../lib/assert.ts';
import { jsonScan, jsonTextInSteps } from '../../lib/json-text.ts';
import { atOnce, type Steps } from '../../lib/slices.ts';
import { SCRUBBED_BYTES_MAX } from '../../limits.ts';
import type { Privacy } from '../../stream/frame.ts';
import { ByteBlocks } from './byte-blocks.ts';
import { SECRET_NAMES, SecretNames } from './names.ts';
import {
  CARD_DIGITS_MIN,
  cleanInSteps,
  FILTERED,
  type Patterns,
  withoutCards,
  withoutEmails,
  withoutIps,
  withoutSecrets,
} from './patterns.ts';

const { skipBlank, ValueScan } = jsonScan;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const SPACE = 0x20;
/** The bit that is set in a small ASCII letter and not in a capital. */
const CASE = 0x20;
const LETTER_N = 0x6e;
const LETTER_U = 0x75;

/**
 * Signs that a string contains, as bits. A string without a pattern's signs is not searched for the
 * pattern.
 */
const DIGIT = 1;
const COLON = 2;
const AT = 4;
const EQUALS = 8;
const BRACKET = 16;
const QUOTED = 32;
/** The string has an escape like `\u0040`, which may be any character. */
const ESCAPED = 64;
const DOT = 128;
/** A colon follows an `n`, as in `Authorization: `. */
const HEADER = 256;
const SIGNS = new Uint8Array(256);
for (let digit = 0x30; digit <= 0x39; digit++) SIGNS[digit] = DIGIT;
for (const [char, sign] of [
  [':', COLON],
  ['.', DOT],
  ['@', AT],
  ['%', AT],
  ['=', EQUALS],
  ['{', BRACKET],
  ['[', BRACKET],
  ["'", QUOTED],
] as const)
  SIGNS[char.charCodeAt(0)] = sign;

/** Bits of the *context* of an open bracket. */
const OBJECT = 1;
/** The members of the object are attributes `{"value":…,"type":…}`, as in spans and logs. */
const ATTRIBUTES = 2;
/** The object is the attribute that contains the user's address. */
const ADDRESS_ATTRIBUTE = 4;
/** The object has named its `value` as a secret, like `{"name":"Authorization","value":…}`. */
const NAMED_SECRET = 8;
const NAMING_MEMBERS: ReadonlySet<string> = new Set(['name', 'key', 'header', 'Name', 'Key']);
const VALUE_MEMBERS: ReadonlySet<string> = new Set(['value', 'values', 'Value']);

const IP_ADDRESS = 'ip_address';
const USER_IP_ADDRESS = 'user.ip_address';
/** The text with which an SDK asks the server to fill in the client's address. */
const AUTO = '{{auto}}';

const FILTERED_JSON = Buffer.from(JSON.stringify(FILTERED));
const FILTERED_ATTRIBUTE = Buffer.from(JSON.stringify({ value: FILTERED, type: 'string' }));
const NULL_JSON = Buffer.from('null');

const bufferOf = ({ buffer, byteOffset, length }: Uint8Array): Buffer =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, length);

/** Kinds of private data that a string may hold, as bits. */
const SECRET = 1;
const EMAIL = 2;
const CARD = 4;
const IP = 8;
/** The string may be JSON that has strings in it. */
const NESTED = 16;
const ANYTHING = SECRET | EMAIL | CARD | IP | NESTED;

/** What one set of privacy settings removes. */
class Rules implements Patterns {
  readonly emails: boolean;
  readonly cards: boolean;
  readonly ips: boolean;
  /** Whether the user's address is removed. */
  readonly userIp: boolean;
  readonly secrets: SecretNames | undefined;
  /** Whether the rules remove anything. If not, a pass only fills in the user's address. */
  readonly removes: boolean;

  constructor({ scrub, names }: Privacy) {
    this.emails = scrub.includes('emails');
    this.cards = scrub.includes('cards');
    this.ips = scrub.includes('ips');
    this.userIp = this.ips || scrub.includes('user-ip');
    const secrets = new SecretNames(scrub.includes('keys') ? SECRET_NAMES : [], names);
    this.secrets = secrets.none ? undefined : secrets;
    this.removes = scrub.length + names.length > 0;
  }

  isSecret(name: string): boolean {
    return this.secrets?.has(name) === true;
  }

  /**
   * Returns the text without private data.
   * @param held bits of the kinds of private data that the text may hold
   */
  text(text: string, held: number): string {
    let clean = text;
    if (this.secrets && (held & SECRET) !== 0) clean = withoutSecrets(clean, this.secrets);
    if (this.emails && (held & EMAIL) !== 0) clean = withoutEmails(clean);
    if (this.cards && (held & CARD) !== 0) clean = withoutCards(clean);
    return this.ips && (held & IP) !== 0 ? withoutIps(clean) : clean;
  }
}

/** A string of the text: where it lies between its quotes, and the signs it contains. */
type Token = { start: number; end: number; signs: number; digits: number; colons: number; dots: number };

/**
 * Most levels of JSON within strings of JSON that are scrubbed. Each level takes a copy of its
 * content.
 */
const NESTED_TEXTS_MAX = 8;
/** Bytes of nested texts in memory at the same time, at most, all levels together. */
const NESTED_BYTES_MAX = 64 * 1024 * 1024;

/** Bytes that are read between two pauses. */
const STEP_BYTES = 16 * 1024;
/** A string of more bytes is read, cleaned and written in steps of its own. */
const LARGE_BYTES = 64 * 1024;
/** Bytes of a member's name that are compared, at most. */
const NAME_BYTES_MAX = 4 * 1024;
const STARTS_AS_JSON = /^\s{0,1000}[[{]/;

class TooLargeError extends Error {}

/**
 * Returns the last place at or before `to` where the text can be cut without splitting an escape or
 * a character.
 * @param from a place before `to` where a character begins
 */
function characterEnd(json: Uint8Array, from: number, to: number): number {
  let at = to;
  while (((json[at] as number) & 0xc0) === 0x80) at--;
  for (let slash = at - 1; slash > at - 6; slash--) {
    if (json[slash] !== BACKSLASH) continue;
    let first = slash;
    while (first > from && json[first - 1] === BACKSLASH) first--;
    const isEscape = (slash - first) % 2 === 0;
    return isEscape && slash + (json[slash + 1] === LETTER_U ? 6 : 2) > at ? slash : at;
  }
  return at;
}

/** State that the pass over a text shares with the passes over the texts in its strings. */
class Shared {
  readonly rules: Rules;
  readonly clientAddress: string | undefined;
  /**
   * Bits (OBJECT to NAMED_SECRET) for each open bracket, from the outermost inwards, on into the
   * texts in strings.
   */
  contexts = new Uint8Array(64);
  nestedBytes = 0;

  constructor(rules: Rules, clientAddress: string | undefined) {
    this.rules = rules;
    this.clientAddress = clientAddress;
  }
}

/**
 * One pass over one text. Strings of ordinary length are handled at once. The work for a large
 * string goes into {@link #late}, and is done in steps before the pass goes on.
 */
class Pass {
  readonly #json: Buffer;
  readonly #shared: Shared;
  readonly #rules: Rules;
  /** How many strings surround the text. */
  readonly #level: number;
  /** The new text, made with the first change. */
  #out: ByteBlocks | undefined;
  /** Place up to which the text was copied to #out or replaced there. */
  #copied = 0;
  #at = 0;
  /** Whether the next string is a member's name. */
  #isName = false;
  /** Work on a large string or value. It returns the place where the pass goes on. */
  #late: Steps<number> | undefined;
  /**
   * How many brackets are open. If this text is JSON in a string of another JSON text, the brackets
   * that are open around that string count, too (`#outerDepth`).
   */
  #depth: number;
  readonly #outerDepth: number;
  /**
   * What the next object is: ATTRIBUTES, ADDRESS_ATTRIBUTE, or 0 for any other. #open puts this
   * into the contexts.
   */
  #next = 0;
  readonly #token: Token = { start: 0, end: 0, signs: 0, digits: 0, colons: 0, dots: 0 };

  constructor(json: Uint8Array, shared: Shared, { level = 0, depth = 0 } = {}) {
    this.#json = bufferOf(json);
    this.#shared = shared;
    this.#rules = shared.rules;
    this.#level = level;
    this.#depth = depth;
    this.#outerDepth = depth;
  }

  /**
   * Scrubs the text.
   * @returns the new text; undefined when nothing changes
   * @throws TooLargeError
   */
  *run(): Steps<Uint8Array | undefined> {
    const json = this.#json;
    while (this.#at < json.length) {
      this.#go(this.#at + STEP_BYTES);
      for (let late = this.#late; late; late = this.#late) {
        this.#late = undefined;
        this.#at = yield* late;
      }
      if (this.#out) this.#copyTo(this.#at);
      yield;
    }
    return this.#out && (yield* this.#out.joined());
  }

  #go(until: number): void {
    const json = this.#json;
    const end = Math.min(json.length, until);
    let isName = this.#isName;
    let at = this.#at;
    while (at < end && !this.#late) {
      const byte = json[at] as number;
      if (byte === QUOTE) {
        at = isName ? this.#member(at) : this.#string(at);
        isName = false;
        continue;
      }
      if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.#open(byte === OPEN_OBJECT ? OBJECT : 0);
      else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) this.#depth--;
      at = byte === OPEN_ARRAY ? this.#pair(at + 1) : at + 1;
      if (byte === OPEN_OBJECT || byte === COMMA) isName = (this.#context & OBJECT) !== 0;
    }
    this.#isName = isName;
    this.#at = at;
  }

  get #context(): number {
    return this.#depth === this.#outerDepth ? 0 : (this.#shared.contexts[this.#depth - 1] as number);
  }

  #open(kind: number): void {
    const { contexts } = this.#shared;
    if (this.#depth === contexts.length) {
      this.#shared.contexts = new Uint8Array(this.#depth * 2);
      this.#shared.contexts.set(contexts);
    }
    this.#shared.contexts[this.#depth++] = kind === OBJECT ? kind | this.#next : kind;
    this.#next = 0;
  }

  /** Copies the text up to `end` unchanged. */
  #copyTo(end: number): ByteBlocks {
    this.#out ??= new ByteBlocks(this.#json.length + FILTERED_ATTRIBUTE.length);
    this.#out.copy(this.#json, this.#copied, end);
    this.#copied = end;
    if (this.#out.length > SCRUBBED_BYTES_MAX) throw new TooLargeError();
    return this.#out;
  }

  #replace(start: number, end: number, by: Uint8Array): void {
    this.#copyTo(start).copy(by);
    this.#copied = end;
  }

  /**
   * Reads the string at a quote into #token.
   * @returns the place behind its closing quote; 0 when the string is large and was not read to its
   * end
   */
  #read(quote: number): number {
    const token = this.#token;
    token.start = quote + 1;
    token.end = quote + 1;
    token.signs = 0;
    token.digits = 0;
    token.colons = 0;
    token.dots = 0;
    return this.#readOn(quote + LARGE_BYTES);
  }

  /**
   * Reads the rest of a large string into #token.
   * @returns the place behind its closing quote
   */
  *#readLarge(): Steps<number> {
    for (;;) {
      const end = this.#readOn(this.#token.end + LARGE_BYTES);
      if (end > 0) return end;
      yield;
    }
  }

  #readOn(until: number): number {
    const json = this.#json;
    const token = this.#token;
    let { signs, digits, colons, dots, end: at } = token;
    let byte = json[at] as number;
    for (; byte !== QUOTE && at < until; byte = json[++at] as number) {
      const sign = SIGNS[byte] as number;
      signs |= sign;
      if (sign === DIGIT) digits++;
      else if (sign === COLON) {
        colons++;
        if (((json[at - 1] as number) | CASE) === LETTER_N) signs |= HEADER;
      } else if (sign === DOT) dots++;
      else if (byte === BACKSLASH) signs |= json[++at] === LETTER_U ? ESCAPED : QUOTED;
    }
    token.end = at;
    token.signs = signs;
    token.digits = digits;
    token.colons = colons;
    token.dots = dots;
    return byte === QUOTE ? at + 1 : 0;
  }

  /** Returns #token's text from `start` to `end`, by default all of it, without escapes. */
  #decoded(end = this.#token.end, start = this.#token.start): string {
    const text = this.#json.toString('utf8', start, end);
    return (this.#token.signs & (ESCAPED | QUOTED)) !== 0 && text.includes('\\')
      ? JSON.parse(`"${text}"`)
      : text;
  }

  *#decodedLarge({ start, end }: Token): Steps<string> {
    const parts: string[] = [];
    for (let from = start, to = start; from < end; from = to) {
      to = from + LARGE_BYTES < end ? characterEnd(this.#json, from, from + LARGE_BYTES) : end;
      parts.push(this.#decoded(to, from));
      yield;
    }
    return parts.join('');
  }

  /** Returns #token as a member's name. */
  #name(): string {
    const { start, end } = this.#token;
    return this.#decoded(
      end - start > NAME_BYTES_MAX ? characterEnd(this.#json, start, start + NAME_BYTES_MAX) : end,
    );
  }

  /**
   * Bits of what #token may contain: kinds of private data that the rules remove, and JSON
   * (NESTED). ANYTHING if it has an escape like `\u0040`.
   */
  get #held(): number {
    const { signs, digits, colons, dots } = this.#token;
    const { emails, cards, ips, secrets, removes } = this.#rules;
    if (signs === 0 || !removes) return 0;
    if ((signs & ESCAPED) !== 0) return ANYTHING;
    const mayHoldStrings = (signs & QUOTED) !== 0;
    let held = 0;
    if (mayHoldStrings && (signs & BRACKET) !== 0) held |= NESTED;
    if (emails && (signs & AT) !== 0) held |= EMAIL;
    if (cards && digits >= CARD_DIGITS_MIN) held |= CARD;
    if (ips && ((dots > 2 && digits > 3) || colons > (digits > 0 ? 1 : 2))) held |= IP;
    const mayFollowColon = mayHoldStrings || (signs & AT) !== 0;
    if (secrets && ((signs & (EQUALS | HEADER)) !== 0 || (colons > 0 && mayFollowColon))) held |= SECRET;
    return held;
  }

  /**
   * Scrubs a string value, which may be JSON itself.
   * @returns where the string ends
   */
  #string(quote: number): number {
    const end = this.#read(quote);
    if (end === 0) return this.#later(this.#largeString());
    const held = this.#held;
    if (held !== 0) this.#rewrite(held, true);
    return end;
  }

  #later(work: Steps<number>): number {
    this.#late = work;
    return this.#at;
  }

  *#largeString(): Steps<number> {
    const end = yield* this.#readLarge();
    if (this.#held !== 0) yield* this.#rewriteLarge(true);
    return end;
  }

  #rewrite(held: number, mayHoldJson: boolean): void {
    const { start, end } = this.#token;
    const text = this.#decoded();
    const nested = mayHoldJson && STARTS_AS_JSON.test(text) ? atOnce(this.#asJson(text)) : undefined;
    const clean = nested ?? this.#rules.text(text, held);
    if (clean === text) return;
    if (clean === FILTERED) return this.#replace(start - 1, end + 1, FILTERED_JSON);
    this.#copyTo(start - 1).text(JSON.stringify(clean));
    this.#copied = end + 1;
  }

  *#rewriteLarge(mayHoldJson: boolean): Steps<void> {
    const token = { ...this.#token };
    const text = yield* this.#decodedLarge(token);
    const nested = mayHoldJson && STARTS_AS_JSON.test(text) ? yield* this.#asJson(text) : undefined;
    const clean = nested ?? (yield* cleanInSteps(text, this.#rules));
    if (clean === text) return;
    const out = this.#copyTo(token.start);
    for (let from = 0, to = 0; from < clean.length; from = to) {
      to = from + LARGE_BYTES;
      // The two halves of a character stay together.
      if (((clean.charCodeAt(to - 1) || 0) & 0xfc00) === 0xd800) to--;
      out.text(JSON.stringify(clean.slice(from, to)).slice(1, -1));
      if (out.length > SCRUBBED_BYTES_MAX) throw new TooLargeError();
      yield;
    }
    this.#copied = token.end;
  }

  /**
   * Scrubs a text if it is JSON. Returns undefined for other text, and `[Filtered]` when the
   * nesting is too deep or too large to be scrubbed.
   */
  *#asJson(text: string): Steps<string | undefined> {
    const shared = this.#shared;
    if (this.#level === NESTED_TEXTS_MAX || shared.nestedBytes + text.length > NESTED_BYTES_MAX)
      return FILTERED;
    const bytes = Buffer.from(text);
    if (!(yield* jsonTextInSteps(bytes)).ok) return undefined;
    shared.nestedBytes += bytes.length;
    const clean = yield* new Pass(bytes, shared, { level: this.#level + 1, depth: this.#depth }).run();
    shared.nestedBytes -= bytes.length;
    return clean ? bufferOf(clean).toString() : text;
  }

  /**
   * Handles a member's name.
   * @returns where the member's value begins, or where it ends if the value was handled, too
   */
  #member(quote: number): number {
    const end = this.#read(quote);
    if (end === 0) return this.#later(this.#largeMember());
    const name = this.#decoded();
    const held = this.#held;
    if (held !== 0) this.#rewrite(held, false);
    return this.#memberValue(name, end);
  }

  *#largeMember(): Steps<number> {
    const end = yield* this.#readLarge();
    const name = this.#name();
    if (this.#held !== 0) yield* this.#rewriteLarge(false);
    return this.#memberValue(name, end);
  }

  #memberValue(name: string, end: number): number {
    const value = skipBlank(this.#json, skipBlank(this.#json, end) + 1);
    const opens = this.#json[value] === OPEN_OBJECT;
    if (this.#rules.isSecret(name)) {
      const isAttribute = opens && (this.#context & ATTRIBUTES) !== 0;
      return this.#remove(value, isAttribute ? FILTERED_ATTRIBUTE : FILTERED_JSON);
    }
    if (this.#isAddress(name, opens)) return this.#address(value);
    if (this.#rules.secrets && NAMING_MEMBERS.has(name)) this.#noteNamed(value);
    if (this.#rules.secrets && VALUE_MEMBERS.has(name) && this.#isNamedSecret(value))
      return this.#remove(value, FILTERED_JSON);
    if (opens && name === 'attributes') this.#next = ATTRIBUTES;
    if (opens && name === USER_IP_ADDRESS) this.#next = ADDRESS_ATTRIBUTE;
    return value;
  }

  /** Notes that this object's `value` is a secret, if the string at `value` is a secret's name. */
  #noteNamed(value: number): void {
    if (this.#json[value] !== QUOTE || this.#read(value) === 0) return;
    if (this.#rules.isSecret(this.#name()))
      (this.#shared.contexts[this.#depth - 1] as number) |= NAMED_SECRET;
  }

  /**
   * Whether the object's `value` is a secret. The secret's name comes before the value, or right
   * behind it if the value is a string.
   */
  #isNamedSecret(value: number): boolean {
    if ((this.#context & NAMED_SECRET) !== 0) return true;
    const json = this.#json;
    const behind = json[value] === QUOTE ? this.#read(value) : 0;
    const comma = skipBlank(json, behind);
    if (behind === 0 || json[comma] !== COMMA) return false;
    const end = this.#read(skipBlank(json, comma + 1));
    if (end === 0 || !NAMING_MEMBERS.has(this.#decoded())) return false;
    const name = skipBlank(json, skipBlank(json, end) + 1);
    return json[name] === QUOTE && this.#read(name) !== 0 && this.#rules.isSecret(this.#name());
  }

  #isAddress(name: string, opens: boolean): boolean {
    if (name === 'value') return (this.#context & ADDRESS_ATTRIBUTE) !== 0;
    return name === IP_ADDRESS || (name === USER_IP_ADDRESS && !opens);
  }

  /**
   * Removes the user's address, or fills in the client's.
   * @returns where the value ends if it was replaced; else where it begins
   */
  #address(value: number): number {
    const { clientAddress } = this.#shared;
    if (this.#rules.userIp) return this.#remove(value, NULL_JSON);
    if (clientAddress === undefined || this.#json[value] !== QUOTE) return value;
    const end = this.#read(value);
    if (end === 0 || this.#decoded() !== AUTO) return value;
    this.#replace(value, end, Buffer.from(JSON.stringify(clientAddress)));
    return end;
  }

  /**
   * Replaces the value, unless it is null, which contains nothing private.
   * @returns where the value ends
   */
  #remove(value: number, by: Uint8Array): number {
    const scan = new ValueScan(this.#json, value);
    const removed = (): number => {
      let end = scan.at;
      while ((this.#json[end - 1] as number) <= SPACE) end--;
      if (this.#json[value] !== LETTER_N) this.#replace(value, end, by);
      return end;
    };
    if (scan.run(value + LARGE_BYTES)) return removed();
    return this.#later(
      (function* () {
        while (!scan.run(scan.at + LARGE_BYTES)) yield;
        return removed();
      })(),
    );
  }

  /**
   * Scrubs a pair like `["cookie","…"]`: some SDKs send headers, cookies and queries as lists of
   * pairs.
   * @param from the place behind the bracket
   * @returns where the pass goes on in the list
   */
  #pair(from: number): number {
    const json = this.#json;
    const quote = skipBlank(json, from);
    if (json[quote] !== QUOTE || !this.#rules.secrets) return from;
    const end = this.#string(quote);
    if (this.#late) return end;
    const comma = skipBlank(json, end);
    const value = skipBlank(json, comma + 1);
    if (json[comma] !== COMMA || !this.#rules.isSecret(this.#name())) return comma;
    if (json[value] !== QUOTE) return this.#pairList(value, comma);
    return this.#read(value) === 0 ? this.#later(this.#largePair(value)) : this.#pairValue(value);
  }

  /**
   * Scrubs a pair like `["Cookie",["a=b"]]`. Only a short list or object of scalars is removed, so
   * that no byte is read many times.
   */
  #pairList(value: number, comma: number): number {
    const json = this.#json;
    if (json[value] !== OPEN_ARRAY && json[value] !== OPEN_OBJECT) return comma;
    let end = value + 1;
    for (const until = value + LARGE_BYTES; end < until; end++) {
      const byte = json[end] as number;
      if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) return comma;
      if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) break;
      if (byte !== QUOTE) continue;
      const behind = this.#read(end);
      if (behind === 0) return comma;
      end = behind - 1;
    }
    if (json[skipBlank(json, end + 1)] !== CLOSE_ARRAY) return comma;
    this.#replace(value, end + 1, FILTERED_JSON);
    return end + 1;
  }

  *#largePair(value: number): Steps<number> {
    yield* this.#readLarge();
    return this.#pairValue(value);
  }

  /** Replaces the list's second string, which is in #token, if the list ends behind it. */
  #pairValue(value: number): number {
    const end = this.#token.end + 1;
    if (this.#json[skipBlank(this.#json, end)] !== CLOSE_ARRAY) return value;
    this.#replace(value, end, FILTERED_JSON);
    return end;
  }
}

/** Privacy settings whose rules are kept, at most. Many entries share the same settings. */
const RULES_KEPT_MAX = 1_000;
const known = new Map<string, Rules>();

function rulesOf(privacy: Privacy): Rules {
  const key = [...privacy.scrub, '', ...privacy.names].join('\n');
  let rules = known.get(key);
  if (rules) return rules;
  rules = new Rules(privacy);
  if (known.size === RULES_KEPT_MAX) known.clear();
  known.set(key, rules);
  return rules;
}

/**
 * Whether the settings remove anything. If so, a payload that cannot be read is not stored, because
 * it cannot be scrubbed.
 */
export const removesAnything = ({ scrub, names }: Privacy): boolean => scrub.length + names.length > 0;

/**
 * Scrubs a text as the settings want it, in steps. Returns the same bytes when nothing changes.
 * @param json valid JSON
 * @returns undefined when the result would have more than SCRUBBED_BYTES_MAX
 */
export function* scrubbedInSteps(json: Uint8Array, privacy: Privacy): Steps<Uint8Array | undefined> {
  try {
    const shared = new Shared(rulesOf(privacy), privacy.clientAddress);
    return (yield* new Pass(json, shared).run()) ?? json;
  } catch (error) {
    if (error instanceof TooLargeError) return undefined;
    throw error;
  }
}

/** Scrubs a small text at once. */
export const scrubbed = (json: Uint8Array, privacy: Privacy): Uint8Array => {
  const clean = atOnce(scrubbedInSteps(json, privacy));
  assert(clean, 'a small text stays below the bound');
  return clean;
};
