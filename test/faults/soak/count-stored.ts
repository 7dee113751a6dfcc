/** How many envelopes a folder of ndjson files holds, and whether any item stands there twice, without parsing gigabytes. */
import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** `{"project_id":"…","event_id":"…","item_index":0,`: how every record begins. The load's ids differ in their last eight digits. */
const HEAD = /^\{"project_id":"[^"]*","event_id":"[0-9a-f]{24}([0-9a-f]{8})","item_index":(\d+),/;
const ITEMS_MAX = 16;

export type StoredCount = { envelopes: number; items: number; double: number };

export async function countStored(dir: string): Promise<StoredCount> {
  const items = new Set<number>();
  const envelopes = new Set<number>();
  let double = 0;
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ndjson')))
    for await (const line of createInterface({ input: createReadStream(join(dir, file)) })) {
      const [, digits = '', index = ''] = HEAD.exec(line) ?? [];
      if (!digits) throw new Error(`not a record of the load: ${line.slice(0, 120)}`);
      const id = Number.parseInt(digits, 16);
      const item = id * ITEMS_MAX + Number(index);
      if (items.has(item)) double++;
      items.add(item);
      envelopes.add(id);
    }
  return { envelopes: envelopes.size, items: items.size, double };
}
