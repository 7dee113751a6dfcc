/** Paths below a stream's folder. Data is in `<date>/<n>.ndjson`, all else in `journal/`. */
import { join } from 'node:path';
import { exists } from './folder.ts';
import type { BatchIndex } from './index-file.ts';

export const JOURNAL_FOLDER = 'journal';
const INDEX_NAME = /^(\d+)\.idx$/;
const DATE_NAME = /^\d{4}-\d\d-\d\d$/;
const DATA_NAME = /^(\d+)\.ndjson$/;
/** Digits of a batch's number in a file name. Leading zeros sort the names by batch. */
const DIGITS = 9;

export const isDateFolder = (name: string): boolean => DATE_NAME.test(name);

/** Returns the number of the batch that an index file belongs to; undefined for other names. */
export function batchNumber(name: string): number | undefined {
  const match = INDEX_NAME.exec(name);
  return match ? Number(match[1]) : undefined;
}

/** Returns the number of the batch that a data file holds; 0 for other names. */
export const dataNumber = (name: string): number => Number(DATA_NAME.exec(name)?.[1] ?? 0);

/**
 * Returns the path of a batch's data file below the stream's folder.
 * @param at a moment of the day under which the batch is filed, Unix milliseconds
 */
export const dataPath = (n: number, at: number): string =>
  join(new Date(at).toISOString().slice(0, 10), `${String(n).padStart(DIGITS, '0')}.ndjson`);

/** Returns the path of a batch's lines until the rename that commits the batch. */
export const unfinishedPath = (streamDir: string, n: number): string =>
  join(streamDir, JOURNAL_FOLDER, `${n}.tmp`);

/**
 * Whether the process was killed before it renamed a batch's data. Only the batch of a stream's
 * newest index can be in this state. Missing data alone does not prove it, because an operator may
 * have removed the data. Lines at their unfinished path prove it. The data is looked for first, so
 * the answer is right even if a processor renames the data meanwhile.
 */
export async function isUncommitted(streamDir: string, n: number, { data }: BatchIndex): Promise<boolean> {
  if (data === null || (await exists(join(streamDir, data)))) return false;
  return exists(unfinishedPath(streamDir, n));
}
