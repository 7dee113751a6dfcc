/**
 * The disk of the spool files; all calls to the disk go through here. A disk may hang: a call then
 * does not return for minutes, or ever, and keeps its thread of libuv's pool. Inflaters and name
 * look-ups need these threads, too. So at most SPOOL_CALLS_MAX calls are under way, fewer than
 * there are threads (POOL_THREADS), and further calls wait here. While a call hangs, no new file is
 * begun.
 */
import { randomBytes } from 'node:crypto';
import { close, open, unlink } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../../lib/assert.ts';
import type { Clock } from '../../lib/clock.ts';
import { ANSWER_MS_MAX } from '../../limits.ts';

/**
 * Threads of libuv's pool in a worker. Calls to the disk, inflaters and name look-ups share them.
 */
export const POOL_THREADS = 8;
/** Number of calls to the disk that may be under way at the same time. */
const SPOOL_CALLS_MAX = 4;
/**
 * Time in ms after which a call counts as hanging. The answer to the request that needs the call is
 * overdue by then.
 */
const SPOOL_CALL_MS_MAX = ANSWER_MS_MAX;
assert(SPOOL_CALLS_MAX < POOL_THREADS, 'a disk that hangs leaves threads to the others');

/** Names of the files that {@link SpoolDisk.open} makes. */
const NAME = /^sluice-spool-\d+-[0-9a-f]{16}$/;

/** Makes one call to the file system, and calls `returned` when that call has returned. */
type Call = (returned: () => void) => void;
/** A callback as Node's functions take it: `value` means nothing when there is an error. */
export type Done<T> = (error: NodeJS.ErrnoException | null, value: T) => void;

export class SpoolDisk {
  readonly #folder: string;
  readonly #clock: Pick<Clock, 'monotonic'>;
  /**
   * Calls that have not returned, each with the time of its start (monotonic ms), the oldest first.
   */
  readonly #underWay = new Set<{ since: number }>();
  readonly #waiting: Call[] = [];

  constructor(folder: string, clock: Pick<Clock, 'monotonic'>) {
    this.#folder = folder;
    this.#clock = clock;
  }

  /** Whether a call has been under way for longer than SPOOL_CALL_MS_MAX. */
  get hangs(): boolean {
    return this.#oldestMs > SPOOL_CALL_MS_MAX;
  }

  /**
   * Whether a call has been under way for longer than half of SPOOL_CALL_MS_MAX. If so, the disk is
   * the reason for requests that are late, not a busy machine.
   */
  get isLate(): boolean {
    return this.#oldestMs > SPOOL_CALL_MS_MAX / 2;
  }

  get #oldestMs(): number {
    for (const { since } of this.#underWay) return this.#clock.monotonic() - since;
    return 0;
  }

  /** Makes the call now, or when fewer than SPOOL_CALLS_MAX calls are under way. */
  run(call: Call): void {
    if (this.#underWay.size < SPOOL_CALLS_MAX) this.#make(call);
    else this.#waiting.push(call);
  }

  /**
   * Opens a new file and removes its name, so that the kernel frees the file however the worker
   * ends. A worker that ends between these two calls leaves the name of an empty file: see {@link
   * removeLeftNames}. `open` must be called through {@link run}.
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
   * Removes the names of files that dead workers have left in the folder. Removing the name of a
   * running worker's file does no harm, because the worker needs only the open file.
   */
  async removeLeftNames(): Promise<void> {
    try {
      // A file that belongs to another user cannot be removed and stays.
      for await (const { name } of await opendir(this.#folder))
        if (NAME.test(name)) this.run((returned) => unlink(join(this.#folder, name), returned));
    } catch {
      // The error is ignored here: requests that need the folder report it, and so does `sluice
      // doctor`.
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
