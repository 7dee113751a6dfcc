import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ClientKey, findKey } from '../../../src/ingest/http/client-key.ts';
import { headOf } from './line.ts';

const key = (query: string, headers: Record<string, string> = {}): string =>
  findKey(query, (name) => headers[name] ?? '');

const HEADERS = ['x-service-auth', 'x-compat-auth', 'x-sentry-auth'];

describe('the key of a request', () => {
  it.each([
    ['compat_key=K', 'K'],
    ['sentry_key=K', 'K'],
    ['sentry_version=7&sentry_key=K&sentry_client=x%2F1', 'K'],
    ['compat_key=K&', 'K'],
    ['&&compat_key=K', 'K'],
    ['sentry_key=S&compat_key=C', 'C'],
    ['compat_key=&sentry_key=S', 'S'],
    ['compat_key=&compat_key=K', 'K'],
    ['compat_key=first&compat_key=second', 'first'],
    ['compat_key=a=b', 'a=b'],
    ['compat_key=%61bc', 'abc'],
    ['compat_key=a+b', 'a b'],
    ['compat%5Fkey=K', 'K'],
    ['sentry_key=S&compat%5fkey=', 'S'],
    ['compat_key=%', '%'],
    ['compat_key=%zz', '%zz'],
    ['compat_key=%C3%28', '%C3%28'],
    ['', ''],
    ['compat_key', ''],
    ['compat_key=', ''],
    ['compat_key=&x=1', ''],
    ['xcompat_key=K', ''],
    ['compat_keys=K', ''],
    ['x=compat_key=K', ''],
    ['Compat_Key=K', ''],
    ['%', ''],
    ['%zz=%zz&x=%C3', ''],
  ])('in the query %j is %j', (query, expected) => {
    expect(key(query)).toBe(expected);
  });

  it.each([
    ['compat_key=K', 'K'],
    ['sentry_key=K', 'K'],
    ['Sentry sentry_version=7, sentry_client=x/1, sentry_key=K', 'K'],
    ['Sentry sentry_key=K, sentry_version=7', 'K'],
    ['sentry sentry_key=K,sentry_version=7', 'K'],
    ['Compat compat_key=K', 'K'],
    ['  Sentry   sentry_version = 7 ,  sentry_key = K  ', 'K'],
    ['Sentry\tsentry_key=K', 'K'],
    ['Sentry, sentry_key=K', 'K'],
    ['Sentry Sentry_Key="K"', 'K'],
    ['COMPAT_KEY=K', 'K'],
    ['sentry_key=S, compat_key=C', 'C'],
    ['compat_key=, sentry_key=S', 'S'],
    ['compat_key="", sentry_key=S', 'S'],
    ['compat_key=first, compat_key=second', 'first'],
    ['compat_key=a=b', 'a=b'],
    [',,compat_key=K,,', 'K'],
    ['', ''],
    ['K', ''],
    ['Sentry', ''],
    ['compat_key', ''],
    ['compat_key=', ''],
    ['compat_key= ', ''],
    ['compat_key=""', ''],
    ['xcompat_key=K', ''],
    ['sentry_secret=K', ''],
    ['__proto__=K, constructor=K', ''],
    ['=K', ''],
  ])('in a header %j is %j', (header, expected) => {
    for (const name of HEADERS) expect(key('', { [name]: header })).toBe(expected);
  });

  it('comes from the first source that has one', () => {
    const headers = {
      'x-service-auth': 'compat_key=service',
      'x-compat-auth': 'compat_key=compat',
      'x-sentry-auth': 'Sentry sentry_key=sentry',
      authorization: 'Sentry sentry_key=authorization',
    };
    expect(key('compat_key=query', headers)).toBe('query');
    expect(key('sentry_key=query', headers)).toBe('query');
    expect(key('', headers)).toBe('service');
    expect(key('compat_key=', { ...headers, 'x-service-auth': 'compat_key=' })).toBe('compat');
    expect(key('', { ...headers, 'x-service-auth': '', 'x-compat-auth': 'Sentry' })).toBe('sentry');
    expect(key('', { authorization: headers.authorization })).toBe('authorization');
  });

  it.each([
    ['Sentry sentry_version=7, sentry_key=K', 'K'],
    ['SENTRY compat_key=K', 'K'],
    ['Bearer sentry_key=K', ''],
    ['Basic c2VudHJ5X2tleT1L', ''],
    ['sentry_key=K', ''],
    ['Sentry', ''],
    ['Sentryx sentry_key=K', ''],
  ])('in authorization %j is %j', (header, expected) => {
    expect(key('', { authorization: header })).toBe(expected);
  });

  it('of any query is what URLSearchParams finds, and no text makes it throw', () => {
    const part = fc.oneof(
      fc.constantFrom('compat_key', 'sentry_key', 'compat%5Fkey', '=', '&', 'K', 'a+b', '%41', '%C3%A9', 'x'),
      fc.string({ unit: fc.constantFrom(...'abz_0'), maxLength: 3 }),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
        const query = parts.join('');
        const params = new URLSearchParams(query);
        const named = (name: string) => params.getAll(name).filter((value) => value !== '');
        const possible = [...named('compat_key'), ...named('sentry_key')];
        if (possible.length === 0) expect(key(query)).toBe('');
        else expect(possible).toContain(key(query));
      }),
    );
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(typeof key(text, { authorization: `Sentry ${text}`, 'x-compat-auth': text })).toBe('string');
      }),
    );
  });

  it('of any header is what its pairs say when it is split at commas', () => {
    const split = (header: string): string => {
      const found: Record<string, string> = {};
      for (const pair of header.split(',')) {
        const [before = '', ...value] = pair.split('=');
        const name = before.trim().split(/\s+/).at(-1)?.toLowerCase() ?? '';
        const text = value.join('=').trim();
        found[name] ||= text.length > 1 && /^".*"$/s.test(text) ? text.slice(1, -1) : text;
      }
      return found.compat_key || found.sentry_key || '';
    };
    const words = [
      'compat_key',
      'Sentry_Key',
      'Sentry',
      '=',
      ',',
      ' ',
      '\t',
      '\u00a0',
      '"',
      'K',
      'y',
      '_key',
    ];
    const part = fc.oneof(fc.constantFrom(...words), fc.string({ unit: 'binary', maxLength: 2 }));
    fc.assert(
      fc.property(fc.array(part, { maxLength: 16 }), (parts) => {
        const header = parts.join('');
        expect(key('', { 'x-sentry-auth': header })).toBe(split(header));
      }),
    );
  });
});

