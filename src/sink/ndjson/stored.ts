/** Reads files of the ndjson sink, for a load test that checks which items were stored. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { StoredItem, StoredReader } from '../sink.ts';
import { readTallies } from './tally.ts';

const LINE_FEED = 0x0a;
/** Matches the beginning of every record of an item. Heartbeats have no event id. */
const HEAD = /^\{"project_id":"([^"]*)","event_id":"([^"]*)","item_index":(\d+),/;
const HEAD_BYTES_MAX = 256;

/** Calls `onItem` for each item in these lines, with the place of its line feed. */
export function scanLines(bytes: Buffer, onItem: (item: StoredItem, lineEnd: number) => void): void {
  for (let at = 0; at < bytes.length; ) {
    const lineFeed = bytes.indexOf(LINE_FEED, at);
    const end = lineFeed < 0 ? bytes.length : lineFeed;
    const [, projectId, eventId, index] = HEAD.exec(bytes.toString('latin1', at, at + HEAD_BYTES_MAX)) ?? [];
    if (projectId !== undefined && eventId !== undefined)
      onItem({ projectId, eventId, index: Number(index), copies: 1 }, end);
    at = end + 1;
  }
}

/**
 * Returns a file's content if it was written at `since` or later; undefined for an older file or a
 * missing one. A file never changes once it exists.
 */
async function contentSince(path: string, since: Date): Promise<Buffer | undefined> {
  try {
    return (await stat(path)).mtimeMs >= since.getTime() ? await readFile(path) : undefined;
  } catch (error) {
    // Other programs may remove files at any time, also after their names were listed.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

export function readNdjsonStored(dir: string): StoredReader {
  return {
    tally: () => readTallies(dir),
    scan: async (since, onItem) => {
      const names = await readdir(dir, { recursive: true });
      for (const name of names.filter((one) => one.endsWith('.ndjson'))) {
        const content = await contentSince(join(dir, name), since);
        if (content) scanLines(content, onItem);
      }
    },
    close: async () => undefined,
  };
}
