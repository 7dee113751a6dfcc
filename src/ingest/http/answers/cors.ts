/**
 * CORS headers: every origin may send. A browser lets its SDK read a header only when it is exposed
 * here, and see a status only when the answer, an error too, allows the origin.
 */
import { EMPTY, type Header, headerLines, JSON_TYPE, REASON, REQUEST_ID } from './outcome.ts';

const EXPOSED = [
  'X-Service-Usage',
  'X-Service-Usage-Percent',
  'X-Service-Quota-Warning',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
  'X-Service-Filtered',
  EMPTY,
  REASON,
  'Retry-After',
  'X-Sentry-Rate-Limits',
  REQUEST_ID,
];

/** Headers that are allowed to a preflight which names none. */
const ALLOWED = [
  'content-type',
  'content-encoding',
  'authorization',
  'x-service-auth',
  'x-compat-auth',
  'x-sentry-auth',
  'x-requested-with',
  'sentry-trace',
  'baggage',
  'traceparent',
  'tracestate',
];

/** On every answer. */
export const CORS_HEADERS: readonly Header[] = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', EXPOSED.join(', ')],
];

const [first, ...rest] = [JSON_TYPE, ...CORS_HEADERS];

/**
 * The headers of every answer as one name and one value that holds the lines of the others
 * ({@link headerLines}).
 */
export const COMMON_HEADERS = {
  name: first?.[0] ?? '',
  value: (first?.[1] ?? '') + headerLines(rest),
};

const ASKED_CHARS_MAX = 4_096;
const ASKED_NAMES_MAX = 100;
/** RFC 9110, 5.6.2. No name that holds anything else, such as a line break, is sent back. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * Pages are instrumented by libraries that add headers to every request, so whatever is asked for
 * is allowed.
 */
function allowedOf(asked: string): readonly string[] {
  if (asked === '' || asked.length > ASKED_CHARS_MAX) return ALLOWED;
  const names = asked.split(',').map((name) => name.trim());
  return names.length <= ASKED_NAMES_MAX && names.every((name) => TOKEN.test(name)) ? names : ALLOWED;
}

/**
 * Header lines of the answer to OPTIONS, beside {@link CORS_HEADERS}. A day is the longest that any
 * browser remembers it. Browsers remember it by header name; Vary is for caches in between that
 * keep answers to OPTIONS.
 * @param asked Access-Control-Request-Headers, '' when it is absent
 */
export function preflightHeaders(asked: string): string {
  return headerLines([
    ['Access-Control-Allow-Methods', 'POST, OPTIONS'],
    ['Access-Control-Allow-Headers', allowedOf(asked).join(', ')],
    ['Access-Control-Max-Age', '86400'],
    ['Vary', 'Access-Control-Request-Headers'],
  ]);
}
