import { describe, expect, it } from 'vitest';
import { CORS_HEADERS, preflightHeaders } from '../../../../src/ingest/http/answers/cors.ts';

it('every header of ours that a browser SDK may read is exposed', () => {
  expect(new Map(CORS_HEADERS).get('Access-Control-Expose-Headers')?.split(', ').sort()).toEqual([
    'Retry-After',
    'X-RateLimit-Remaining',
    'X-RateLimit-Reset',
    'X-Request-Id',
    'X-Sentry-Error',
    'X-Sentry-Rate-Limits',
    'X-Service-Empty',
    'X-Service-Filtered',
    'X-Service-Quota-Warning',
    'X-Service-Usage',
    'X-Service-Usage-Percent',
  ]);
});

describe('the answer to a preflight', () => {
  const DEFAULT =
    'content-type, content-encoding, authorization, x-service-auth, x-compat-auth, x-sentry-auth, ' +
    'x-requested-with, sentry-trace, baggage, traceparent, tracestate';
  const allowed = (asked: string): string | undefined =>
    /\r\nAccess-Control-Allow-Headers: (.*)\r\n/.exec(preflightHeaders(asked))?.[1];
  const names = (count: number, chars = 3): string =>
    Array.from({ length: count }, (_, n) => `${n}`.padStart(chars, 'x')).join(',');

  it.each([
    ['content-type', 'content-type'],
    ['content-type,traceparent', 'content-type, traceparent'],
    [' X-Mine ,\tx-dtc , newrelic ', 'X-Mine, x-dtc, newrelic'],
    ["!#$%&'*+-.^_`|~09azAZ", "!#$%&'*+-.^_`|~09azAZ"],
    ['authorization', 'authorization'],
    [names(100), names(100).replaceAll(',', ', ')],
    [names(1, 4_096), names(1, 4_096)],
    [names(64, 63), names(64, 63).replaceAll(',', ', ')], // 4,095 characters
  ])('allows what is asked for: %s', (asked, answer) => {
    expect(allowed(asked)).toBe(answer);
  });

  it.each([
    ['nothing', ''],
    ['101 names', names(101)],
    ['more than 4 KiB', names(1, 4_097)],
    ['an empty name', 'a,,b'],
    ['white space alone', ' \t '],
    ['a space within a name', 'content type'],
    ['a line break', 'a\r\nSet-Cookie: b=c'],
    ['a line feed', 'a,b\nX: y'],
    ['a carriage return', 'a\rb'],
    ['a NUL', 'a\0'],
    ['a colon', 'x:y'],
    ['a quote', 'a"b'],
    ['a byte above ASCII', 'x-\u00e9'],
    ['a sign that is a comma elsewhere', 'a\uff0cb'],
    ['a semicolon', 'a;b'],
    ['a wildcard beside a bracket', '*,(x)'],
  ])('is the list of what SDKs send for %s', (_name, asked) => {
    expect(allowed(asked)).toBe(DEFAULT);
  });
});
