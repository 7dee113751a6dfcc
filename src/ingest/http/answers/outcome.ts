/**
 * Outcomes of a POST to one of the endpoints: a closed set, exactly one for each POST.
 * Refusals are values of this table; each row gives status, body and the headers that always go
 * with it.
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

/** One response header. */
export type Header = readonly [name: string, value: string];

/**
 * Each header as a line break and its line. The lines of an answer are appended to the value of its
 * first header (COMMON_HEADERS), and all go to uWebSockets.js as that one header: it writes a value
 * as it is, and one call costs less than a call for each header. So a value must have no line break
 * of its own, least of all one that a client sent.
 */
export const headerLines = (headers: readonly Header[]): string =>
  headers.map(([name, value]) => `\r\n${name}: ${value}`).join('');

export type Answer = {
  status: string;
  /** As {@link headerLines} makes them. */
  headers: string;
  body: string;
};

export const JSON_TYPE: Header = ['Content-Type', 'application/json'];

/** Why a body, an expectation or a path is refused: SDKs write it into their debug log. */
export const REASON = 'X-Sentry-Error';
/** Why a 200 stored nothing that no filter took. */
export const EMPTY = 'X-Service-Empty';

const refusal = (status: string, error: string, ...headers: Header[]): Answer => ({
  status,
  headers: headerLines(headers),
  body: JSON.stringify({ error }),
});

/** Seconds that `quota_exceeded` asks to wait: the quota may be raised at any time. */
const QUOTA_RETRY_AFTER_SEC = 600;
/**
 * Seconds that SDKs are hinted to wait while the limiter is away: an outage of ours must not last
 * longer in them.
 */
const AWAY_HINT_SEC = 10;
const REMAINING_NONE: Header = ['X-RateLimit-Remaining', '0'];
const RETRY_AFTER: Header = ['Retry-After', `${RETRY_AFTER_SEC}`];

/** The hint of `rate_limited` depends on the window: see limit-headers.ts. */
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
} as const satisfies Partial<Record<Outcome, Answer>>;
export type Refused = keyof typeof REFUSALS;

/** `overloaded`, of a worker that has no registry yet. */
export const STARTING = refusal('503 Service Unavailable', 'Service overloaded', [
  'Retry-After',
  `${STARTING_RETRY_AFTER_SEC}`,
]);

export const EXPECTATION_FAILED = refusal('417 Expectation Failed', 'Expectation failed');

/** @param reason of a closed set, without anything that a client sent */
export const withReason = ({ status, headers, body }: Answer, reason: string): Answer => ({
  status,
  headers: headers + headerLines([[REASON, reason]]),
  body,
});

/** The form of an endpoint's answers. Headers that depend on a limit or a filter are added. */
export type Answers = {
  /** @param eventId '' where there is none */
  accepted(eventId: string): Answer;
  readonly refusals: Readonly<Record<Refused, Answer>>;
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

/** Answers outside the two endpoints; counted by status, not by outcome. */
export const NOT_FOUND = refusal('404 Not Found', 'Not found');
export const methodNotAllowed = (allow: string): Answer =>
  refusal('405 Method Not Allowed', 'Method not allowed', ['Allow', allow]);

export const REQUEST_ID = 'X-Request-Id';
/** Visible ASCII, so that it can stand in a header and in a log line. */
export const isRequestId = (text: string): boolean => /^[\x21-\x7e]{1,128}$/.test(text);
export const requestIdLine = (id: string): string => `\r\n${REQUEST_ID}: ${id}`;

/** 32 hex; names one failed request in the answer and in the log. */
export const newErrorId = (): string => randomUUID().replaceAll('-', '');
