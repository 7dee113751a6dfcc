import { join } from 'node:path';
import { type Clock, DAY_MS, systemClock } from '../../lib/clock.ts';
import { type FolderLock, lockFolder } from '../../lib/files/folder-lock.ts';
import type { Log } from '../../lib/log.ts';
import type { Sink, StreamSink } from '../sink.ts';
import { isFolder, namesIn, remove, removeFolder } from './folder.ts';
import { dataNumber, isDateFolder } from './journal-names.ts';
import { StreamJournal } from './stream-journal.ts';

/** Thrown when another processor writes to the folder. */
export class FolderTakenError extends Error {
  override name = 'FolderTakenError';
}

/** Returns the end of a folder's day, Unix milliseconds; NaN when there is no such day. */
const endOf = (name: string): number => Date.parse(`${name}T00:00:00Z`) + DAY_MS;

/** Removes a day's files, and its folder unless an operator has put other files there. */
async function removeDay(dir: string): Promise<void> {
  for (const name of await namesIn(dir)) if (dataNumber(name) > 0) await remove(join(dir, name));
  if ((await namesIn(dir)).length === 0) await removeFolder(dir);
}

/** The ndjson sink: files with a JSON object on each line, in a folder of its own. */
export class NdjsonSink implements Sink {
  readonly guarantee = 'exactly once';
  readonly #dir: string;
  readonly #lock: FolderLock;
  readonly #parts: { clock: Clock; log: Log };

  private constructor(dir: string, lock: FolderLock, parts: { clock: Clock; log: Log }) {
    this.#dir = dir;
    this.#lock = lock;
    this.#parts = parts;
  }

  /**
   * Opens the sink and locks its folder.
   * @throws FolderTakenError when another process has locked the folder
   */
  static async lock(
    dir: string,
    { log, clock = systemClock }: { log: Log; clock?: Clock },
  ): Promise<NdjsonSink> {
    const lock = await lockFolder(dir, 'sink');
    if (!lock)
      throw new FolderTakenError(`another processor writes to ${dir}; a folder belongs to one at a time`);
    return new NdjsonSink(dir, lock, { clock, log });
  }

  open(stream: string): Promise<StreamSink> {
    return StreamJournal.open(join(this.#dir, stream), this.#parts);
  }

  /**
   * Removes the data files of each day that ended by this moment. A file belongs to the day on
   * which it was stored, and no record in it was received later. Journals stay.
   */
  async removeBefore(moment: number): Promise<void> {
    for (const stream of await namesIn(this.#dir)) {
      const dir = join(this.#dir, stream);
      if (!(await isFolder(dir))) continue;
      const days = (await namesIn(dir)).filter((name) => isDateFolder(name) && endOf(name) <= moment);
      for (const day of days) await removeDay(join(dir, day));
    }
  }

  close(): Promise<void> {
    return this.#lock.release();
  }
}
