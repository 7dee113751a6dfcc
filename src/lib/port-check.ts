import { lookup } from 'node:dns/promises';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { basename } from 'node:path';

/** How long connecting to port 0 may take. It fails at once, unless a firewall drops it. */
const PROBE_MS_MAX = 1_000;

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is taken',
  EADDRNOTAVAIL: 'this machine has no such address',
  EACCES: 'this port is for privileged users',
};

/** The address under which this machine reaches a listener on `address`. */
function nearby(address: string): string {
  if (address === '0.0.0.0') return '127.0.0.1';
  return address === '::' ? '::1' : address;
}

/** Binds a socket to the port and releases it. Rejects with the error of bind. */
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
 * Checks whether a port could be listened on, without listening on it. A listener that closes again
 * would make the kernel reset the clients of a server that is just being restarted. So a socket is
 * bound to the port and connected to port 0, where nobody can listen.
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
 * A port that cannot be listened on. The message gives the reason, and names the program that has
 * the port where the system tells.
 */
export class PortError extends Error {
  override name = 'PortError';
  /** True when the port is taken or for privileged users, so that another port may work. */
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
 * Name of a program that listens on the port. Undefined when there is none, when the program
 * belongs to another user, and on systems other than Linux.
 */
function listenerOf(port: number): string | undefined {
  const sockets = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((table) => listeningSockets(table, port));
  if (sockets.length === 0) return undefined;
  const pid = readdirSync('/proc').find((name) => /^\d+$/.test(name) && hasOneOf(name, sockets));
  return pid && `${programOf(pid)} (process ${pid})`;
}

/** Lists the sockets that listen on the port, as /proc/<pid>/fd names them: `socket:[4711]`. */
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
 * Name of the program, with the script's name where the program is an interpreter. Further
 * arguments are left out, because they may hold secrets.
 */
function programOf(pid: string): string {
  const [program = '', script = ''] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  return script.includes('/') ? `${basename(program)} ${basename(script)}` : basename(program);
}

function ifThere<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined; // the file is gone by now, or belongs to another user
  }
}
