import { describe, expect, it } from 'vitest';
import { CORS_HEADERS, PREFLIGHT_HEADERS } from '../../src/http/cors.ts';

const list = (headers: readonly (readonly [string, string])[], name: string): string[] =>
  (new Map(headers).get(name) ?? '').split(', ').sort();

describe('CORS headers', () => {
  it('allow every origin', () => {
    expect(new Map(CORS_HEADERS).get('Access-Control-Allow-Origin')).toBe('*');
  });

  it('expose every header of ours that a browser SDK may read', () => {
    expect(list(CORS_HEADERS, 'Access-Control-Expose-Headers')).toEqual([
      'Retry-After',
      'X-RateLimit-Remaining',
      'X-RateLimit-Reset',
      'X-Sentry-Rate-Limits',
      'X-Service-Filtered',
      'X-Service-Quota-Warning',
      'X-Service-Usage',
      'X-Service-Usage-Percent',
    ]);
  });

  it('answer a preflight with the methods and headers that clients send, for a day', () => {
    expect(list(PREFLIGHT_HEADERS, 'Access-Control-Allow-Methods')).toEqual(['OPTIONS', 'POST']);
    expect(new Map(PREFLIGHT_HEADERS).get('Access-Control-Max-Age')).toBe('86400');
    expect(list(PREFLIGHT_HEADERS, 'Access-Control-Allow-Headers')).toEqual([
      'authorization',
      'baggage',
      'content-encoding',
      'content-type',
      'sentry-trace',
      'x-compat-auth',
      'x-requested-with',
      'x-sentry-auth',
      'x-service-auth',
    ]);
  });
});
