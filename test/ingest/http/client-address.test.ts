import { describe, expect, it } from 'vitest';
import { TrustedProxies } from '../../../src/ingest/http/client-address.ts';

const clientOf = (networks: string[], peer: string, forwarded = ''): string | undefined =>
  new TrustedProxies(networks).clientOf(
    { getList: (name) => (name === 'x-forwarded-for' ? forwarded : '') },
    peer,
  );
const PRIVATE = ['10.0.0.0/8', '2001:db8:ffff::/48', '192.0.2.1'];

describe('the address of a client', () => {
  it.each([
    ['is the peer, where no proxy is trusted', [], '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['is the peer, where it is no trusted proxy', PRIVATE, '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['is what the trusted peer names', PRIVATE, '10.1.2.3', '198.51.100.1', '198.51.100.1'],
    [
      'is the last that no trusted proxy has',
      PRIVATE,
      '10.1.2.3',
      '1.1.1.1, 198.51.100.1, 10.9.9.9,192.0.2.1',
      '198.51.100.1',
    ],
    ['is the first where all are trusted', PRIVATE, '10.1.2.3', '10.0.0.1, 10.0.0.2', '10.0.0.1'],
    [
      'is looked for in the last 32',
      PRIVATE,
      '10.1.2.3',
      `198.51.100.1${', 10.0.0.1'.repeat(1_000)}`,
      '10.0.0.1',
    ],
    ['has no port', PRIVATE, '10.1.2.3', '198.51.100.1:4711', '198.51.100.1'],
    ['has no brackets', PRIVATE, '10.1.2.3', '[2001:db8::1]:4711', '2001:db8::1'],
    ['is written as usual', PRIVATE, '10.1.2.3', '2001:0DB8:0:0::0001', '2001:db8::1'],
    ['is no IPv4 in IPv6', PRIVATE, '::ffff:10.1.2.3', '::ffff:198.51.100.1', '198.51.100.1'],
    [
      'is found behind a peer as the socket writes it',
      PRIVATE,
      '0000:0000:0000:0000:0000:ffff:0a01:0203',
      '198.51.100.1',
      '198.51.100.1',
    ],
    [
      'is found behind a proxy of a trusted IPv6 network',
      PRIVATE,
      '2001:db8:ffff::9',
      '198.51.100.1',
      '198.51.100.1',
    ],
    ['is unknown where the proxy names none', PRIVATE, '10.1.2.3', '', undefined],
    [
      'is unknown where the proxy names something else',
      PRIVATE,
      '10.1.2.3',
      '198.51.100.1, unknown',
      undefined,
    ],
    ['is unknown without a peer', PRIVATE, '', '198.51.100.1', undefined],
  ] as [string, string[], string, string, string | undefined][])(
    '%s',
    (_what, networks, peer, forwarded, address) => {
      expect(clientOf(networks, peer, forwarded)).toBe(address);
    },
  );
});
