import protobuf from 'protobufjs';
import { expect, it } from 'vitest';
import { OTLP_ANSWERS } from '../../../../src/ingest/http/answers/otlp.ts';
import { type Answer, ENVELOPE_ANSWERS, type Refusal } from '../../../../src/ingest/http/answers/outcome.ts';

const { root } = protobuf.parse('syntax = "proto3"; message Status { int32 code = 1; string message = 2; }');
const Status = root.lookupType('Status');

/** The Status of an answer, read by a library. */
const statusIn = ({ body, isProtobuf }: Answer): unknown =>
  isProtobuf ? Status.toObject(Status.decode(Buffer.from(body))) : JSON.parse(body);

/** google.rpc.Code by HTTP status. */
const CODES: Readonly<Record<string, number>> = { 401: 16, 404: 16, 429: 8, 503: 14 };
const INVALID_ARGUMENT = 3;

it.each(['protobuf', 'json'] as const)('a refusal in %s is a Status with the text of envelopes', (form) => {
  const answers = OTLP_ANSWERS[form];
  for (const [refusal, ofEnvelope] of Object.entries(ENVELOPE_ANSWERS.refusals)) {
    const answer = answers.refusals[refusal as Refusal];
    const { status, headers } = ofEnvelope;
    expect(answer).toMatchObject({ status, headers, isProtobuf: form === 'protobuf' });
    const code = CODES[status.slice(0, 3)] ?? INVALID_ARGUMENT;
    expect(statusIn(answer)).toEqual({ code, message: JSON.parse(ofEnvelope.body).error });
  }
  const failed = answers.failed('0123456789abcdef0123456789abcdef');
  expect(failed).toMatchObject({ status: '503 Service Unavailable', headers: '\r\nRetry-After: 5' });
  const message = 'Internal server error, errorId 0123456789abcdef0123456789abcdef';
  expect(statusIn(failed)).toEqual({ code: 14, message });
  expect(answers.accepted('id').body).toBe(form === 'protobuf' ? '' : '{}');
});
