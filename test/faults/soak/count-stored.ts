/** How many envelopes the ndjson sink stored, and whether any item twice, without parsing gigabytes or keeping them. */
import { readdir, readFile, rm } from 'node:fs/promises';
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

/** A file of the sink appears whole and never changes, so whoever has counted it may remove it: an hour's files need not fit the disk. */
export class StoredCounter {
  readonly #dir: string;
  readonly #seen = new Seen();
  readonly #count: StoredCount = { envelopes: 0, items: 0, double: 0 };

  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Counts the files that are there and removes them.
   * @returns what was found so far
   * @throws for a record that is not of the load
   */
  async take(): Promise<StoredCount> {
    const names = await readdir(this.#dir, { recursive: true });
    for (const path of names
      .filter((name) => name.endsWith('.ndjson'))
      .map((name) => join(this.#dir, name))) {
      for (const head of headsOf(await readFile(path))) this.#add(head);
      await rm(path);
    }
    return { ...this.#count };
  }

  #add(head: string): void {
    const [, digits, index] = HEAD.exec(head) ?? [];
    const item = Number(index);
    if (digits === undefined || item >= ITEMS_MAX) throw new Error(`not a record of the load: ${head}`);
    const before = this.#seen.add(Number.parseInt(digits, 16), item);
    if (before === 0) this.#count.envelopes++;
    if ((before & (1 << item)) === 0) this.#count.items++;
    else this.#count.double++;
  }
}
