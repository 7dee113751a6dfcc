/** Ways in which SDKs write the same JSON; a filter must not tell them apart. */
import {
  type CompiledFilters,
  compileFilters,
  type FilterSettings,
  filterItems,
  type InboundFilter,
  type RequestFacts,
} from '../../../src/ingest/filter/inbound.ts';

const unicodeEscape = (char: string): string => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** Every character of a string value as \uXXXX, its quotes and other escapes as they are. */
const escapedLetters = (json: string): string =>
  json.replace(/\\.|[^"\\]/g, (part) => (part.startsWith('\\') ? part : unicodeEscape(part)));

/** String values are escaped, names of members are not, so that the text differs from the plain one only where filters look. */
const withEscapedValues = (payload: unknown): string =>
  JSON.stringify(payload).replace(/"(?:[^"\\]|\\.)*":?/g, (text) =>
    text.endsWith(':') ? text : escapedLetters(text),
  );

export const encodings: Readonly<Record<string, (payload: unknown) => string>> = {
  plain: (payload) => JSON.stringify(payload),
  'escaped slashes': (payload) => JSON.stringify(payload).replaceAll('/', '\\/'),
  'unicode escapes': withEscapedValues,
  'unicode escapes in upper case': (payload) =>
    withEscapedValues(payload).replace(/\\u[0-9a-f]{4}/g, (text) => `\\u${text.slice(2).toUpperCase()}`),
  indented: (payload) => JSON.stringify(payload, undefined, 2),
};

export type Subject = {
  type?: 'event' | 'transaction';
  'user-agent'?: string;
  filters?: FilterSettings['filters'];
};

const ALL: FilterSettings['filters'] = ['browser-extension', 'localhost', 'crawler'];

/** The filter that leaves nothing of an envelope of this one item, or of a log when there is none. */
export function verdictOnItem(
  filters: CompiledFilters,
  request: RequestFacts,
  item: { type: string; payload: Uint8Array } = { type: 'log', payload: new Uint8Array() },
): InboundFilter | undefined {
  const kept = filterItems(filters, request, [item]);
  return typeof kept === 'string' ? kept : undefined;
}

/** The verdict on a payload that is sent as the given text. */
export function verdictOnText(json: string, subject: Subject = {}): InboundFilter | undefined {
  const { type = 'event', 'user-agent': userAgent = '', filters = ALL } = subject;
  const compiled = compileFilters({ filters, allowedOrigins: [] });
  return verdictOnItem(
    compiled,
    { origin: '', referer: '', 'user-agent': userAgent },
    { type, payload: new TextEncoder().encode(json) },
  );
}

/** The one verdict on a payload in all encodings; when they differ, an object that says how. */
export function verdictOn(
  payload: unknown,
  subject: Subject = {},
): InboundFilter | undefined | Record<string, unknown> {
  const verdicts = Object.fromEntries(
    Object.entries(encodings).map(([name, encode]) => [name, verdictOnText(encode(payload), subject)]),
  );
  return new Set(Object.values(verdicts)).size === 1 ? verdicts.plain : verdicts;
}

/** Upper and lower case of a text, and the text itself. */
export const cases = (text: string): string[] => [...new Set([text, text.toLowerCase(), text.toUpperCase()])];
