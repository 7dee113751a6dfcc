import { createHash, randomUUID } from 'node:crypto';
import { closeSync, mkdirSync, openSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

export type FolderLock = { release(): Promise<void> };

/** For another that found no holder either to put its socket in place of ours. */
const SETTLE_MS = 200;

/**
 * One process per folder, by a lock that the kernel frees when its holder dies for any reason: a
 * listening Unix socket named after the folder. Linux has names without a file (abstract sockets),
 * which a container sees only of its own network. So there a second socket, a file in the folder,
 * tells of holders in other containers. Of a file, a connection attempt tells whether its process
 * lives.
 *
 * @param purpose lets one folder carry several locks
 * @returns undefined when another process of this machine holds it
 */
export async function lockFolder(dir: string, purpose: string): Promise<FolderLock | undefined> {
  mkdirSync(dir, { recursive: true });
  const hash = createHash('sha256').update(realpathSync(dir)).digest('hex');
  const name = `sluice-${purpose}-${hash.slice(0, 32)}`;
  const servers = process.platform === 'linux' ? await lockOnLinux(dir, purpose, name) : await lockFile(name);
  if (!servers) return undefined;
  for (const server of servers) server.unref();
  return {
    release: async () => {
      // Before the socket goes: a file without one would be another's to replace.
      rmSync(fileOf(dir, purpose), { force: true });
      await Promise.all(servers.map(closed));
    },
  };
}

const fileOf = (dir: string, purpose: string): string => join(dir, `${purpose}.lock`);

async function lockOnLinux(dir: string, purpose: string, name: string): Promise<Server[] | undefined> {
  const abstract = await listen(`\0${name}`);
  if (!abstract) return undefined;
  // The path of a socket is short; the folder's may be long.
  const handle = openSync(dir, 'r');
  try {
    const inFolder = await listenIn(fileOf(`/proc/self/fd/${handle}`, purpose));
    if (inFolder !== 'taken') return inFolder ? [abstract, inFolder] : [abstract];
    await closed(abstract);
    return undefined;
  } finally {
    closeSync(handle);
  }
}

/** @returns undefined where the file system has no sockets */
async function listenIn(path: string): Promise<Server | 'taken' | undefined> {
  if (await answers(path)) return 'taken';
  // A server that is closed removes the name that it began with: by then that is nobody's.
  const first = `${path}.${randomUUID()}`;
  const server = await listen(first).catch(() => undefined);
  if (!server) return undefined;
  const { ino } = statSync(first);
  renameSync(first, path);
  await pause(SETTLE_MS);
  if (statSync(path, { throwIfNoEntry: false })?.ino === ino) return server;
  await closed(server);
  return 'taken';
}

async function lockFile(name: string): Promise<Server[] | undefined> {
  const path = join(tmpdir(), `${name}.sock`);
  const server = (await listen(path)) ?? ((await answers(path)) ? undefined : await takeOver(path));
  return server && [server];
}

function listen(path: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(undefined) : reject(error),
    );
    server.listen(path, () => resolve(server));
  });
}

const closed = (server: Server): Promise<void> =>
  new Promise((resolve) => {
    server.close(() => resolve());
  });

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

function takeOver(path: string): Promise<Server | undefined> {
  rmSync(path, { force: true });
  return listen(path);
}
