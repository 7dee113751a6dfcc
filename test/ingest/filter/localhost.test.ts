import { describe, expect, it } from 'vitest';
import { verdictOn } from './encodings.ts';

const withUrl = (url: unknown, headers?: unknown) => ({ request: { url, headers } });
const withIp = (ip_address: unknown) => ({ user: { ip_address } });
const withHeaders = (headers: unknown) => ({ request: { headers } });

/** What made `127.` and `0.0.0.0` useless as needles. */
const CHROME = { 'User-Agent': 'Mozilla/5.0 (X11) AppleWebKit/537.36 Chrome/127.0.0.0 Edg/140.0.0.0' };

const LOOPBACKS = [
  '127.0.0.1',
  '127.0.0.0',
  '127.255.255.254',
  '::1',
  '0:0:0:0:0:0:0:1',
  '0000:0000:0000:0000:0000:0000:0000:0001',
  '0::01',
  '0::0:001',
  '::ffff:127.0.0.1',
  '::FFFF:127.8.9.1',
  '::ffff:7f00:1',
  '::ffff:7f01:203',
  '0:0:0:0:0:ffff:7f00:0001',
];
const OTHER_ADDRESSES = [
  '128.0.0.1',
  '126.255.255.255',
  '10.0.0.1',
  '1.127.0.0',
  '::2',
  '::11',
  '::ffff:128.0.0.1',
  'fe80::1',
  '2001:db8::1',
  '127.0.0',
  '127.0.0.256',
  '127.0.0.1 ',
  '127.0.0.1:80',
  'localhost',
  '0.0.0.0',
  '{{auto}}',
  '',
];

const LOCAL_HOSTS = [
  'localhost',
  'LOCALHOST',
  'LocalHost.',
  'app.localhost',
  'a.b.LOCALHOST',
  'app.localhost.',
  '127.0.0.1',
  '127.1.2.3',
  '127.0.0.1.',
  '0.0.0.0',
  '[::1]',
  '[0:0:0:0:0:0:0:1]',
  '[::0001]',
  '[::ffff:127.0.0.1]',
  '[::FFFF:7f00:1]',
];
const OTHER_HOSTS = [
  'localhost.com',
  'foolocalhost',
  'foolocalhost.com',
  'localhost.localdomain',
  'local',
  'example.com',
  '128.0.0.1',
  '10.127.0.1',
  '140.0.0.0',
  '127.0.0.1.example.com',
  '0.0.0.0.example.com',
  '[::2]',
  '[fe80::1]',
  '[::ffff:10.0.0.1]',
];

describe('the localhost filter', () => {
  it.each(LOOPBACKS)('takes a user at %s', (address) => {
    expect(verdictOn(withIp(address))).toBe('localhost');
    expect(verdictOn(withHeaders({ 'X-Forwarded-For': address }))).toBe('localhost');
  });

  it.each(OTHER_ADDRESSES)('leaves a user at %j', (address) => {
    expect(verdictOn(withIp(address))).toBeUndefined();
    expect(verdictOn(withHeaders({ 'X-Forwarded-For': address }))).toBeUndefined();
  });

  it.each(LOCAL_HOSTS)('takes a page on %s', (host) => {
    for (const url of [
      `http://${host}`,
      `https://${host}/`,
      `HTTP://${host}:3000/a?b#c`,
      `http://user:secret@${host}:8080/x`,
      `ws://${host}/socket`,
    ]) {
      expect(verdictOn(withUrl(url, CHROME)), url).toBe('localhost');
    }
  });

  it.each(OTHER_HOSTS)('leaves a page on %s', (host) => {
    for (const url of [
      `http://${host}`,
      `https://${host}:3000/x`,
      `https://localhost@${host}/`,
      `https://127.0.0.1:x@${host}/?to=http://localhost/`,
    ]) {
      expect(verdictOn(withUrl(url, CHROME)), url).toBeUndefined();
    }
  });

  it.each(['file:///C:/app/index.html', 'file:///home/me/a.html', 'FILE:///x', 'file://server/share/x'])(
    'takes a page opened from %s',
    (url) => {
      expect(verdictOn(withUrl(url))).toBe('localhost');
    },
  );

  it.each(['https://example.com/file:///x', 'profile://x', 'https://example.com/?url=file:'])(
    'leaves %s, which only mentions a file',
    (url) => {
      expect(verdictOn(withUrl(url))).toBeUndefined();
    },
  );

  it.each(LOCAL_HOSTS)('takes a request to host %s that has no URL', (host) => {
    for (const name of ['Host', 'host', 'X-Forwarded-Host', 'x-forwarded-HOST']) {
      expect(verdictOn(withHeaders({ [name]: host }))).toBe('localhost');
      expect(verdictOn(withHeaders([[name, `${host}:8080`]]))).toBe('localhost');
      expect(verdictOn(withUrl('/relative/path', { [name]: [host] }))).toBe('localhost');
    }
  });

  it.each([
    ...OTHER_HOSTS,
    'localhost/',
    'x@localhost',
    'a localhost',
    '?localhost',
    'localhost, example.com',
  ])('leaves a request to host %j that has no URL', (host) => {
    expect(verdictOn(withHeaders({ Host: host }))).toBeUndefined();
    expect(verdictOn(withHeaders({ 'X-Forwarded-Host': host }))).toBeUndefined();
  });

  it('trusts a URL more than Host', () => {
    expect(verdictOn(withUrl('https://example.com/', { Host: 'localhost' }))).toBeUndefined();
    expect(verdictOn(withUrl('https://example.com/', { 'X-Forwarded-Host': 'localhost' }))).toBeUndefined();
    expect(verdictOn(withUrl('https://example.com/', { 'X-Forwarded-For': '127.0.0.1' }))).toBe('localhost');
  });

  it('takes X-Forwarded-For only when it is exactly one loopback address', () => {
    expect(verdictOn(withHeaders({ 'X-Forwarded-For': '127.0.0.1, 10.0.0.1' }))).toBeUndefined();
    expect(verdictOn(withHeaders({ 'X-Forwarded-For': ['127.0.0.1', '10.0.0.1'] }))).toBeUndefined();
    expect(verdictOn(withHeaders([['x-forwarded-for', '::1']]))).toBe('localhost');
  });

  it('looks at transactions too', () => {
    expect(verdictOn(withUrl('http://localhost:3000/'), { type: 'transaction' })).toBe('localhost');
  });

  it.each([
    'http://2130706433/',
    'http://0x7f.1/',
    'http://%6cocal%68ost/',
    'http:\\\\127.0.0.1/',
    'http://0/',
  ])('leaves %s, which becomes a local host only when it is normalised', (url) => {
    expect(verdictOn(withUrl(url))).toBeUndefined();
    expect(verdictOn({ ...withUrl(url), message: 'parsed for the sake of "localhost"' })).toBeUndefined();
  });

  it('looks at no other field', () => {
    const elsewhere = {
      breadcrumbs: [{ data: { url: 'http://localhost/x' } }],
      message: 'connect ECONNREFUSED 127.0.0.1:5432',
      tags: { ip: '127.0.0.1' },
      server_name: 'localhost',
    };
    expect(verdictOn({ ...elsewhere, ...withUrl('https://example.com/', CHROME) })).toBeUndefined();
  });
});
