/**
 * Removes from a JSON text what a project does not want to have stored (docs/privacy.md). The text
 * is copied but for the strings and values that change: numbers keep their digits, names their
 * order. Time and memory are in proportion to the text, hostile text too.
 */
import { jsonScan, jsonText } from '../../lib/json-text.ts';
import type { Privacy } from '../../stream/frame.ts';
import { SECRET_NAMES, SecretNames } from './names.ts';
import {
  CARD_DIGITS_MIN,
  FILTERED,
  withoutCards,
  withoutEmails,
  withoutIps,
  withoutSecrets,
} from './patterns.ts';

const { skipBlank, skipValue } = jsonScan;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const SPACE = 0x20;
/** What a small letter has and a capital has not. */
const CASE = 0x20;
const LETTER_N = 0x6e;
const LETTER_U = 0x75;

/** What a string has: without the signs of a pattern it is not looked into. */
const DIGIT = 1;
const COLON = 2;
const AT = 4;
const EQUALS = 8;
const BRACKET = 16;
const QUOTED = 32;
/** Something is written as `\u0040`: it may be anything. */
const ESCAPED = 64;
const DOT = 128;
/** A colon between an `n` and a space, as in `Authorization: `. */
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

const OBJECT = 1;
/** An object whose members are `{"value":…,"type":…}`, as in spans and logs. */
const ATTRIBUTES = 2;
/** The attribute with the user's address. */
const ADDRESS_ATTRIBUTE = 4;

const IP_ADDRESS = 'ip_address';
const USER_IP_ADDRESS = 'user.ip_address';
/** SDKs ask the server by this to fill in the address. */
const AUTO = '{{auto}}';

const FILTERED_JSON = Buffer.from(JSON.stringify(FILTERED));
const FILTERED_ATTRIBUTE = Buffer.from(JSON.stringify({ value: FILTERED, type: 'string' }));
const NULL_JSON = Buffer.from('null');

const bufferOf = ({ buffer, byteOffset, length }: Uint8Array): Buffer =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, length);

/** What is done for one set of settings. */
class Rules {
  readonly emails: boolean;
  readonly cards: boolean;
  readonly ips: boolean;
  /** No address of the user is kept. */
  readonly userIp: boolean;
  readonly secrets: SecretNames | undefined;
  /** Anything is removed; else addresses are filled in alone. */
  readonly removes: boolean;

  constructor({ scrub, names }: Privacy) {
    this.emails = scrub.includes('emails');
    this.cards = scrub.includes('cards');
    this.ips = scrub.includes('ips');
    this.userIp = this.ips || scrub.includes('user-ip');
    const secrets = new SecretNames([...(scrub.includes('keys') ? SECRET_NAMES : []), ...names]);
    this.secrets = secrets.none ? undefined : secrets;
    this.removes = scrub.length + names.length > 0;
  }

  isSecret(name: string): boolean {
    return this.secrets?.has(name) === true;
  }

  text(text: string): string {
    let clean = this.secrets ? withoutSecrets(text, this.secrets) : text;
    if (this.emails) clean = withoutEmails(clean);
    if (this.cards) clean = withoutCards(clean);
    return this.ips ? withoutIps(clean) : clean;
  }
}

/** A string of the text, between its quotes; what it has of SIGNS. */
type Token = { start: number; end: number; signs: number; digits: number; colons: number; dots: number };

/** A string in a string in a string … that holds JSON: each costs a copy of what is in it. */
const NESTED_TEXTS_MAX = 8;

const CONTEXTS_KEPT = 64;
/** Of each open bracket of a text, then of those of the text in one of its strings. */
let contexts = new Uint8Array(CONTEXTS_KEPT);

/** One pass over one text. */
class Pass {
  readonly #json: Buffer;
  readonly #rules: Rules;
  readonly #clientAddress: string | undefined;
  /** How many strings the text is in. */
  readonly #level: number;
  readonly #kept: Uint8Array[] = [];
  /** Up to here the text is in #kept. */
  #copied = 0;
  /** How many brackets are open, with those around the text. */
  #depth: number;
  readonly #outerDepth: number;
  /** Of the value that comes next. */
  #next = 0;
  readonly #token: Token = { start: 0, end: 0, signs: 0, digits: 0, colons: 0, dots: 0 };

