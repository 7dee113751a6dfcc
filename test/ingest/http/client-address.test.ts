import { describe, expect, it } from 'vitest';
import { TrustedProxies } from '../../../src/ingest/http/client-address.ts';

const PRIVATE = ['10.0.0.0/8', '2001:db8:ffff::/48', '192.0.2.1'];
const clientOf = (peer: string, forwarded: string, networks = PRIVATE): string | undefined =>
  new TrustedProxies(networks).clientOf(
    { getList: (name) => (name === 'x-forwarded-for' ? forwarded : '') },
    peer,
  );
const [PEER, CLIENT, STRANGER] = ['10.1.2.3', '198.51.100.1', '203.0.113.7'];

describe('the address of a client', () => {
  it('is the peer, where no proxy is trusted', () => {
    expect(clientOf(STRANGER, CLIENT, [])).toBe(STRANGER);
  });

  it.each([
    ['is the peer, where it is no trusted proxy', STRANGER, CLIENT, STRANGER],
    ['is what the trusted peer names', PEER, CLIENT, CLIENT],
    ['is the last that no trusted proxy has', PEER, `1.1.1.1, ${CLIENT}, 10.9.9.9,192.0.2.1`, CLIENT],
    ['is the first where all are trusted', PEER, '10.0.0.1, 10.0.0.2', '10.0.0.1'],
    ['is looked for in the last 32', PEER, CLIENT + ', 10.0.0.1'.repeat(1_000), '10.0.0.1'],
    ['has no port', PEER, `${CLIENT}:4711`, CLIENT],
    ['has no brackets', PEER, '[2001:db8::1]:4711', '2001:db8::1'],
    ['is written as usual', PEER, '2001:0DB8:0:0::0001', '2001:db8::1'],
    ['is no IPv4 in IPv6', `::ffff:${PEER}`, `::ffff:${CLIENT}`, CLIENT],
    [
      'is found behind a peer as the socket writes it',
      '0000:0000:0000:0000:0000:ffff:0a01:0203',
      CLIENT,
      CLIENT,
    ],
    ['is found behind a proxy of a trusted IPv6 network', '2001:db8:ffff::9', CLIENT, CLIENT],
    ['is unknown where the proxy names none', PEER, '', undefined],
    ['is unknown where the proxy names something else', PEER, `${CLIENT}, unknown`, undefined],
    ['is unknown without a peer', '', CLIENT, undefined],
  ])('%s', (_what, peer, forwarded, address) => {
    expect(clientOf(peer, forwarded)).toBe(address);
  });
});
