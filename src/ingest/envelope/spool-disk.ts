/**
 * The disk of the spool files, and the only way to it. A disk may hang: a call to it does not
 * return for minutes, or ever, and keeps the thread of libuv's pool that it runs on. Inflaters and
 * name look-ups run there too. So at most SPOOL_CALLS_MAX calls are under way, fewer than there are
 * threads (POOL_THREADS), and the others wait here. While one hangs, no further file is begun.
 */
import { randomBytes } from 'node:crypto';
import { close, open, unlink } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../../lib/assert.ts';
import type { Clock } from '../../lib/clock.ts';
import { ANSWER_MS_MAX } from '../../limits.ts';

/** Threads of a worker's pool, which its disk, its inflaters and its name look-ups share. */
export const POOL_THREADS = 8;
/** Calls that are under way together. */
const SPOOL_CALLS_MAX = 4;
/** A call that takes longer makes its request too late anyway. */
const SPOOL_CALL_MS_MAX = ANSWER_MS_MAX;
assert(SPOOL_CALLS_MAX < POOL_THREADS, 'a disk that hangs leaves threads to the others');

/** Names that {@link SpoolDisk.open} gives. */
const NAME = /^sluice-spool-\d+-[0-9a-f]{16}$/;

/** Makes one call to the file system, and says when it has returned. */
type Call = (returned: () => void) => void;
/** Node's way: the value means nothing beside an error. */
export type Done<T> = (error: NodeJS.ErrnoException | null, value: T) => void;

export class SpoolDisk {
  readonly #folder: string;
  readonly #clock: Pick<Clock, 'monotonic'>;
  /** When each call that has not returned was made, the oldest first. */
  readonly #underWay = new Set<{ since: number }>();
  readonly #waiting: Call[] = [];

  constructor(folder: string, clock: Pick<Clock, 'monotonic'>) {
    this.#folder = folder;
    this.#clock = clock;
  }

  /** A call has not returned for SPOOL_CALL_MS_MAX. */
  get hangs(): boolean {
    return this.#oldestMs > SPOOL_CALL_MS_MAX;
  }

  /**
   * A call has not returned for half of SPOOL_CALL_MS_MAX: the disk is why a request is late now,
   * and not the machine.
   */
  get isLate(): boolean {
    return this.#oldestMs > SPOOL_CALL_MS_MAX / 2;
  }

  get #oldestMs(): number {
    for (const { since } of this.#underWay) return this.#clock.monotonic() - since;
    return 0;
  }

  /** Makes the call now or when others have returned. */
  run(call: Call): void {
    if (this.#underWay.size < SPOOL_CALLS_MAX) this.#make(call);
    else this.#waiting.push(call);
  }

  /**
   * A file that has no name any more, so that the kernel cleans up after us however we die. A
   * worker that ends between the two calls leaves the name of an empty file: see
   * {@link removeLeftNames}. Must be called through {@link run}.
   */
  open(done: Done<number>): void {
    const path = join(this.#folder, `sluice-spool-${process.pid}-${randomBytes(8).toString('hex')}`);
    open(path, 'wx+', 0o600, (error, fd) => {
      if (error) return done(error, fd);
      unlink(path, (failure) => {
        if (failure && failure.code !== 'ENOENT') close(fd, () => done(failure, fd));
        else done(null, fd);
      });
    });
  }

  /**
   * Removes the names that workers have left in the folder. It may take a name that a running
   * worker is about to remove; that worker needs only the file.
   */
  async removeLeftNames(): Promise<void> {
    try {
      // One that belongs to another user stays.
      for await (const { name } of await opendir(this.#folder))
        if (NAME.test(name)) this.run((returned) => unlink(join(this.#folder, name), returned));
    } catch {
      // A folder that cannot be read is told to the requests that need it, and by `doctor`.
    }
  }

  #make(call: Call): void {
    const mine = { since: this.#clock.monotonic() };
    this.#underWay.add(mine);
    call(() => {
      this.#underWay.delete(mine);
      const next = this.#waiting.shift();
      if (next) this.#make(next);
    });
  }
}
