import { createHash } from 'node:crypto';
import { mkdirSync, realpathSync, rmSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export type FolderLock = { release(): Promise<void> };

/**
 * One process per folder, by a lock that the kernel frees when its holder dies for any reason: a
 * listening Unix socket named after the folder. Linux has names without a file (abstract sockets).
 * Elsewhere a connection attempt tells a stale file from a live one.
 *
 * @param purpose lets one folder carry several locks
 * @returns undefined when another process of this machine (on Linux: of this network namespace)
 * holds it
 */
export async function lockFolder(dir: string, purpose: string): Promise<FolderLock | undefined> {
  mkdirSync(dir, { recursive: true });
  const hash = createHash('sha256').update(realpathSync(dir)).digest('hex');
  const name = `sluice-${purpose}-${hash.slice(0, 32)}`;
  const abstract = process.platform === 'linux';
  const path = abstract ? `\0${name}` : join(tmpdir(), `${name}.sock`);
  const server =
    (await listen(path)) ?? (abstract || (await answers(path)) ? undefined : await takeOver(path));
  if (!server) return undefined;
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
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
