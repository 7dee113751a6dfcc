/**
 * Reads payloads for the filters. A payload is any client's JSON, so every field may be absent,
 * null or of another type. The functions look at own properties only and return undefined or an
 * empty value for a missing field; none throws.
 */

import type { FilterName } from '../../lib/filter-names.ts';

export type JsonObject = { readonly [name: string]: unknown };

/** Headers of the request that filters look at. An absent header is ''. */
export type RequestFacts = {
  readonly origin: string;
  readonly referer: string;
  readonly 'user-agent': string;
};

/** Names of filters, as the header X-Service-Filtered gives them. */
export type InboundFilter = FilterName | 'origin';
/** Types of the items that filters look at. */
export type JudgedType = 'event' | 'transaction';

/**
 * A filter with one judge, or several. A judge returns whether the filter removes the envelope or
 * the item that is judged.
 */
export type Filter = {
  readonly name: InboundFilter;
  /** Judges the whole envelope by the headers of its request. */
  judgeHead?(request: RequestFacts): boolean;
  /** Judges one item by its payload. */
  judgeItem?(payload: JsonObject): boolean;
  /**
   * Judges the whole envelope by `agent`: the User-Agent of the first event or transaction that
   * names one. `agent` is '' when no payload that was read names one; the request's own User-Agent
   * may count then.
   */
  judgeAgent?(agent: string, request: RequestFacts): boolean;
  /** Types of the items whose payloads the filter looks at. */
  readonly itemTypes?: readonly JudgedType[];
  /**
   * Lower-case ASCII texts. When the filter removes an item or an envelope for a payload, the JSON
   * of that payload, as sent, holds at least one of these texts, in any case. So a payload without
   * any of them is not parsed. JSON may escape `/` as `\/`, so the list has a text with a `/` in
   * both forms. A `"` in a needle means the start or end of a JSON string.
   */
  readonly needles?: readonly string[];
};

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Returns the payload as an object, or undefined for anything else. An unreadable payload becomes a
 * dead letter later, not here.
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

/** Returns a field that is a string; '' when the field is absent or no string. */
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
 * Returns the first non-empty header of that name in `request.headers`, ignoring case; '' when
 * there is none. SDKs send the headers as an object or as a list of pairs. Values are strings or,
 * from PHP, lists of strings; a list with a single string counts as that string.
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
 * Makes a case-insensitive test whether a text holds one of `texts`. Only the case of ASCII letters
 * is ignored, so that the test agrees with the scan of the bytes.
 */
export const anyOf = (texts: readonly string[], anchor: '' | '^' = ''): RegExp =>
  new RegExp(
    `${anchor}(?:${texts.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})`,
    'i',
  );

/**
 * Scheme and authority of a URL as the WHATWG reads them: blanks may come first, and a backslash
 * counts as a slash.
 */
const SITE = /^([\0- ]*[a-z][a-z\d+.-]*:[\\/]*)([^\\/?#]*)/i;
/** Longest part of a host that is parsed, in characters: longer than any name (253) with a port. */
const HOST_CHARS_MAX = 300;

/**
 * Returns a URL up to its host, without user info. A host of more than HOST_CHARS_MAX is cut,
 * because no name is that long and because parsing takes time in the square of the length: a second
 * for 60 KB.
 * @returns '' for a text that is no URL
 */
function upToHost(url: string): string {
  const [, scheme = '', authority = ''] = SITE.exec(url) ?? [];
  const host = authority.slice(authority.lastIndexOf('@') + 1);
  return scheme + host.slice(0, HOST_CHARS_MAX);
}

const ASCII = /^[\0-\x7f]*$/;

/** Parses a URL up to its host and port; undefined for a text that is no URL. */
export function siteOf(url: string): URL | undefined {
  const site = upToHost(url);
  // Throwing is slow, so `canParse` is asked first. It is asked only for ASCII, because on Node.js
  // 20 `canParse` refuses `ü` once V8 has compiled the call.
  if (ASCII.test(site) && !URL.canParse(site)) return undefined;
  try {
    return new URL(site);
  } catch {
    return undefined;
  }
}
