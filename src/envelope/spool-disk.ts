/**
 * The disk of the spool files, and the only way to it. A disk may hang: a call to it does not
 * return for minutes, or ever, and keeps the thread of libuv's pool that it runs on. Decoders and
 * name look-ups run there too. So at most SPOOL_CALLS_MAX calls are under way, fewer than there are
 * threads (POOL_THREADS), and the others wait here. While one hangs, no further file is begun.
 */
import { randomBytes } from 'node:crypto';
import { close, open, unlink } from 'node:fs';
import { join } from 'node:path';
import { assert } from '../lib/assert.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { ANSWER_MS_MAX } from '../limits.ts';

/** Threads of a worker's pool, which its disk, its decoders and its name look-ups share. */
export const POOL_THREADS = 8;
/** Calls that are under way together. */
const SPOOL_CALLS_MAX = 4;
/** A call that takes longer makes its request too late anyway. */
const SPOOL_CALL_MS_MAX = ANSWER_MS_MAX;
assert(SPOOL_CALLS_MAX < POOL_THREADS, 'a disk that hangs leaves threads to the others');

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

  constructor(folder: string, clock: Pick<Clock, 'monotonic'> = systemClock) {
    this.#folder = folder;
    this.#clock = clock;
  }

  /** A call has not returned for SPOOL_CALL_MS_MAX. */
  get hangs(): boolean {
    return this.#oldestMs > SPOOL_CALL_MS_MAX;
  }

  /** ... for half of that: the disk is why a request is late now, and not the machine. */
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
   * A file that has no name any more, so that the kernel cleans up after us however we die: only a
   * worker that is killed between the two calls leaves one behind, and that is empty. Must be
   * called through {@link run}.
   */
  open(done: Done<number>): void {
    const path = join(this.#folder, `sluice-spool-${process.pid}-${randomBytes(8).toString('hex')}`);
    open(path, 'wx+', 0o600, (error, fd) => {
      if (error) done(error, fd);
      else unlink(path, (failure) => (failure ? close(fd, () => done(failure, fd)) : done(null, fd)));
    });
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
