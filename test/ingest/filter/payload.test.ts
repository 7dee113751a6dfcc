import fc from 'fast-check';
import { expect, it } from 'vitest';
import { siteOf } from '../../../src/ingest/filter/payload.ts';

function hostOf(url: string): string | undefined {
  try {
    return new URL(url).host;
  } catch {
    return undefined;
  }
}

it('is the host of the whole URL', () => {
  const parts = {
    blanks: fc.constantFrom('', ' ', '\n\t '),
    scheme: fc.constantFrom('http:', 'HTTPS:', 'ws:', 'app:', 'mailto:', 'file:', 'no scheme', ''),
    slashes: fc.constantFrom('', '/', '//', '\\\\', '/\\', '///'),
    user: fc.constantFrom('', 'me@', 'me:secret@', 'a@b@', '@', ':@'),
    host: fc.oneof(
      fc.domain(),
      fc.constantFrom('localhost', '[::1]', '127.1', '0', '', 'ü.example', '%6cocalhost', 'a b', '[::'),
    ),
    port: fc.constantFrom('', ':', ':80', ':8080', ':99999', ':x'),
    rest: fc.constantFrom('', '/', '/a@b', '?a=@b/c', '#x', '\\y', '/\u0301ü'),
  };
  fc.assert(
    fc.property(fc.record(parts), ({ blanks, scheme, slashes, user, host, port, rest }) => {
      const url = blanks + scheme + slashes + user + host + port + rest;
      if (hostOf(url) !== undefined) expect(siteOf(url)?.host, url).toBe(hostOf(url));
    }),
    { numRuns: 5_000 },
  );
});

it('cuts a host where no name goes on', () => {
  expect(siteOf(`http://me@${'a'.repeat(70_000)}.b/`)?.host).toBe('a'.repeat(300));
  const long = `http://${'u'.repeat(70_000)}@localhost:3000/${'p'.repeat(70_000)}`;
  expect(siteOf(long)?.host).toBe('localhost:3000');
});
