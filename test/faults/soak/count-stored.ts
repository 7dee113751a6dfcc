/** How many envelopes a folder of ndjson files holds, and whether any item stands there twice, without parsing gigabytes. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** `{"project_id":"…","event_id":"…","item_index":0,`: how every record begins. The load's ids differ in their last eight digits. */
const HEAD = /^\{"project_id":"[^"]*","event_id":"[0-9a-f]{24}([0-9a-f]{8})","item_index":(\d+),/;
const HEAD_BYTES_MAX = 256;
const ITEMS_MAX = 16;
const PAGE_BITS = 16;
const LINE_FEED = 10;

export type StoredCount = { envelopes: number; items: number; double: number };

function* headsOf(bytes: Buffer): Generator<string> {
  for (let at = 0; at < bytes.length; at = bytes.indexOf(LINE_FEED, at) + 1 || bytes.length)
    yield bytes.toString('latin1', at, at + HEAD_BYTES_MAX);
}

/** Items by envelope: a bit for each. The ids of a load are neighbours; a Set of them ends at 16.7 million. */
class Seen {
  readonly #pages = new Map<number, Uint16Array>();

  /** @returns the bits of the items that were there before */
  add(id: number, item: number): number {
    const page = this.#pages.get(id >>> PAGE_BITS) ?? new Uint16Array(1 << PAGE_BITS);
    this.#pages.set(id >>> PAGE_BITS, page);
    const place = id & ((1 << PAGE_BITS) - 1);
    const before = page[place] as number;
    page[place] = before | (1 << item);
    return before;
  }
}

/** @throws for a record that is not of the load */
export function countStored(dir: string): StoredCount {
  const seen = new Seen();
  const count = { envelopes: 0, items: 0, double: 0 };
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ndjson')))
    for (const head of headsOf(readFileSync(join(dir, file)))) {
      const [, digits, index] = HEAD.exec(head) ?? [];
      const item = Number(index);
      if (digits === undefined || item >= ITEMS_MAX) throw new Error(`not a record of the load: ${head}`);
      const before = seen.add(Number.parseInt(digits, 16), item);
      if (before === 0) count.envelopes++;
      if ((before & (1 << item)) === 0) count.items++;
      else count.double++;
    }
  return count;
}
