import { lookup } from 'node:dns/promises';
import { connect } from 'node:net';

/** The answer comes at once, unless a firewall drops connections to port 0. */
const ANSWER_MS_MAX = 1_000;

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is taken',
  EADDRNOTAVAIL: 'this machine has no such address',
  EACCES: 'this port is for privileged users',
};

/** An address of this machine to connect to from one that is listened on. */
function nearby(address: string): string {
  if (address === '0.0.0.0') return '127.0.0.1';
  return address === '::' ? '::1' : address;
}

/** Binds a socket to the port and lets it go. Rejects with the error of bind. */
function bind(address: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const probe = connect({ host: nearby(address), port: 0, localAddress: address, localPort: port });
    const settle = (error?: NodeJS.ErrnoException): void => {
      clearTimeout(timer);
      probe.destroy();
      if (error?.syscall === 'bind') reject(error);
      else resolve();
    };
    const timer = setTimeout(settle, ANSWER_MS_MAX);
    probe.once('error', settle);
    probe.once('connect', settle);
  });
}

/**
 * Checks whether a port is free without listening on it. When a listener closes, the kernel resets
 * its clients, and the clients of a server that is being started again do come. So a socket is
 * bound to the port and connected to port 0, which no program can have.
 * @throws when the port is taken or forbidden, or the address is unknown or not this machine's
 */
export async function checkPortIsFree(host: string, port: number): Promise<void> {
  try {
    const { address } = await lookup(host);
    await bind(address, port);
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    const reason = code in REASONS ? `${REASONS[code]} (${code})` : message;
    throw new Error(`cannot listen on ${host}:${port}: ${reason}`);
  }
}
