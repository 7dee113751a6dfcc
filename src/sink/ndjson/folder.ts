/** The few file operations of the journal. Every fault of the disk becomes an UnavailableError. */
import { access, mkdir, open, readdir, rename, rm, rmdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { orUnavailable } from '../unavailable.ts';

/** Makes the names in a folder durable, on file systems where this takes a call of its own. */
export function syncFolder(dir: string): Promise<void> {
  return orUnavailable(`${dir} cannot be synced`, async () => {
    const handle = await open(dir, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  });
}

/** Creates the folder durably, if it is missing. */
export function ensureFolder(dir: string): Promise<void> {
  return orUnavailable(`${dir} cannot be created`, async () => {
    const first = await mkdir(dir, { recursive: true });
    if (first === undefined) return;
    for (let made = dir; made.length >= first.length; made = dirname(made)) await syncFolder(dirname(made));
  });
}

/**
 * Writes a whole file and syncs it.
 * @param path a name that no reader uses
 */
export function writeSynced(path: string, bytes: Uint8Array): Promise<void> {
  return orUnavailable(`${path} cannot be written`, async () => {
    const handle = await open(path, 'w');
    try {
      await handle.writeFile(bytes);
      await handle.sync();
    } finally {
      await handle.close();
    }
  });
}

export const move = (from: string, to: string): Promise<void> =>
  orUnavailable(`${to} cannot be written`, () => rename(from, to));

export const remove = (path: string): Promise<void> =>
  orUnavailable(`${path} cannot be removed`, () => rm(path, { force: true }));

/** Removes an empty folder. */
export const removeFolder = (path: string): Promise<void> =>
  orUnavailable(`${path} cannot be removed`, () => rmdir(path));

export const isFolder = (path: string): Promise<boolean> =>
  orUnavailable(`${path} cannot be looked at`, async () => (await stat(path)).isDirectory());

/** Whether the file exists. A fault of the disk is an UnavailableError. */
export function exists(path: string): Promise<boolean> {
  return orUnavailable(`${path} cannot be looked for`, async () => {
    try {
      await access(path);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
    }
  });
}

/** Returns the names in the folder; none when the folder does not exist. */
export function namesIn(dir: string): Promise<string[]> {
  return orUnavailable(`${dir} cannot be read`, async () => {
    try {
      return await readdir(dir);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  });
}
