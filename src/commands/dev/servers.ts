/**
 * Real Redis and nats-server as children on free loopback ports, for `sluice dev` and the tests. A
 * child is ended by its own process id; its data is in the given folder.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import type { Writable } from 'node:stream';
import { checkPortIsFree, PortError } from '../../lib/port-check.ts';

export type ServerKind = 'redis-server' | 'nats-server';

export type RunningServer = {
  /** The program's path. */
  bin: string;
  url: string;
  port: number;
  pid: number;
  process: ChildProcess;
  /** Resolves with what the child said last, once it has ended for any reason. */
  exited: Promise<string>;
  /** SIGTERM, then SIGKILL after five seconds; resolves when the child has ended. */
  stop(): Promise<void>;
};

/** Debian puts nats-server into /usr/sbin, which is not on every user's PATH. */
const EXTRA_FOLDERS = ['/usr/local/sbin', '/usr/sbin', '/usr/local/bin', '/opt/homebrew/bin'];

/** The full path of the program, or undefined. REDIS_SERVER_BIN and NATS_SERVER_BIN come first. */
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
 * Below the ports from which kernels choose for outgoing connections and for whoever asks for any
 * (32768 on Linux).
 */
export const LASTING_PORTS = { from: 20_000, to: 32_000 } as const;

/**
 * A TCP port of the loopback interface that was free a moment ago. No connection that begins
 * meanwhile has it as its own end; another server would have to draw the same one.
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

/** Redis with AOF on and no eviction, as production must have it. */
export async function startRedis(bin: string, dir: string, port?: number): Promise<RunningServer> {
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
  ];
  const server = launch(bin, args, { scheme: 'redis', port: chosen });
  await ready(server, 'PING\r\n', (text) => text.startsWith('+PONG'));
  return server;
}

/** nats-server with JetStream; the file holds only keys that 2.9 and the newest both know. */
export function startNats(bin: string, dir: string, port?: number): Promise<RunningServer> {
  return startNatsWith(bin, { dir, port, lines: [] });
}

/** The same with further lines of configuration, such as those of a cluster. */
export async function startNatsWith(
  bin: string,
  { dir, port, lines }: { dir: string; port?: number | undefined; lines: readonly string[] },
): Promise<RunningServer> {
  mkdirSync(dir, { recursive: true });
  const chosen = port ?? (await freePort());
  const file = join(dir, 'nats.conf');
  const own = [`listen: 127.0.0.1:${chosen}`, `jetstream { store_dir: ${JSON.stringify(dir)} }`];
  writeFileSync(file, `${[...own, ...lines].join('\n')}\n`);
  const server = launch(bin, ['-c', file], { scheme: 'nats', port: chosen });
  await ready(server, '', (text) => /"jetstream":\s*true/.test(text));
  return server;
}

/**
 * Ends the server when our end of pipe 3 closes, also when this process is killed: no orphan is
 * left behind. The server replaces the shell and keeps its process id.
 */
const UNTIL_PARENT_DIES = '(cat <&3 >/dev/null; kill -TERM $$ 2>/dev/null) & exec "$@" 3<&-';

function launch(
  bin: string,
  args: string[],
  { scheme, port }: { scheme: string; port: number },
): RunningServer {
  const child = spawn('/bin/sh', ['-c', UNTIL_PARENT_DIES, 'sh', bin, ...args], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    // Not in the terminal's process group: Ctrl-C ends it in its turn, after those that use it.
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
 * Resolves when the server answers correctly; rejects with its last output when it ends or 10 s
 * pass.
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