  constructor(
    json: Uint8Array,
    rules: Rules,
    {
      clientAddress,
      level = 0,
      depth = 0,
    }: { clientAddress: string | undefined; level?: number; depth?: number },
  ) {
    this.#json = bufferOf(json);
    this.#rules = rules;
    this.#clientAddress = clientAddress;
    this.#level = level;
    this.#depth = depth;
    this.#outerDepth = depth;
  }

  /** @returns undefined when nothing is changed */
  run(): Uint8Array | undefined {
    const json = this.#json;
    let isName = false;
    for (let at = 0; at < json.length; ) {
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
    if (this.#copied === 0) return undefined;
    this.#kept.push(json.subarray(this.#copied));
    return Buffer.concat(this.#kept);
  }

  get #context(): number {
    return this.#depth === this.#outerDepth ? 0 : (contexts[this.#depth - 1] as number);
  }

  #open(kind: number): void {
    if (this.#depth === contexts.length) {
      const wider = new Uint8Array(this.#depth * 2);
      wider.set(contexts);
      contexts = wider;
    }
    contexts[this.#depth++] = kind === OBJECT ? kind | this.#next : kind;
    this.#next = 0;
  }

  #replace(start: number, end: number, by: Uint8Array): void {
    this.#kept.push(this.#json.subarray(this.#copied, start), by);
    this.#copied = end;
  }

  /** Reads the string at a quote into #token. @returns where it ends, behind its quote */
  #read(quote: number): number {
    const json = this.#json;
    const token = this.#token;
    let signs = 0;
    let digits = 0;
    let colons = 0;
    let dots = 0;
    let at = quote + 1;
    for (let byte = json[at] as number; byte !== QUOTE; byte = json[++at] as number) {
      const sign = SIGNS[byte] as number;
      signs |= sign;
      if (sign === DIGIT) digits++;
      else if (sign === COLON) {
        colons++;
        if (json[at + 1] === SPACE && ((json[at - 1] as number) | CASE) === LETTER_N) signs |= HEADER;
      } else if (sign === DOT) dots++;
      else if (byte === BACKSLASH) signs |= json[++at] === LETTER_U ? ESCAPED : QUOTED;
    }
    token.start = quote + 1;
    token.end = at;
    token.signs = signs;
    token.digits = digits;
    token.colons = colons;
    token.dots = dots;
    return at + 1;
  }

  /** What #token says. */
  #decoded(): string {
    const { start, end, signs } = this.#token;
    const text = this.#json.toString('utf8', start, end);
    return (signs & (ESCAPED | QUOTED)) !== 0 && text.includes('\\') ? JSON.parse(`"${text}"`) : text;
  }

