import { lookup } from 'node:dns/promises';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { basename } from 'node:path';

/** The answer comes at once, unless a firewall drops connections to port 0. */
const PROBE_MS_MAX = 1_000;

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
    const timer = setTimeout(settle, PROBE_MS_MAX);
    probe.once('error', settle);
    probe.once('connect', settle);
  });
}

/**
 * Looks whether a port could be listened on, without listening: the kernel resets who comes to a
 * listener that closes again, and the clients of a server that is just being started again do come.
 * So a socket is bound to the port and connected to nowhere (port 0, which nobody can have).
 * @throws PortError when the port is taken or forbidden, or the address is unknown or not this
 * machine's
 */
export async function checkPortIsFree(host: string, port: number): Promise<void> {
  try {
    const { address } = await lookup(host);
    await bind(address, port);
  } catch (error) {
    throw new PortError(host, port, error as NodeJS.ErrnoException);
  }
}

/**
 * A port that cannot be listened on. The message says why, and which program has the port where the
 * system tells.
 */
export class PortError extends Error {
  override name = 'PortError';
  /** Another port would do. */
  readonly isTaken: boolean;

  constructor(host: string, port: number, { code = '', message }: NodeJS.ErrnoException) {
    const reason = code in REASONS ? `${REASONS[code]} (${code})` : message;
    const holder = code === 'EADDRINUSE' ? listenerOf(port) : undefined;
    super(`cannot listen on ${host}:${port}: ${reason}${holder ? ` by ${holder}` : ''}`);
    this.isTaken = code === 'EADDRINUSE' || code === 'EACCES';
  }
}

// ---- Who has the port (Linux) ----

const LISTENING = '0A';

/**
 * A program that listens on the port; undefined elsewhere than on Linux, and when it is another
 * user's.
 */
function listenerOf(port: number): string | undefined {
  const sockets = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((table) => listeningSockets(table, port));
  if (sockets.length === 0) return undefined;
  const pid = readdirSync('/proc').find((name) => /^\d+$/.test(name) && hasOneOf(name, sockets));
  return pid && `${programOf(pid)} (process ${pid})`;
}

/** @returns as a descriptor of theirs reads, such as `socket:[4711]` */
function listeningSockets(table: string, port: number): string[] {
  const address = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = ifThere(() => readFileSync(table, 'utf8').split('\n')) ?? [];
  return rows
    .map((row) => row.trim().split(/\s+/))
    .filter(([, local, , state]) => local?.endsWith(address) && state === LISTENING)
    .map((columns) => `socket:[${columns[9]}]`);
}

function hasOneOf(pid: string, sockets: readonly string[]): boolean {
  const folder = `/proc/${pid}/fd`;
  const isOne = (fd: string): boolean =>
    sockets.includes(ifThere(() => readlinkSync(`${folder}/${fd}`)) ?? '');
  return (ifThere(() => readdirSync(folder)) ?? []).some(isOne);
}

/**
 * The program's name, and its script's where it is an interpreter; no further arguments, they may
 * hold secrets.
 */
function programOf(pid: string): string {
  const [program = '', script = ''] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  return script.includes('/') ? `${basename(program)} ${basename(script)}` : basename(program);
}

function ifThere<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined; // gone meanwhile, or not ours to see
  }
}
