/**
 * How filters read a payload. It is any client's JSON, so every field may be absent, null or of
 * another type. Readers look at own properties only and answer undefined for missing fields; none
 * throws.
 */

import type { FilterName } from '../../lib/filter-names.ts';

export type JsonObject = { readonly [name: string]: unknown };

/** What the filters see of the HTTP request itself; '' when a header is absent. */
export type RequestFacts = { origin: string; referer: string; userAgent: string };

/** A filter that judges an event or a transaction by its payload. */
export type PayloadFilter = {
  readonly name: Exclude<FilterName, 'crawler'>;
  readonly itemTypes: readonly ('event' | 'transaction')[];
  /**
   * Lower-case ASCII texts without `/` (which JSON may escape). A payload that matches holds at
   * least one of them, in any case, in its JSON text as sent; a payload without one is never
   * parsed. A `"` means an end of a JSON string.
   */
  readonly needles: readonly string[];
  matches(payload: JsonObject): boolean;
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
