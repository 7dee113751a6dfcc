/**
 * Starts real Redis and nats-server as child processes on free loopback ports, for `sluice dev` and
 * the tests. A child keeps its data in the given folder.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import type { Writable } from 'node:stream';
import { checkPortIsFree, PortError } from '../../lib/port-check.ts';

export type ServerKind = 'redis-server' | 'nats-server';

export type RunningServer = {
  /** Path of the program. */
  bin: string;
  url: string;
  port: number;
  pid: number;
  process: ChildProcess;
  /** Resolves with the child's last output, once the child has ended for any reason. */
  exited: Promise<string>;
  /** Sends SIGTERM, and SIGKILL after five seconds. Resolves when the child has ended. */
  stop(): Promise<void>;
};

/** Further folders to search. Debian puts nats-server into /usr/sbin, which not every PATH has. */
const EXTRA_FOLDERS = ['/usr/local/sbin', '/usr/sbin', '/usr/local/bin', '/opt/homebrew/bin'];

/**
 * Finds the full path of a program; undefined when there is none. REDIS_SERVER_BIN and
 * NATS_SERVER_BIN come before the PATH.
 */
export function findServer(
  kind: ServerKind,
  bins: { redis?: string; nats?: string },
  path: string,
): string | undefined {
  const chosen = kind === 'redis-server' ? bins.redis : bins.nats;
  if (chosen) return chosen;
  for (const folder of [...path.split(delimiter), ...EXTRA_FOLDERS]) {
    if (folder && existsSync(join(folder, kind))) return join(folder, kind);
  }
  return undefined;
}

/**
 * Range of ports for servers. It lies below the ports that kernels choose by themselves, such as
 * those of outgoing connections (from 32768 on Linux).
 */
export const LASTING_PORTS = { from: 20_000, to: 32_000 } as const;

/**
 * Finds a TCP port of the loopback interface that is free at the moment. No outgoing connection can
 * take the port afterwards; only a server that picks the same port can.
 */
export async function freePort(): Promise<number> {
  const { from, to } = LASTING_PORTS;
  for (;;) {
    const port = from + Math.floor(Math.random() * (to - from));
    try {
      await checkPortIsFree('127.0.0.1', port);
      return port;
    } catch (error) {
      if (!(error instanceof PortError && error.isTaken)) throw error;
    }
  }
}

/**
 * Starts Redis with AOF and without eviction, as production must have it.
 * @param more further arguments
 */
export async function startRedis(
  bin: string,
  dir: string,
  port?: number,
  more: readonly string[] = [],
): Promise<RunningServer> {
  mkdirSync(dir, { recursive: true });
  const chosen = port ?? (await freePort());
  const args = [
    '--port',
    `${chosen}`,
    '--bind',
    '127.0.0.1',
    '--dir',
    dir,
    '--appendonly',
    'yes',
    '--save',
    '',
    '--maxmemory-policy',
    'noeviction',
    ...more,
  ];
  const server = launch(bin, args, { scheme: 'redis', port: chosen });
  await ready(server, 'PING\r\n', (text) => text.startsWith('+PONG'));
  return server;
}

/**
 * Starts nats-server with JetStream. Its configuration file has only keys that both nats-server 2.9
 * and the newest version know.
 */
export function startNats(bin: string, dir: string, port?: number): Promise<RunningServer> {
  return startNatsWith(bin, { dir, port });
}

type NatsOptions = {
  dir: string;
  port?: number | undefined;
  /** Further lines of configuration, such as those of a cluster. */
  lines?: readonly string[];
  /** The server's environment; default: that of this process. */
  env?: NodeJS.ProcessEnv;
};

export async function startNatsWith(
  bin: string,
  { dir, port, lines = [], env }: NatsOptions,
): Promise<RunningServer> {
  mkdirSync(dir, { recursive: true });
  const chosen = port ?? (await freePort());
  const file = join(dir, 'nats.conf');
  const own = [`listen: 127.0.0.1:${chosen}`, `jetstream { store_dir: ${JSON.stringify(dir)} }`];
  writeFileSync(file, `${[...own, ...lines].join('\n')}\n`);
  const server = launch(bin, ['-c', file], { scheme: 'nats', port: chosen, env });
  await ready(server, '', (text) => /"jetstream":\s*true/.test(text));
  return server;
}

/**
 * Shell script that runs a server, and ends it when this process's end of pipe 3 closes. The pipe
 * also closes when this process is killed, so no server is left behind. The server replaces the
 * shell and keeps its process id.
 */
const UNTIL_PARENT_DIES = '(cat <&3 >/dev/null; kill -TERM $$ 2>/dev/null) & exec "$@" 3<&-';

function launch(
  bin: string,
  args: string[],
  { scheme, port, env }: { scheme: string; port: number; env?: NodeJS.ProcessEnv | undefined },
): RunningServer {
  const child = spawn('/bin/sh', ['-c', UNTIL_PARENT_DIES, 'sh', bin, ...args], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    env,
    // The child leaves the terminal's process group, so Ctrl-C does not end it at once: it is
    // stopped after the programs that use it.
    detached: true,
  });
  child.once('exit', () => (child.stdio[3] as Writable | null)?.destroy());
  let said = '';
  const hear = (data: Buffer): void => {
    said = (said + data.toString()).slice(-2000);
  };
  child.stdout?.on('data', hear);
  child.stderr?.on('data', hear);
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', () => resolve(said));
  });
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), 5_000);
    await exited;
    clearTimeout(timer);
  };
  return {
    bin,
    url: `${scheme}://127.0.0.1:${port}`,
    port,
    pid: child.pid ?? 0,
    process: child,
    exited,
    stop,
  };
}

/**
 * Waits until the server answers correctly.
 * @throws when the server ends, with its last output, or when 10 s have passed
 */
async function ready(server: RunningServer, hello: string, good: (text: string) => boolean): Promise<void> {
  let ended: string | undefined;
  server.exited.then((said) => {
    ended = said;
  });
  for (const until = Date.now() + 10_000; Date.now() < until; await new Promise((r) => setTimeout(r, 20))) {
    if (ended !== undefined) throw new Error(`${server.bin} ended at start: ${ended.trim()}`);
    if (good(await ask(server.port, hello))) return;
  }
  await server.stop();
  throw new Error(`${server.bin} did not answer within 10 s`);
}

function ask(port: number, hello: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const done = (text: string): void => {
      socket.destroy();
      resolve(text);
    };
    socket.setTimeout(500, () => done(''));
    socket.once('error', () => done(''));
    socket.once('data', (data) => done(data.toString()));
    if (hello) socket.write(hello);
  });
}
