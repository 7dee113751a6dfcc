/**
 * CORS headers: every origin may send. A browser shows an SDK the status of an answer only when the
 * answer allows the origin, and of its headers only those that are exposed here.
 */
import { OTLP_CONTENT_TYPES } from '../../../lib/otlp.ts';
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

/**
 * Headers that are allowed in answer to a preflight that names none, too many or a malformed one.
 */
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

/** Headers of every answer. */
export const CORS_HEADERS: readonly Header[] = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', EXPOSED.join(', ')],
];

/** Name of the first header of every answer. */
export const FIRST_HEADER = JSON_TYPE[0];
const FURTHER_LINES = headerLines(CORS_HEADERS);
/**
 * Value of the first header, by the type of the answer's body. The value holds the lines of the
 * further headers that every answer has ({@link headerLines}).
 */
export const COMMON_HEADERS = {
  json: JSON_TYPE[1] + FURTHER_LINES,
  protobuf: OTLP_CONTENT_TYPES.protobuf + FURTHER_LINES,
};

const ASKED_CHARS_MAX = 4_096;
const ASKED_NAMES_MAX = 100;
/**
 * The form of a header name (RFC 9110, 5.6.2). A name with other characters, such as a line break,
 * is never sent back.
 */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * Returns the headers that the answer to a preflight allows: all headers that the preflight names,
 * since libraries that instrument pages add headers to every request. If it names none, too many,
 * or one that is no token: a fixed list.
 * @param asked Access-Control-Request-Headers, '' when absent
 */
function allowedOf(asked: string): readonly string[] {
  if (asked === '' || asked.length > ASKED_CHARS_MAX) return ALLOWED;
  const names = asked.split(',').map((name) => name.trim());
  return names.length <= ASKED_NAMES_MAX && names.every((name) => TOKEN.test(name)) ? names : ALLOWED;
}

/**
 * Header lines of the answer to OPTIONS, beside {@link CORS_HEADERS}. Max-Age is a day, because no
 * browser keeps such an answer for longer. Vary is for proxies that cache answers to OPTIONS.
 * @param asked Access-Control-Request-Headers, '' when absent
 */
export function preflightHeaders(asked: string): string {
  return headerLines([
    ['Access-Control-Allow-Methods', 'POST, OPTIONS'],
    ['Access-Control-Allow-Headers', allowedOf(asked).join(', ')],
    ['Access-Control-Max-Age', '86400'],
    ['Vary', 'Access-Control-Request-Headers'],
  ]);
}