  /** Whether #token may hold anything that is removed. */
  get #isSuspect(): boolean {
    const { signs, digits, colons, dots } = this.#token;
    const { emails, cards, ips, secrets, removes } = this.#rules;
    if (signs === 0 || !removes) return false;
    const mayHoldStrings = (signs & QUOTED) !== 0;
    return (
      (signs & ESCAPED) !== 0 ||
      (mayHoldStrings && (signs & BRACKET) !== 0) ||
      (emails && (signs & AT) !== 0) ||
      (cards && digits >= CARD_DIGITS_MIN) ||
      (ips && ((dots > 2 && digits > 3) || colons > (digits > 0 ? 1 : 2))) ||
      (secrets !== undefined && ((signs & (EQUALS | HEADER)) !== 0 || (colons > 0 && mayHoldStrings)))
    );
  }

  /** A value; it may hold JSON itself. @returns where it ends */
  #string(quote: number): number {
    const end = this.#read(quote);
    if (this.#isSuspect) this.#rewrite(true);
    return end;
  }

  #rewrite(mayHoldJson: boolean): void {
    const { start, end } = this.#token;
    const text = this.#decoded();
    const clean = (mayHoldJson ? this.#asJson(text) : undefined) ?? this.#rules.text(text);
    if (clean !== text) this.#replace(start - 1, end + 1, Buffer.from(JSON.stringify(clean)));
  }

  /** The text without what is removed, when it is JSON; nothing of it where that is too deep. */
  #asJson(text: string): string | undefined {
    if (!/^\s*[[{]/.test(text)) return undefined;
    if (this.#level === NESTED_TEXTS_MAX) return FILTERED;
    const bytes = Buffer.from(text);
    if (!jsonText(bytes).ok) return undefined;
    const inner = { clientAddress: this.#clientAddress, level: this.#level + 1, depth: this.#depth };
    const clean = new Pass(bytes, this.#rules, inner).run();
    return clean ? bufferOf(clean).toString() : text;
  }

  /** A member's name. @returns where its value begins, or ends when all is done for it */
  #member(quote: number): number {
    const end = this.#read(quote);
    const name = this.#decoded();
    if (this.#isSuspect) this.#rewrite(false);
    const value = skipBlank(this.#json, skipBlank(this.#json, end) + 1);
    const opens = this.#json[value] === OPEN_OBJECT;
    if (this.#rules.isSecret(name)) {
      const isAttribute = opens && (this.#context & ATTRIBUTES) !== 0;
      return this.#remove(value, isAttribute ? FILTERED_ATTRIBUTE : FILTERED_JSON);
    }
    if (this.#isAddress(name, opens)) return this.#address(value);
    if (opens && name === 'attributes') this.#next = ATTRIBUTES;
    if (opens && name === USER_IP_ADDRESS) this.#next = ADDRESS_ATTRIBUTE;
    return value;
  }

  #isAddress(name: string, opens: boolean): boolean {
    if (name === 'value') return (this.#context & ADDRESS_ATTRIBUTE) !== 0;
    return name === IP_ADDRESS || (name === USER_IP_ADDRESS && !opens);
  }

  /** The user's address. */
  #address(value: number): number {
    if (this.#rules.userIp) return this.#remove(value, NULL_JSON);
    if (this.#clientAddress === undefined || this.#json[value] !== QUOTE) return value;
    const end = this.#read(value);
    if (this.#decoded() !== AUTO) return value;
    this.#replace(value, end, Buffer.from(JSON.stringify(this.#clientAddress)));
    return end;
  }

  /** Null says nothing and stays. @returns where the value ends */
  #remove(value: number, by: Uint8Array): number {
    let end = skipValue(this.#json, value);
    while ((this.#json[end - 1] as number) <= SPACE) end--;
    if (this.#json[value] !== LETTER_N) this.#replace(value, end, by);
    return end;
  }

  /**
   * `["cookie","…"]`: some SDKs send headers, cookies and queries as lists of pairs.
   * @param from behind the bracket @returns where the list goes on
   */
  #pair(from: number): number {
    const json = this.#json;
    const quote = skipBlank(json, from);
    if (json[quote] !== QUOTE || !this.#rules.secrets) return from;
    const comma = skipBlank(json, this.#string(quote));
    const value = skipBlank(json, comma + 1);
    if (json[comma] !== COMMA || json[value] !== QUOTE || !this.#rules.isSecret(this.#decoded()))
      return comma;
    const end = this.#read(value);
    if (json[skipBlank(json, end)] !== CLOSE_ARRAY) return comma;
    this.#replace(value, end, FILTERED_JSON);
    return end;
  }
}

/** Settings that many entries share. */
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

/** Whether payloads may only be stored when they can be read. */
export const removesAnything = ({ scrub, names }: Privacy): boolean => scrub.length + names.length > 0;

/**
 * The text as the settings want it; the same bytes when there is nothing to do.
 * @param json valid JSON
 */
export function scrubbed(json: Uint8Array, privacy: Privacy): Uint8Array {
  const clean = new Pass(json, rulesOf(privacy), { clientAddress: privacy.clientAddress }).run();
  if (contexts.length > CONTEXTS_KEPT) contexts = new Uint8Array(CONTEXTS_KEPT);
  return clean ?? json;
}
