import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { assert } from '../../lib/assert.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import {
  FRAME_MEMORY_MS,
  INDEX_PRUNE_COUNT,
  RECEIVED_DISORDER_MS_MAX,
  RESEND_WINDOW_MS,
  SINK_BLOCK_BYTES,
} from '../../limits.ts';
import { KeyTable } from '../key-table.ts';
import type { StreamSink } from '../sink.ts';
import { Tally } from '../tally.ts';
import { orUnavailable } from '../unavailable.ts';
import { type BatchJournal, NdjsonBatch } from './batch.ts';
import { ensureFolder, exists, move, namesIn, remove, syncFolder, writeSynced } from './folder.ts';
import { type BatchIndex, decodeIndex, encodeIndex } from './index-file.ts';
import {
  batchNumber,
  dataNumber,
  dataPath,
  isDateFolder,
  isUncommitted,
  JOURNAL_FOLDER,
  unfinishedPath,
} from './journal-names.ts';
import { loadTallyFile, saveTallyFile } from './tally.ts';

const DAY_MS = 86_400_000;

/** An index on the disk. `storedAt`: by the monotonic clock. Other times: Unix milliseconds. */
type KeptIndex = { n: number; committedAt: number; storedAt: number; receivedAt: number };

/**
 * One stream's part of the ndjson sink. Its folder has these files:
 *
 *     <stream>/<date>/<n>.ndjson     the lines of batch n; appears whole, by rename, never changes
 *     <stream>/journal/<n>.idx       its index: keys of what is stored, and its counts
 *     <stream>/journal/tally.json    the counts of batches whose indexes are gone
 *     <stream>/journal/<n>.tmp       the lines of batch n until it is committed
 *     <stream>/journal/*.tmp         other unfinished files, which mean nothing
 *
 * A batch is written to <n>.tmp and <n>.idx.tmp, and both are synced. Then the index is renamed.
 * Then the data is renamed, which commits the batch. A process that is killed between the two
 * renames leaves an index and <n>.tmp; the next start removes the index, then <n>.tmp. An index
 * with neither data nor <n>.tmp was committed, and an operator has removed its data. Only a
 * stream's newest index can be uncommitted. A batch without lines (all its items were dead letters
 * or resends) has no data, and its index alone commits it.
 *
 * On file systems with a journal, a power cut keeps this order: a name changes there only after all
 * earlier changes, and a rename between folders happens wholly or not at all. On other file
 * systems, another sync before the data's rename would help only in part (bench/HISTORY.md).
 *
 * - A frame's key is kept for FRAME_MEMORY_MS after the frame was stored or this process began,
 *   whichever is later. The monotonic clock measures this time, because it stands still while the
 *   machine sleeps.
 * - An item's key is kept until data is stored that was received some fifteen minutes later.
 * - An index is kept while one of its keys is needed or its counts are not in tally.json. An index
 *   of an earlier process begins with the age that it had when the newest index was committed.
 */
export class StreamJournal implements StreamSink, BatchJournal {
  readonly #dir: string;
  readonly #journal: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #frames = new KeyTable(() => this.#framesFrom);
  readonly #resends = new KeyTable(() => this.#resendsFrom);
  /** Memory for lines, allocated when it is first needed: many streams are idle. */
  #block: Buffer | undefined;
  /** Indexes on the disk, oldest first. */
  #kept: KeptIndex[] = [];
  /** The tally in tally.json. */
  readonly #saved = new Tally();
  #next = 1;
  #committedAt = 0;
  #receivedAt = 0;
  /** Folders whose newest names may not be durable yet. */
  readonly #unsynced = new Set<string>();
  #open = false;

