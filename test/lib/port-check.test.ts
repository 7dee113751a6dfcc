import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { checkPortIsFree } from '../../src/lib/port-check.ts';
import { lastingPort } from '../support/servers.ts';

const LOOKS = 200;
const hasIPv6 = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ family }) => family === 'IPv6'),
);

describe('a port', () => {
  it.each(['127.0.0.1', '0.0.0.0', 'localhost', ...(hasIPv6 ? ['::'] : [])])(
    'that nobody has on %s is free, as often as one asks',
    async (host) => {
      const port = await lastingPort();
      await checkPortIsFree(host, port);
      await checkPortIsFree(host, port);
    },
  );

  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['127.0.0.1', '0.0.0.0'],
    ['0.0.0.0', '127.0.0.1'],
    ...(hasIPv6 ? [['::', '::1']] : []),
  ])('that somebody has on %s is taken on %s', async (theirs = '', ours = '') => {
    const server = createServer().listen({ host: theirs, port: await lastingPort() });
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    await expect(checkPortIsFree(ours, port)).rejects.toThrow(
      `cannot listen on ${ours}:${port}: the port is taken (EADDRINUSE)`,
    );
    await new Promise((resolve) => server.close(resolve));
    await checkPortIsFree(ours, port);
  });

  it('of another machine is none of ours', async () => {
    await expect(checkPortIsFree('192.0.2.1', 80)).rejects.toThrow(
      'cannot listen on 192.0.2.1:80: this machine has no such address (EADDRNOTAVAIL)',
    );
  });

  it('of an unknown host is named in the error', async () => {
    await expect(checkPortIsFree('nowhere.invalid', 80)).rejects.toThrow(
      'cannot listen on nowhere.invalid:80: getaddrinfo',
    );
  });

  it('is looked at without accepting who comes meanwhile', async () => {
    const port = await lastingPort();
    const clients = fork(new URL('../support/connect-often.js', import.meta.url), [`${port}`]);
    await once(clients, 'message');
    for (let n = 0; n < LOOKS; n++) {
      await checkPortIsFree('0.0.0.0', port);
      await pause(2);
    }
    clients.send('stop');
    const [counts] = (await once(clients, 'message')) as [Record<string, number>];
    expect(Object.keys(counts)).toEqual(['ECONNREFUSED']);
  });
});
