/**
 * How filters read a payload. It is any client's JSON, so every field may be absent, null or of
 * another type. Readers look at own properties only and answer undefined for missing fields; none
 * throws.
 */

import type { FilterName } from '../../lib/filter-names.ts';

export type JsonObject = { readonly [name: string]: unknown };

/** Headers of the request that filters look at; '' when one is absent. */
export type RequestFacts = {
  readonly origin: string;
  readonly referer: string;
  readonly 'user-agent': string;
};

/** The value of X-Service-Filtered. */
export type InboundFilter = FilterName | 'origin';
/** Items of other types are not looked at. */
export type JudgedType = 'event' | 'transaction';

/** A filter has one of the judges, or several. Each answers whether it removes what it is shown. */
export type Filter = {
  readonly name: InboundFilter;
  /** The whole envelope, by the head of its request. */
  judgeHead?(request: RequestFacts): boolean;
  /** One item, by its payload. */
  judgeItem?(payload: JsonObject): boolean;
  /**
   * The whole envelope, by the User-Agent of the first event or transaction that names one; `agent`
   * '': none that was read does, and the request's own may count.
   */
  judgeAgent?(agent: string, request: RequestFacts): boolean;
  /** Types of the items whose payloads are looked at. */
  readonly itemTypes?: readonly JudgedType[];
  /**
   * Lower-case ASCII texts without `/` (which JSON may escape). A payload that is removed, or whose
   * agent is, holds at least one of them, in any case, in its JSON text as sent; a payload without
   * one is not parsed. A `"` means an end of a JSON string.
   */
  readonly needles?: readonly string[];
};

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * The payload as an object, or undefined for anything else. An unreadable one becomes a dead letter
 * later, not here.
 */
export function parsePayload(bytes: Uint8Array): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(
      Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'),
    );
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const read = (value: unknown, name: string): unknown =>
  isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;

export function objectAt(value: unknown, name: string): JsonObject | undefined {
  const found = read(value, name);
  return isObject(found) ? found : undefined;
}

export function arrayAt(value: unknown, name: string): readonly unknown[] {
  const found = read(value, name);
  return Array.isArray(found) ? found : [];
}

/** '' when it is absent or no string. */
export function textAt(value: unknown, name: string): string {
  const found = read(value, name);
  return typeof found === 'string' ? found : '';
}

function* headerPairs(headers: unknown): Iterable<readonly [unknown, unknown]> {
  if (Array.isArray(headers)) {
    for (const pair of headers) if (Array.isArray(pair)) yield [pair[0], pair[1]];
  } else if (isObject(headers)) {
    for (const name of Object.keys(headers)) yield [name, headers[name]];
  }
}

/**
 * The first header of that name in `request.headers`, in any case; '' when there is none. SDKs send
 * an object or a list of pairs; values are strings or, from PHP, lists of strings, of which the
 * only one counts as the value.
 */
export function headerOf(payload: JsonObject, lowerCaseName: string): string {
  for (const [name, value] of headerPairs(read(objectAt(payload, 'request'), 'headers'))) {
    if (typeof name !== 'string' || name.length !== lowerCaseName.length) continue;
    if (name.toLowerCase() !== lowerCaseName) continue;
    const text: unknown = Array.isArray(value) && value.length === 1 ? value[0] : value;
    if (typeof text === 'string' && text !== '') return text;
  }
  return '';
}

/**
 * A case-insensitive test whether a text holds one of the given ones. ASCII only, so that it agrees
 * with the bytes.
 */
export const anyOf = (texts: readonly string[], anchor: '' | '^' = ''): RegExp =>
  new RegExp(
    `${anchor}(?:${texts.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})`,
    'i',
  );

/** Scheme and authority, as the WHATWG reads them: blanks may come first, slashes may lean back. */
const SITE = /^([\0- ]*[a-z][a-z\d+.-]*:[\\/]*)([^\\/?#]*)/i;
/** Longer than any name (253) with a port. */
const HOST_CHARS_MAX = 300;

/**
 * The part of a URL that says its host: no user info and nothing behind the host, which is cut
 * where no name goes on. Parsing a longer text takes time in the square of its length: a second for
 * 60 KB.
 * @returns '' for what is no URL
 */
function upToHost(url: string): string {
  const [, scheme = '', authority = ''] = SITE.exec(url) ?? [];
  const host = authority.slice(authority.lastIndexOf('@') + 1);
  return scheme + host.slice(0, HOST_CHARS_MAX);
}

const ASCII = /^[\0-\x7f]*$/;

/** A URL as far as its host, with its port; undefined for what is no URL. */
export function siteOf(url: string): URL | undefined {
  const site = upToHost(url);
  // Throwing costs much. On Node.js 20 canParse refuses `ü` once V8 has compiled the call.
  if (ASCII.test(site) && !URL.canParse(site)) return undefined;
  try {
    return new URL(site);
  } catch {
    return undefined;
  }
}
