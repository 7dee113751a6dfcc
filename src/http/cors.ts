/**
 * CORS headers (spec 4.1, contract part 1): constant, because every origin may send. A browser lets its SDK read a header only when it is
 * exposed here, and see a status only when the answer, an error too, allows the origin.
 */
import type { Header } from './outcome.ts';

const EXPOSED = [
  'X-Service-Usage',
  'X-Service-Usage-Percent',
  'X-Service-Quota-Warning',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
  'X-Service-Filtered',
  'Retry-After',
  'X-Sentry-Rate-Limits',
];

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
];

/** On every answer. */
export const CORS_HEADERS: readonly Header[] = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', EXPOSED.join(', ')],
];

/** On the answer to OPTIONS, beside {@link CORS_HEADERS}. A day is the longest that any browser remembers it. */
export const PREFLIGHT_HEADERS: readonly Header[] = [
  ['Access-Control-Allow-Methods', 'POST, OPTIONS'],
  ['Access-Control-Allow-Headers', ALLOWED.join(', ')],
  ['Access-Control-Max-Age', '86400'],
];
