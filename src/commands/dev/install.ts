/** Finds redis-server and nats-server. Installs a missing one with apt-get, without a password. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { findServer, type ServerKind } from './servers.ts';

type ServerBinaries = { redis: string; nats: string };
type Host = { path: string; redisServerBin?: string | undefined; natsServerBin?: string | undefined };

/** Commands that a person can type when this program cannot install the servers. */
const MANUAL_INSTALL = `Install them with one of

  Debian, Ubuntu   sudo apt-get update && sudo apt-get install -y redis-server nats-server
  Homebrew         brew install redis nats-server
  Docker           docker run -d -p 6379:6379 redis redis-server \\
                     --appendonly yes --maxmemory-policy noeviction
                   docker run -d -p 4222:4222 nats -js
                   and set SLUICE_REDIS_URL=redis://127.0.0.1:6379 SLUICE_NATS_URL=nats://127.0.0.1:4222`;

/** Lists the servers that are missing. Debian's packages have the same names as the programs. */
function missingServers(host: Host): ServerKind[] {
  const bins = { redis: host.redisServerBin, nats: host.natsServerBin };
  const kinds: ServerKind[] = ['redis-server', 'nats-server'];
  return kinds.filter((kind) => !findServer(kind, bins, host.path));
}

/**
 * Options of apt-get: wait 300 s for another apt, which may run on a machine that has just started,
 * and repeat a failed download three times.
 */
const PATIENT = ['-o', 'DPkg::Lock::Timeout=300', '-o', 'Acquire::Retries=3'];
/**
 * Number of tries while another apt holds the lock of the package lists. apt itself waits only for
 * the lock of the packages.
 */
const LOCK_TRIES = 20;
const LOCK_PAUSE_MS = 15_000;

/**
 * Returns the words before `apt-get`: none for root, `sudo -n` where sudo asks for no password.
 * @returns undefined when the user may not install packages, or the machine has no apt
 */
function aptPrefix(): string[] | undefined {
  if (!existsSync('/usr/bin/apt-get')) return undefined;
  if (process.getuid?.() === 0) return [];
  return spawnSync('sudo', ['-n', 'true'], { stdio: 'ignore' }).status === 0 ? ['sudo', '-n'] : undefined;
}

/**
 * Installs Debian packages, and tells the user so.
 * @returns false when this machine has no apt, the user may not install, or apt failed
 */
export function aptInstall(packages: readonly string[], say: (line: string) => void): boolean {
  const prefix = aptPrefix();
  if (!prefix) return false;
  say(`installing ${packages.join(' and ')} with apt-get …`);
  const run = (args: string[]): string | undefined => {
    const [command, ...rest] = [
      ...prefix,
      'env',
      'DEBIAN_FRONTEND=noninteractive',
      'apt-get',
      ...PATIENT,
      ...args,
    ];
    const { status, stderr } = spawnSync(command as string, rest, {
      encoding: 'utf8',
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    return status === 0 ? undefined : stderr.trim();
  };
  for (let tries = 1; ; tries++) {
    const fault =
      run(['update', '-qq']) ?? run(['install', '-y', '-qq', '--no-install-recommends', ...packages]);
    if (fault === undefined) return true;
    if (tries === LOCK_TRIES || !/Could not get lock/.test(fault)) {
      say(fault);
      return false;
    }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOCK_PAUSE_MS);
  }
}

/**
 * Returns the paths of both servers, after installing missing ones.
 * @throws Error with commands that the user can type, when a server cannot be installed
 */
export function ensureServers(host: Host, say: (line: string) => void): ServerBinaries {
  const missing = missingServers(host);
  if (missing.length > 0 && !aptInstall(missing, say))
    throw new Error(`${missing.join(' and ')} not found on the PATH. ${MANUAL_INSTALL}`);
  const bins = { redis: host.redisServerBin, nats: host.natsServerBin };
  const redis = findServer('redis-server', bins, host.path);
  const nats = findServer('nats-server', bins, host.path);
  if (!redis || !nats) throw new Error(`installed, but still not found on the PATH. ${MANUAL_INSTALL}`);
  return { redis, nats };
}
