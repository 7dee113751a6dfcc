/** What `sluice load --verify` reads of a sink, one reader for each kind of sink. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { readPostgresStored } from '../../sink/postgres/stored.ts';
import { readTallies } from '../../sink/tally.ts';
import { UsageError } from '../session.ts';

export type StoredItem = { projectId: string; eventId: string; index: number; copies: number };

/** As bench/load/verify/stored.ts wants it. */
export type StoredReader = {
  tally(): Promise<ReadonlyMap<string, number>>;
  scan(since: Date, onItem: (item: StoredItem) => void): Promise<void>;
  close(): Promise<void>;
};

const LINE_FEED = 0x0a;
/** How every record of an item begins; heartbeats have no event id. */
const HEAD = /^\{"project_id":"([^"]*)","event_id":"([^"]*)","item_index":(\d+),/;
const HEAD_BYTES_MAX = 256;

/** Without parsing gigabytes. */
function scanLines(bytes: Buffer, onItem: (item: StoredItem) => void): void {
  for (let at = 0; at < bytes.length; at = bytes.indexOf(LINE_FEED, at) + 1 || bytes.length) {
    const [, projectId, eventId, index] = HEAD.exec(bytes.toString('latin1', at, at + HEAD_BYTES_MAX)) ?? [];
    if (projectId !== undefined && eventId !== undefined)
      onItem({ projectId, eventId, index: Number(index), copies: 1 });
  }
}

function ndjsonReader(dir: string): StoredReader {
  return {
    tally: () => readTallies(dir),
    scan: async (since, onItem) => {
      const names = await readdir(dir, { recursive: true });
      for (const name of names.filter((one) => one.endsWith('.ndjson'))) {
        const path = join(dir, name);
        // A file never changes once it is there.
        if ((await stat(path)).mtimeMs >= since.getTime()) scanLines(await readFile(path), onItem);
      }
    },
    close: async () => undefined,
  };
}

/**
 * Opens a sink for reading.
 * @param sink as in SLUICE_SINK
 * @throws UsageError when it is of a kind that cannot be looked into
 */
export function openStored(sink: string | undefined): StoredReader {
  if (sink === undefined)
    throw new UsageError('--verify: --sink or SLUICE_SINK must say where the processor stores.');
  if (/\s/.test(sink))
    throw new UsageError('--sink: name one of the sinks in which the items are looked up.');
  if (sink.startsWith('ndjson:')) return ndjsonReader(sink.slice('ndjson:'.length));
  if (/^postgres(ql)?:\/\//.test(sink)) return readPostgresStored(sink);
  throw new UsageError(`--sink: ndjson:<folder> or one postgres:// URL, not ${sink.split(':', 1)[0]}:…`);
}
