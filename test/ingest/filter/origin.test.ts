import { describe, expect, it } from 'vitest';
import { compileFilters, originPatternProblem } from '../../../src/ingest/filter/inbound.ts';
import { verdictOnItem } from './encodings.ts';

const verdict = (allowedOrigins: readonly string[], origin: string, referer = '') =>
  verdictOnItem(compileFilters({ filters: [], allowedOrigins }), { origin, referer, 'user-agent': '' });

describe('the origin filter', () => {
  it.each([
    ['https://a.com', 'https://a.com'],
    ['https://a.com', 'https://a.com:443'],
    ['https://a.com:443', 'https://a.com'],
    ['http://a.com:80', 'http://a.com'],
    ['HTTPS://A.com', 'https://a.COM'],
    ['https://a.com:8443', 'https://a.com:8443'],
    ['a.com', 'http://a.com'],
    ['a.com', 'https://a.com'],
    ['a.com', 'https://a.com:8443'],
    ['a.com:443', 'https://a.com'],
    ['a.com:80', 'http://a.com'],
    ['a.com.', 'https://a.com'],
    ['a.com', 'https://a.com.'],
    ['*.x.com', 'https://x.com'],
    ['*.x.com', 'http://a.x.com'],
    ['*.x.com', 'https://a.b.x.com:8080'],
    ['https://*.x.com', 'https://a.x.com'],
    ['*.x.com:8080', 'https://a.x.com:8080'],
    ['*', 'https://anything.example:1234'],
    ['https://*', 'https://anything.example:1234'],
    ['*:3000', 'http://anything.example:3000'],
    ['localhost', 'http://localhost:3000'],
    ['http://localhost:3000', 'http://localhost:3000'],
    ['http://[::1]:3000', 'http://[0:0:0:0:0:0:0:1]:3000'],
    ['127.0.0.1', 'http://127.0.0.1:8080'],
    ['bücher.example', 'https://xn--bcher-kva.example'],
  ])('lets pattern %s admit %s', (pattern, origin) => {
    expect(originPatternProblem(pattern)).toBeUndefined();
    expect(verdict([pattern], origin)).toBeUndefined();
    expect(verdict(['https://other.example', pattern], origin)).toBeUndefined();
    expect(verdict([pattern], '', `${origin}/some/page?with=query`)).toBeUndefined();
  });

  it.each([
    ['https://a.com', 'http://a.com'],
    ['https://a.com', 'https://a.com:8443'],
    ['https://a.com', 'https://www.a.com'],
    ['https://a.com', 'https://a.com.evil.example'],
    ['https://a.com', 'https://evil.example/https://a.com'],
    ['https://a.com', 'https://a.com@evil.example'],
    ['a.com:443', 'http://a.com'],
    ['a.com', 'https://ba.com'],
    ['*.x.com', 'https://foox.com'],
    ['*.x.com', 'https://x.com.evil.example'],
    ['*.x.com', 'https://com'],
    ['http://*.x.com', 'https://a.x.com'],
    ['*.x.com:8080', 'https://a.x.com'],
    ['https://*', 'http://a.com'],
    ['*:3000', 'http://a.com'],
    ['not a pattern', 'https://a.com'],
  ])('lets pattern %s refuse %s', (pattern, origin) => {
    expect(verdict([pattern], origin)).toBe('origin');
    expect(verdict([pattern], '', origin)).toBe('origin');
  });

  it.each(['', 'null', 'file://', 'app://local', 'chrome-extension://abc', 'https://', 'http://[', 'a.com'])(
    'lets origin %j pass, which names no site',
    (origin) => {
      expect(verdict(['https://a.com'], origin)).toBeUndefined();
      expect(verdict(['https://a.com'], origin, 'null')).toBeUndefined();
      expect(verdict(['https://a.com'], origin, 'https://evil.example/x')).toBe('origin');
    },
  );

  it('prefers Origin to Referer', () => {
    expect(verdict(['https://a.com'], 'https://a.com', 'https://evil.example/')).toBeUndefined();
    expect(verdict(['https://a.com'], 'https://evil.example', 'https://a.com/')).toBe('origin');
  });

  it('applies only when the project lists origins', () => {
    expect(verdict([], 'https://evil.example')).toBeUndefined();
  });

  const NONE =
    '| |https://|https://a.com/|https://a.com/path|https://a.com?x|https://user@a.com|ftp://a.com|app://a.com|' +
    'a.*.com|*a.com|*.*|**|a.com:|a.com:99999|a.com:http|a b.com|https://[::1|a.com,b.com';
  it.each(NONE.split('|'))('names %j as no pattern', (pattern) => {
    expect(originPatternProblem(pattern)).toContain(JSON.stringify(pattern));
  });
});
