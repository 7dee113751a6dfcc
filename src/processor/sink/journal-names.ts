/** Where things stand below a stream's folder: data in `<date>/<n>.ndjson`, everything else in `journal/`. */
import { join } from 'node:path';
import { exists } from './folder.ts';
import type { BatchIndex } from './index-file.ts';

export const JOURNAL_FOLDER = 'journal';
const INDEX_NAME = /^(\d+)\.idx$/;
const DATE_NAME = /^\d{4}-\d\d-\d\d$/;
const DATA_NAME = /^(\d+)\.ndjson$/;
/** So that names sort as the batches were written. */
const DIGITS = 9;

export const isDateFolder = (name: string): boolean => DATE_NAME.test(name);

/** The batch that an index file belongs to; undefined for other names. */
export function batchNumber(name: string): number | undefined {
  const match = INDEX_NAME.exec(name);
  return match ? Number(match[1]) : undefined;
}

/** The batch that a data file holds; 0 for other names. */
export const dataNumber = (name: string): number => Number(DATA_NAME.exec(name)?.[1] ?? 0);

/** @param at Unix milliseconds. @returns path below the stream's folder */
export const dataPath = (n: number, at: number): string =>
  join(new Date(at).toISOString().slice(0, 10), `${String(n).padStart(DIGITS, '0')}.ndjson`);

/** Where the lines of a batch stand until the rename that commits it. */
export const unfinishedPath = (streamDir: string, n: number): string =>
  join(streamDir, JOURNAL_FOLDER, `${n}.tmp`);

/**
 * Asked of a stream's newest index only: was its process killed before it renamed the data? That the data is missing
 * does not say so, since somebody may have taken it away; that its lines still stand where they were written does.
 * They are looked for last: beside a running processor "uncommitted" then holds for the moment of that look.
 */
export async function isUncommitted(streamDir: string, n: number, { data }: BatchIndex): Promise<boolean> {
  if (data === null || (await exists(join(streamDir, data)))) return false;
  return exists(unfinishedPath(streamDir, n));
}