describe('the name of a client', () => {
  const clientOf = ({ query = '', auth = '', userAgent = '' }) =>
    new ClientKey(headOf({ 'x-sentry-auth': auth, 'user-agent': userAgent }, query)).client;

  it.each([
    [{ query: 'sentry_key=K&sentry_client=browser%2F11.12.0', userAgent: 'x' }, 'browser/11.12.0'],
    [{ auth: 'Sentry sentry_version=7, sentry_client=python/2.75.0, sentry_key=K' }, 'python/2.75.0'],
    [{ auth: 'Sentry sentry_client = "x/1" , sentry_key=K' }, 'x/1'],
    [{ auth: 'sentry_key=K, sentry_client=rust/0.49', query: 'sentry_client=y/2' }, 'rust/0.49'],
    [{ auth: 'Sentry sentry_key=K', query: 'sentry_client=y/2' }, 'y/2'],
    [
      { query: 'sentry_key=K', userAgent: 'python-requests/2.31.0 (Linux; x86_64)' },
      'python-requests/2.31.0',
    ],
    [{ auth: 'Sentry sentry_key=K', userAgent: '  Mozilla/5.0\t(X11) ' }, 'Mozilla/5.0'],
    [
      { auth: 'Sentry sentry_version=7, sentry_client=sentry.cocoa/8.0 (iPhone13,2; 17.0), sentry_key=K' },
      'sentry.cocoa/8.0 (iPhone13,2; 17.0)',
    ],
    [
      { auth: 'Sentry sentry_key=K,sentry_client=sentry.cocoa/8.0 (iPhone13,2)' },
      'sentry.cocoa/8.0 (iPhone13,2)',
    ],
    [{ auth: 'Sentry sentry_client="x/1, y" , sentry_key=K' }, 'x/1, y'],
    [{ auth: 'Sentry sentry_client=x/1,, sentry_key=K' }, 'x/1'],
    [{ auth: 'Sentry sentry_client=/, sentry_key=K', userAgent: 'agent/1' }, 'agent/1'],
    [{ query: 'sentry_client=%2F', userAgent: '/' }, undefined],
    [{ query: 'sentry_key=K', userAgent: '  ' }, undefined],
    [{ query: 'sentry_key=K' }, undefined],
    [{ query: 'sentry_key=K&sentry_client=' }, undefined],
    [{ userAgent: 'u'.repeat(256) }, 'u'.repeat(256)],
    [{ userAgent: 'u'.repeat(257) }, undefined],
    [{ query: `sentry_client=${'q'.repeat(257)}`, userAgent: 'x' }, undefined],
  ])('in %j is %j', (sources, client) => {
    expect(clientOf(sources)).toBe(client);
  });

  it('is found in time in 16 KiB of anything', () => {
    const before = performance.now();
    const texts = [
      'sentry_client ',
      'sentry_client=',
      'sentry_client=,',
      ' ,',
      '"',
      'sentry_client\t=\t',
      ', a',
    ];
    for (const text of texts)
      clientOf({ auth: text.repeat(16_384 / text.length), userAgent: ' '.repeat(16_384) });
    expect(performance.now() - before).toBeLessThan(500);
  });
});
