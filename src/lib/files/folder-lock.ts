import { createHash, randomUUID } from 'node:crypto';
import { closeSync, mkdirSync, openSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

export type FolderLock = { release(): Promise<void> };

/**
 * Wait after a process has put its socket into the folder. Another process that also found no
 * holder may replace the socket within this time; the lock is then that process's.
 */
const SETTLE_MS = 200;

/**
 * Lets one process at a time use a folder. The lock is a listening Unix socket named after the
 * folder, so the kernel frees it when its holder dies for any reason.
 *
 * On Linux the socket has a name without a file (an abstract socket). A container sees only the
 * abstract sockets of its own network. So a second socket, a file in the folder, excludes holders
 * in other containers. Such a file may outlive its process, so an attempt to connect tells whether
 * the process lives.
 *
 * @param purpose part of the lock's name, so that one folder can have several locks
 * @returns undefined when another process holds the lock
 */
export async function lockFolder(dir: string, purpose: string): Promise<FolderLock | undefined> {
  mkdirSync(dir, { recursive: true });
  const hash = createHash('sha256').update(realpathSync(dir)).digest('hex');
  const name = `sluice-${purpose}-${hash.slice(0, 32)}`;
  if (process.platform === 'linux') return lockOnLinux(join(dir, `${purpose}.lock`), name);
  const path = join(tmpdir(), `${name}.sock`);
  const server = (await listen(path)) ?? ((await answers(path)) ? undefined : await takeOver(path));
  return server && { release: () => closed(server) };
}

async function lockOnLinux(file: string, name: string): Promise<FolderLock | undefined> {
  const abstract = await listen(`\0${name}`);
  if (!abstract) return undefined;
  const inFolder = await listenIn(file);
  if (inFolder === 'taken') {
    await closed(abstract);
    return undefined;
  }
  const release = async (): Promise<void> => {
    await inFolder?.release();
    await closed(abstract);
  };
  return { release };
}

/**
 * Takes the lock that excludes holders in other containers: a socket in the folder.
 * @returns 'taken' when another process holds the lock; undefined where the folder cannot hold a
 * socket, so that the abstract socket alone is the lock
 */
async function listenIn(file: string): Promise<FolderLock | 'taken' | undefined> {
  // The path of a socket must be short, and the folder's path may be long. So the folder is named
  // by its descriptor.
  const handle = openSync(dirname(file), 'r');
  const inFolder = (name: string): string => join(`/proc/self/fd/${handle}`, name);
  // When a server closes, Node removes the file name under which the server was created. So the
  // socket is created under a temporary name and then renamed: nobody uses the temporary name when
  // it is removed.
  const first = inFolder(randomUUID());
  try {
    if (await answers(inFolder(basename(file)))) return 'taken';
    const server = await listen(first).catch(() => undefined);
    if (!server) return undefined;
    const { ino } = statSync(first);
    const isOurs = (): boolean => statSync(file, { throwIfNoEntry: false })?.ino === ino;
    try {
      renameSync(first, file);
    } catch {
      await closed(server);
      return undefined;
    }
    await pause(SETTLE_MS);
    if (!isOurs()) {
      await closed(server);
      return 'taken';
    }
    const release = async (): Promise<void> => {
      if (isOurs()) rmSync(file, { force: true });
      await closed(server);
    };
    return { release };
  } finally {
    closeSync(handle);
  }
}

function listen(path: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(undefined) : reject(error),
    );
    // Any user who sees the file may connect to it, to learn whether its process lives.
    const open = !path.startsWith('\0');
    server.listen({ path, ...(open && { readableAll: true, writableAll: true }) }, () => {
      server.unref();
      resolve(server);
    });
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
    // Any other error does not prove that nobody listens.
    socket.once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(code !== 'ENOENT' && code !== 'ECONNREFUSED'),
    );
  });
}

function takeOver(path: string): Promise<Server | undefined> {
  rmSync(path, { force: true });
  return listen(path);
}
