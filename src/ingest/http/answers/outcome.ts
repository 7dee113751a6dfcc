/**
 * Outcomes of a POST to one of the endpoints: a closed set. Each POST has exactly one. Refusals are
 * rows of the table REFUSALS; each row gives status, body and fixed headers.
 */
import { randomUUID } from 'node:crypto';
import { RETRY_AFTER_SEC } from '../../../limits.ts';
import { projectHint, RATE_HINT } from './limit-headers.ts';

const HEARTBEAT_RETRY_AFTER_SEC = 1;
const OVERLOAD_RETRY_AFTER_SEC = 5;
const STARTING_RETRY_AFTER_SEC = 1;

export const OUTCOMES = [
  'accepted',
  'empty',
  'filtered',
  'unauthenticated',
  'forbidden_key',
  'unknown_token',
  'rate_limited',
  'limiter_unavailable',
  'quota_exceeded',
  'invalid',
  'too_large',
  'too_slow',
  'overloaded',
  'failed',
  'aborted',
] as const;
export type Outcome = (typeof OUTCOMES)[number];

export type Header = readonly [name: string, value: string];

/**
 * Writes each header as a line break and its line. The lines of an answer are appended to the value
 * of its first header (COMMON_HEADERS), because one call of uWebSockets.js costs less than a call
 * for each header. The library writes a value unchanged, so a value must contain no line break,
 * least of all one that a client sent.
 */
export const headerLines = (headers: readonly Header[]): string =>
  headers.map(([name, value]) => `\r\n${name}: ${value}`).join('');

export type Answer = {
  status: string;
  /** Header lines, made by {@link headerLines}. */
  headers: string;
  body: string;
  /** Whether the body is protobuf; else it is JSON. */
  isProtobuf?: boolean | undefined;
};

export const JSON_TYPE: Header = ['Content-Type', 'application/json'];

/** Header that tells why a head, a body or a path is refused. SDKs write it to their debug log. */
export const REASON = 'X-Sentry-Error';
/**
 * Header of a 200 after which nothing is stored. It tells why, unless a filter is the reason.
 */
export const EMPTY = 'X-Service-Empty';

const refusal = (status: string, error: string, ...headers: Header[]): Answer => ({
  status,
  headers: headerLines(headers),
  body: JSON.stringify({ error }),
});

/**
 * Seconds to wait after `quota_exceeded`. The time is short, because the quota may be raised at any
 * moment.
 */
const QUOTA_RETRY_AFTER_SEC = 600;
/**
 * Seconds for which SDKs are told to stop sending while the limiter is away. The time is short,
 * because SDKs stay silent for all of it, even if the limiter is back sooner.
 */
const AWAY_HINT_SEC = 10;
const REMAINING_NONE: Header = ['X-RateLimit-Remaining', '0'];
const RETRY_AFTER: Header = ['Retry-After', `${RETRY_AFTER_SEC}`];

/**
 * The refusals, by their outcome or by a name of their own. `rate_limited` also gets a hint that
 * depends on the window: see limit-headers.ts.
 */
export const REFUSALS = {
  unauthenticated: refusal('401 Unauthorized', 'Missing authentication'),
  forbidden_key: refusal('401 Unauthorized', 'Invalid project or key'),
  unknown_token: refusal('404 Not Found', 'Unknown heartbeat token'),
  rate_limited: refusal('429 Too Many Requests', 'Rate limit exceeded', REMAINING_NONE, RETRY_AFTER),
  limiter_unavailable: refusal('429 Too Many Requests', 'Rate limit exceeded', REMAINING_NONE, RETRY_AFTER, [
    RATE_HINT,
    projectHint(AWAY_HINT_SEC),
  ]),
  quota_exceeded: refusal(
    '429 Too Many Requests',
    'quota_exceeded',
    ['Retry-After', `${QUOTA_RETRY_AFTER_SEC}`],
    [RATE_HINT, projectHint(QUOTA_RETRY_AFTER_SEC)],
  ),
  invalid: refusal('400 Bad Request', 'Invalid envelope format'),
  too_large: refusal('413 Payload Too Large', 'Payload too large'),
  overloaded: refusal('503 Service Unavailable', 'Service overloaded', [
    'Retry-After',
    `${OVERLOAD_RETRY_AFTER_SEC}`,
  ]),
  /** Outcome `overloaded`: the worker has not loaded the registry yet. */
  starting: refusal('503 Service Unavailable', 'Service overloaded', [
    'Retry-After',
    `${STARTING_RETRY_AFTER_SEC}`,
  ]),
  /** Outcome `invalid`: the endpoint does not take the body's content type. */
  unsupported: refusal('415 Unsupported Media Type', 'Unsupported media type'),
  /**
   * Outcome `invalid`: the header Expect has another value than `100-continue`, the only one that
   * uWebSockets.js knows.
   */
  odd_expectation: refusal('417 Expectation Failed', 'Expectation failed'),
} as const;
export type Refusal = keyof typeof REFUSALS;
/** Outcomes that are refusals. */
export type Refused = Extract<Refusal, Outcome>;

/**
 * Adds a reason to an answer.
 * @param reason from a closed set, without any text of a client
 */
export const withReason = (answer: Answer, reason: string): Answer => ({
  ...answer,
  headers: answer.headers + headerLines([[REASON, reason]]),
});

/** The answers of an endpoint. Headers that depend on a limit or a filter are added to them. */
export type Answers = {
  /** @param eventId '' where there is none */
  accepted(eventId: string): Answer;
  readonly refusals: Readonly<Record<Refusal, Answer>>;
  /** @param errorId names the request in the log */
  failed(errorId: string): Answer;
};

const failed = (errorId: string): Answer => ({
  status: '500 Internal Server Error',
  headers: '',
  body: JSON.stringify({ error: 'Internal server error', errorId }),
});

export const ENVELOPE_ANSWERS: Answers = {
  accepted: (eventId) => ({ status: '200 OK', headers: '', body: `{"id":"${eventId}"}` }),
  refusals: REFUSALS,
  failed,
};

const HEARTBEAT_ACCEPTED: Answer = { status: '200 OK', headers: '', body: '{"ok":true}' };
const HEARTBEAT_LIMITED = refusal('429 Too Many Requests', 'Rate limit exceeded', [
  'Retry-After',
  `${HEARTBEAT_RETRY_AFTER_SEC}`,
]);
export const HEARTBEAT_ANSWERS: Answers = {
  accepted: () => HEARTBEAT_ACCEPTED,
  refusals: { ...REFUSALS, rate_limited: HEARTBEAT_LIMITED, limiter_unavailable: HEARTBEAT_LIMITED },
  failed,
};

/** Answers outside the endpoints. They are counted by status, not by outcome. */
export const NOT_FOUND = refusal('404 Not Found', 'Not found');
export const methodNotAllowed = (allow: string): Answer =>
  refusal('405 Method Not Allowed', 'Method not allowed', ['Allow', allow]);

export const REQUEST_ID = 'X-Request-Id';
/**
 * Whether a text may be a request id: 1 to 128 characters of visible ASCII, which are safe in a
 * header and in a log line.
 */
export const isRequestId = (text: string): boolean => /^[\x21-\x7e]{1,128}$/.test(text);
export const requestIdLine = (id: string): string => `\r\n${REQUEST_ID}: ${id}`;

/** Makes an id of 32 hex digits that names one failed request in the answer and in the log. */
export const newErrorId = (): string => randomUUID().replaceAll('-', '');
