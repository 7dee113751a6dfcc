/**
 * The tally of an ndjson folder: the counts of accepted envelopes, kept beside the data. `sluice
 * usage reconcile` reads them.
 *
 * Each batch's index has the batch's counts, so they are committed together with the data. Before
 * indexes are removed, their counts go to `tally.json`, which also has the number of the last batch
 * that it includes. So a stream's tally is that file plus the indexes of later batches. A running
 * processor may move counts while a reader reads. The reader then finds that the file has changed,
 * and reads again.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { Tally, type TallyCounts, type TallyOfMonth } from '../tally.ts';
import { move, namesIn, syncFolder, writeSynced } from './folder.ts';
import { decodeIndex, JournalError } from './index-file.ts';
import { batchNumber, isUncommitted, JOURNAL_FOLDER } from './journal-names.ts';

const TALLY_FILE = 'tally.json';
const READ_TRIES_MAX = 20;

const fileSchema = z.object({
  v: z.literal(1),
  upTo: z.int().min(0),
  counts: z.record(z.string(), z.record(z.string(), z.tuple([z.number(), z.number()]))),
});

/**
 * Reads a journal's `tally.json`. Without this file, no batch is included and there are no counts.
 * @throws JournalError
 */
export async function loadTallyFile(journal: string): Promise<{ upTo: number; counts: TallyCounts }> {
  const path = join(journal, TALLY_FILE);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { upTo: 0, counts: {} };
    throw error;
  }
  try {
    return fileSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new JournalError(`${path} is damaged`, { cause });
  }
}

/**
 * Replaces `tally.json` in one step.
 * @throws UnavailableError
 */
export async function saveTallyFile(journal: string, upTo: number, tally: Tally): Promise<void> {
  const path = join(journal, TALLY_FILE);
  await writeSynced(`${path}.tmp`, Buffer.from(JSON.stringify({ v: 1, upTo, counts: tally.toCounts() })));
  await move(`${path}.tmp`, path);
  await syncFolder(journal);
}

async function readIndexes(streamDir: string, upTo: number, tally: Tally): Promise<void> {
  const journal = join(streamDir, JOURNAL_FOLDER);
  const numbers = (await namesIn(journal)).map(batchNumber).filter((n) => n !== undefined && n > upTo);
  const newest = Math.max(...(numbers as number[]));
  for (const n of numbers as number[]) {
    const path = join(journal, `${n}.idx`);
    const index = decodeIndex(await readFile(path), path);
    if (n === newest) {
      if (await isUncommitted(streamDir, n, index)) continue;
      // During this check, a processor that starts may have removed an uncommitted index, then its
      // lines. So the index is looked for again: if it is gone, the reader starts anew.
      await stat(path);
    }
    tally.addAll(index.tally);
  }
}

/** Tries once to read a stream's tally; undefined when `tally.json` changed meanwhile. */
async function tryStream(streamDir: string): Promise<Tally | undefined> {
  const journal = join(streamDir, JOURNAL_FOLDER);
  const before = await loadTallyFile(journal);
  const tally = new Tally();
  tally.addAll(before.counts);
  try {
    await readIndexes(streamDir, before.upTo, tally);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
  const after = await loadTallyFile(journal);
  return after.upTo === before.upTo ? tally : undefined;
}

async function tallyOfStream(streamDir: string): Promise<Tally> {
  for (let tries = 0; tries < READ_TRIES_MAX; tries++) {
    const tally = await tryStream(streamDir);
    if (tally) return tally;
  }
  throw new JournalError(`${streamDir} changes too fast to be read`);
}

/**
 * Reads how many envelopes the sink in `dir` counted for each project, over all streams, in a month
 * (`YYYY-MM`) or in all months that it keeps.
 * @throws JournalError when the folder's journal is damaged; the file system's error when `dir`
 * cannot be read
 */
export async function readTallies(dir: string, month?: string): Promise<Map<string, number>> {
  const sums = new Map<string, number>();
  for (const tally of await talliesIn(dir))
    for (const [projectId, months] of Object.entries(tally.toCounts()))
      for (const [of, [count]] of Object.entries(months))
        if (month === undefined || of === month) sums.set(projectId, (sums.get(projectId) ?? 0) + count);
  return sums;
}

async function talliesIn(dir: string): Promise<Tally[]> {
  await stat(dir);
  const tallies: Tally[] = [];
  for (const stream of await namesIn(dir))
    if ((await stat(join(dir, stream))).isDirectory()) tallies.push(await tallyOfStream(join(dir, stream)));
  return tallies;
}

/**
 * Reads how many envelopes the sink in `dir` counted for a project in a month, over all streams.
 * Works while a processor runs.
 * @param month `YYYY-MM`
 * @throws JournalError when the folder's journal is damaged; the file system's error when `dir`
 * cannot be read
 */
export async function readTally(dir: string, projectId: string, month: string): Promise<TallyOfMonth> {
  const sum: TallyOfMonth = { count: 0, position: 0 };
  for (const tally of await talliesIn(dir)) {
    const { count, position } = tally.of(projectId, month);
    sum.count += count;
    sum.position = Math.max(sum.position, position);
  }
  return sum;
}