  private constructor(dir: string, { clock, log }: { clock: Clock; log: Log }) {
    this.#dir = dir;
    this.#journal = join(dir, JOURNAL_FOLDER);
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Opens a stream's journal: removes unfinished files and reads what is stored.
   * @throws UnavailableError when the folder cannot be read or written, JournalError when an index
   * is damaged
   */
  static async open(dir: string, parts: { clock: Clock; log: Log }): Promise<StreamJournal> {
    const journal = new StreamJournal(dir, parts);
    await journal.#load();
    return journal;
  }

  // ---- Stored keys ----

  get #framesFrom(): number {
    return this.#clock.monotonic() - FRAME_MEMORY_MS;
  }
  get #resendsFrom(): number {
    return this.#receivedAt - RESEND_WINDOW_MS - RECEIVED_DISORDER_MS_MAX;
  }

  entriesStored(frame: Buffer): number {
    return this.#frames.get(frame)?.value ?? 0;
  }

  storedAt(item: Buffer): number | undefined {
    return this.#resends.get(item)?.time;
  }

  #learn(n: number, { committedAt, frames, resends }: BatchIndex): void {
    let receivedAt = 0;
    const storedAt = this.#clock.monotonic();
    for (const { key, entries } of frames) this.#frames.set(key, storedAt, entries);
    for (const resend of resends) {
      this.#resends.set(resend.key, resend.receivedAt);
      receivedAt = Math.max(receivedAt, resend.receivedAt);
    }
    receivedAt = Math.min(receivedAt, committedAt); // a worker's clock may be ahead
    this.#committedAt = Math.max(this.#committedAt, committedAt);
    this.#receivedAt = Math.max(this.#receivedAt, receivedAt);
    this.#kept.push({ n, committedAt, storedAt, receivedAt });
  }

  // ---- Start ----

  async #load(): Promise<void> {
    await ensureFolder(this.#journal);
    const names = await namesIn(this.#journal);
    const { upTo, counts } = await loadTallyFile(this.#journal);
    this.#saved.addAll(counts);
    const numbers = names.map(batchNumber).filter((n) => n !== undefined);
    numbers.sort((a, b) => a - b);
    for (const n of numbers) {
      if (n <= upTo) await remove(this.#indexPath(n));
      else await this.#loadIndex(n, n === numbers.at(-1));
    }
    // The .tmp files are removed after the indexes are read: <n>.tmp of the newest index shows
    // whether that index was committed.
    for (const name of names) if (name.endsWith('.tmp')) await remove(join(this.#journal, name));
    for (const kept of this.#kept) kept.storedAt -= this.#committedAt - kept.committedAt;
    const known = Math.max(upTo, this.#kept.at(-1)?.n ?? 0);
    this.#next = Math.max(known, await this.#newestData(known > 0 ? 1 : Infinity)) + 1;
  }

  async #loadIndex(n: number, newest: boolean): Promise<void> {
    const path = this.#indexPath(n);
    const bytes = await orUnavailable(`${path} cannot be read`, () => readFile(path));
    const index = decodeIndex(bytes, path);
    if (!newest || !(await isUncommitted(this.#dir, n, index))) return this.#learn(n, index);
    await remove(path);
    // The removal must be durable before <n>.tmp is removed. Otherwise a power cut could bring the
    // index back without its <n>.tmp, and the index would count as committed.
    await syncFolder(this.#journal);
  }

  /**
   * Returns the largest number of a data file, so that no new file gets a number that is in use.
   * Looks only in the newest day folders, `folders` of them.
   */
  async #newestData(folders: number): Promise<number> {
    const dates = (await namesIn(this.#dir)).filter(isDateFolder).sort();
    let newest = 0;
    for (const date of dates.slice(-folders))
      for (const name of await namesIn(join(this.#dir, date))) newest = Math.max(newest, dataNumber(name));
    return newest;
  }

  // ---- Batches ----

  begin(): NdjsonBatch {
    assert(!this.#open, 'a stream has one batch at a time');
    this.#open = true;
    return new NdjsonBatch(this);
  }

  ended(): void {
    this.#open = false;
  }

  get block(): Buffer {
    this.#block ??= Buffer.allocUnsafeSlow(SINK_BLOCK_BYTES);
    return this.#block;
  }

  get unfinishedPath(): string {
    return unfinishedPath(this.#dir, this.#next);
  }

  #indexPath(n: number): string {
    return join(this.#journal, `${n}.idx`);
  }

  async commit(found: Omit<BatchIndex, 'data' | 'committedAt'>, newest: number | undefined): Promise<void> {
    const n = this.#next;
    const committedAt = Math.max(this.#clock.now(), this.#committedAt);
    const data = newest === undefined ? null : dataPath(n, this.#dayOf(newest));
    const index = { ...found, data, committedAt };
    const path = this.#indexPath(n);
    await writeSynced(`${path}.tmp`, encodeIndex(index));
    if (data !== null) await ensureFolder(dirname(join(this.#dir, data)));
    await move(`${path}.tmp`, path);
    if (data !== null) await move(this.unfinishedPath, join(this.#dir, data));
    // The batch is stored now, and must be known as stored even when a later step fails.
    this.#next++;
    this.#learn(n, index);
    this.#unsynced.add(this.#journal);
    if (data !== null) this.#unsynced.add(dirname(join(this.#dir, data)));
    await this.settle();
    await this.#prune();
  }

  /**
   * Returns a moment of the day under which a batch is filed. This day is never before the last
   * batch's day, unless our clock was ahead at the last batch. The clock was ahead if it is now
   * more than a day behind that batch, and no line of this batch is more than
   * RECEIVED_DISORDER_MS_MAX ahead of it.
   */
  #dayOf(newest: number): number {
    const now = this.#clock.now();
    const wasAhead = this.#committedAt - now > DAY_MS && newest <= now + RECEIVED_DISORDER_MS_MAX;
    return wasAhead ? now : Math.max(now, this.#committedAt);
  }

  /**
   * Syncs folders that an earlier commit could not sync.
   * @throws UnavailableError
   */
  async settle(): Promise<void> {
    for (const dir of this.#unsynced) {
      // A folder that is gone is not synced: the files of a day may be removed, and the folder with
      // them.
      if (dir === this.#journal || (await exists(dir))) await syncFolder(dir);
      this.#unsynced.delete(dir);
    }
  }

  // ---- Old indexes ----

  async #prune(): Promise<void> {
    const isNeeded = ({ storedAt, receivedAt }: KeptIndex): boolean =>
      storedAt >= this.#framesFrom || receivedAt >= this.#resendsFrom;
    const needed = this.#kept.findIndex(isNeeded); // never -1: the newest index is needed
    if (needed < INDEX_PRUNE_COUNT) return;
    const old = this.#kept.slice(0, needed);
    try {
      await this.#moveToTally(old);
      for (const { n } of old) await remove(this.#indexPath(n));
    } catch (error) {
      this.#log.warn({ dir: this.#dir, err: error }, 'sink: old indexes could not be removed');
    }
  }

  async #moveToTally(old: readonly KeptIndex[]): Promise<void> {
    const tally = new Tally();
    tally.addAll(this.#saved.toCounts());
    for (const { n } of old) tally.addAll(await this.#countsOf(n));
    tally.forgetOldMonths();
    await saveTallyFile(this.#journal, old.at(-1)?.n ?? 0, tally);
    this.#saved.replaceBy(tally);
    this.#kept = this.#kept.slice(old.length);
  }

  async #countsOf(n: number): Promise<BatchIndex['tally']> {
    const path = this.#indexPath(n);
    return decodeIndex(await readFile(path), path).tally;
  }
}
