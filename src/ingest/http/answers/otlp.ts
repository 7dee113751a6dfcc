/**
 * Answers to OTLP requests, in the encoding of the request. A success is an empty response message.
 * A refusal is a google.rpc.Status with the error text that an envelope would get. Headers are
 * those of answers to envelopes.
 */
import type { OtlpForm } from '../../../lib/otlp.ts';
import { type Answer, type Answers, ENVELOPE_ANSWERS, headerLines, type Refusal } from './outcome.ts';

/** Codes of google.rpc.Code. */
const INVALID_ARGUMENT = 3;
const RESOURCE_EXHAUSTED = 8;
const UNAVAILABLE = 14;
const UNAUTHENTICATED = 16;
const CODES: Readonly<Record<Refusal, number>> = {
  unauthenticated: UNAUTHENTICATED,
  forbidden_key: UNAUTHENTICATED,
  unknown_token: UNAUTHENTICATED,
  rate_limited: RESOURCE_EXHAUSTED,
  limiter_unavailable: RESOURCE_EXHAUSTED,
  quota_exceeded: RESOURCE_EXHAUSTED,
  invalid: INVALID_ARGUMENT,
  too_large: INVALID_ARGUMENT,
  overloaded: UNAVAILABLE,
  starting: UNAVAILABLE,
  unsupported: INVALID_ARGUMENT,
  odd_expectation: INVALID_ARGUMENT,
};

/** Seconds after which a client may repeat a request that failed. */
const FAILED_RETRY_AFTER_SEC = 5;

const ASCII_MAX = 0x7f;
/**
 * Tags of the fields of a Status: field 1, the code (a varint), and field 2, the message (a text).
 */
const CODE_TAG = 0x08;
const MESSAGE_TAG = 0x12;

/**
 * Encodes a Status as text. Code and length are below 128, so each is one byte, an ASCII character.
 */
function protobufStatus(code: number, message: string): string {
  if (message.length > ASCII_MAX) throw new RangeError('the message of a Status is too long');
  return `${String.fromCharCode(CODE_TAG, code, MESSAGE_TAG, message.length)}${message}`;
}

const statusOf = (form: OtlpForm, code: number, message: string): string =>
  form === 'protobuf' ? protobufStatus(code, message) : JSON.stringify({ code, message });

function answersIn(form: OtlpForm): Answers {
  const isProtobuf = form === 'protobuf';
  const refusals = Object.entries(ENVELOPE_ANSWERS.refusals).map(([refusal, answer]) => {
    const { error } = JSON.parse(answer.body) as { error: string };
    return [refusal, { ...answer, body: statusOf(form, CODES[refusal as Refusal], error), isProtobuf }];
  });
  const accepted: Answer = { status: '200 OK', headers: '', body: isProtobuf ? '' : '{}', isProtobuf };
  return {
    accepted: () => accepted,
    refusals: Object.fromEntries(refusals) as Answers['refusals'],
    // OTLP clients repeat a request that got 503, and drop one that got 500. The repeated request
    // has the same event id, so it is stored once.
    failed: (errorId) => ({
      status: '503 Service Unavailable',
      headers: headerLines([['Retry-After', `${FAILED_RETRY_AFTER_SEC}`]]),
      body: statusOf(form, UNAVAILABLE, `Internal server error, errorId ${errorId}`),
      isProtobuf,
    }),
  };
}

export const OTLP_ANSWERS: Readonly<Record<OtlpForm, Answers>> = {
  protobuf: answersIn('protobuf'),
  json: answersIn('json'),
};
