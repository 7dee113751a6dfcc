/** How many envelopes a folder of ndjson files holds, and whether any item stands there twice, without parsing gigabytes. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** `{"project_id":"…","event_id":"…","item_index":0,`: how every record begins. The load's ids differ in their last eight digits. */
const HEAD = /^\{"project_id":"[^"]*","event_id":"[0-9a-f]{24}([0-9a-f]{8})","item_index":(\d+),/;
const HEAD_BYTES_MAX = 256;
const ITEMS_MAX = 16;
const LINE_FEED = 10;

export type StoredCount = { envelopes: number; items: number; double: number };

function* headsOf(bytes: Buffer): Generator<string> {
  for (let at = 0; at < bytes.length; at = bytes.indexOf(LINE_FEED, at) + 1 || bytes.length)
    yield bytes.toString('latin1', at, at + HEAD_BYTES_MAX);
}

/** @throws for a record that is not of the load */
export function countStored(dir: string): StoredCount {
  const items = new Set<number>();
  const envelopes = new Set<number>();
  let double = 0;
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ndjson')))
    for (const head of headsOf(readFileSync(join(dir, file)))) {
      const [, digits, index] = HEAD.exec(head) ?? [];
      if (digits === undefined) throw new Error(`not a record of the load: ${head}`);
      const id = Number.parseInt(digits, 16);
      const item = id * ITEMS_MAX + Number(index);
      if (items.has(item)) double++;
      items.add(item);
      envelopes.add(id);
    }
  return { envelopes: envelopes.size, items: items.size, double };
}
