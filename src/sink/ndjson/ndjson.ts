import { join } from 'node:path';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { type FolderLock, lockFolder } from '../../lib/files/folder-lock.ts';
import type { Log } from '../../lib/log.ts';
import type { Sink, StreamSink } from '../sink.ts';
import { StreamJournal } from './stream-journal.ts';

/** Another processor writes to the folder. */
export class FolderTakenError extends Error {
  override name = 'FolderTakenError';
}

/** Files of one JSON object a line below a folder that belongs to this process. */
export class NdjsonSink implements Sink {
  readonly promise = 'exactly once';
  readonly #dir: string;
  readonly #lock: FolderLock;
  readonly #parts: { clock: Clock; log: Log };

  private constructor(dir: string, lock: FolderLock, parts: { clock: Clock; log: Log }) {
    this.#dir = dir;
    this.#lock = lock;
    this.#parts = parts;
  }

  /** @throws FolderTakenError when another process has the folder */
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

  close(): Promise<void> {
    return this.#lock.release();
  }
}
