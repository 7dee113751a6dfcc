import { describe, expect, it } from 'vitest';
import type { RequestHead } from '../../../src/ingest/http/request-head.ts';
import { REQUEST_HEADER_BYTES_MAX, REQUEST_HEADERS_MAX, URL_BYTES_MAX } from '../../../src/limits.ts';
import { headOf } from './line.ts';

type Lines = [name: string, value: string][];

describe('the head of a request', () => {
  it('has the headers that are asked for, of several the first, and gives others by name, one or all', () => {
    const head = headOf([
      ['origin', 'https://a.example'],
      ['origin', 'https://b.example'],
      ['user-agent', 'x/1'],
      ['x-forwarded-for', '192.0.2.1'],
    ]);
    expect(head.headers).toMatchObject({ origin: 'https://a.example', referer: '', 'user-agent': 'x/1' });
    expect([head.getHeader('x-forwarded-for'), head.getHeader('forwarded')]).toEqual(['192.0.2.1', '']);
    expect([head.getList('origin'), head.getList('forwarded')]).toEqual([
      'https://a.example,https://b.example',
      '',
    ]);
  });

  it.each<[what: string, Lines, Partial<RequestHead>, query?: string]>([
    ['nothing odd', [['content-length', '12']], { oddLength: false, oddEncoding: false, isEmpty: false }],
    ['a length of 0', [['content-length', '0']], { oddLength: false, isEmpty: true }],
    ['a length that is no number', [['content-length', '+1']], { oddLength: true }],
    [
      'two lengths, though they agree',
      [
        ['content-length', '1'],
        ['content-length', '1'],
      ],
      { oddLength: true },
    ],
    ['a length with a zero before it', [['content-length', '012']], { oddLength: true }],
    ['a length of several zeros', [['content-length', '00']], { oddLength: true }],
    [
      'two hosts',
      [
        ['host', 'a.example'],
        ['host', 'b.example'],
      ],
      { oddHost: true, isOdd: true },
    ],
    ['chunks', [['transfer-encoding', 'Chunked']], { oddEncoding: false }],
    [
      'another coding, whatever follows',
      [
        ['transfer-encoding', 'gzip'],
        ['transfer-encoding', 'chunked'],
      ],
      { oddEncoding: true },
    ],
    ['a close that the library sees', [['connection', 'close']], { closeMode: 'by the library' }],
    ['a close among other options', [['connection', 'te, Close']], { closeMode: 'by us' }],
    [
      'a close in a second header, which the library overlooks',
      [
        ['connection', 'te'],
        ['connection', 'close'],
      ],
      { closeMode: 'by us' },
    ],
    [
      'an SDK that uses closed connections again',
      [['user-agent', 'sentry.rust/0.31']],
      { closeMode: 'by us' },
    ],
    [
      'such an SDK by what it says beside its key',
      [['x-service-auth', 'Sentry sentry_key=k, sentry_client=sentry.rust/0.31']],
      { closeMode: 'by us' },
    ],
    [
      'such an SDK that asks for the close itself',
      [
        ['x-sentry-auth', 'sentry.rust/0.31'],
        ['connection', 'close'],
      ],
      { closeMode: 'by the library' },
    ],
    ['such an SDK in the query', [], { closeMode: 'by us' }, 'sentry_key=k&sentry_client=sentry.rust%2F0.31'],
    ['no wish to close', [['connection', 'keep-alive']], { closeMode: 'no' }],
    ['a name', [['x-request-id', 'abc-1']], { requestId: 'abc-1' }],
    ['a name that is not fit to be repeated', [['x-request-id', 'a b']], { requestId: '' }],
  ])('says: %s', (_what, lines, facts, query) => {
    expect(headOf(lines, query)).toMatchObject(facts);
  });

  it.each<[string, number, (size: number) => RequestHead]>([
    ['headers', REQUEST_HEADERS_MAX, (size) => headOf(Array.from({ length: size }, () => ['a', '']))],
    // Each line has a colon, a space and an end beside its name and value.
    ['bytes of headers', REQUEST_HEADER_BYTES_MAX, (size) => headOf({ a: 'x'.repeat(size - 5) })],
    ['bytes of the query', REQUEST_HEADER_BYTES_MAX, (size) => headOf({}, 'x'.repeat(size))],
    ['bytes of the path', URL_BYTES_MAX, (size) => headOf({}, '', 'x'.repeat(size))],
  ])('is too big with more %s than the bound', (_what, bound, headWith) => {
    expect([headWith(bound).tooBig, headWith(bound + 1).tooBig]).toEqual([false, true]);
  });
});
