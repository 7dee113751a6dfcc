/** A disk that can be full: a small tmpfs with a ballast file. Only root can mount one. */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, rmdirSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './servers.ts';

const BLOCK = Buffer.alloc(64 * 1024);

/** Whether this user may mount one. */
export function mayMount(): boolean {
  try {
    new SmallDisk(1).close();
    return true;
  } catch {
    return false;
  }
}

export class SmallDisk {
  readonly dir = temporaryFolder('disk');
  readonly #ballast = join(this.dir, 'ballast');

  /** @throws when this user may not mount */
  constructor(megabytes: number) {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', this.dir], { stdio: 'pipe' });
  }

  /** Leaves not a single byte. */
  fill(): void {
    const file = openSync(this.#ballast, 'a');
    try {
      for (let piece = BLOCK; piece.length > 0; piece = piece.subarray(0, piece.length >> 1))
        while (this.#writes(file, piece));
    } finally {
      closeSync(file);
    }
  }

  #writes(file: number, piece: Buffer): boolean {
    try {
      return writeSync(file, piece) === piece.length;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOSPC') return false;
      throw error;
    }
  }

  free(): void {
    rmSync(this.#ballast, { force: true });
  }

  close(): void {
    execFileSync('umount', [this.dir], { stdio: 'pipe' });
    rmdirSync(this.dir);
  }
}
