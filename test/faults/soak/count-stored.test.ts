import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../../support/servers.ts';
import { countStored } from './count-stored.ts';

const record = (id: number, index = 0): string =>
  `{"project_id":"77","event_id":"${id.toString(16).padStart(32, '0')}","item_index":${index},"type":"event","payload":{"event_id":"ff","x":"${'y'.repeat(500)}"}}\n`;

it('counts envelopes and items over all files, and what stands there twice', () => {
  const dir = temporaryFolder('count');
  mkdirSync(join(dir, 'a'));
  writeFileSync(join(dir, 'a', '1.ndjson'), record(1) + record(1, 1) + record(2));
  writeFileSync(join(dir, 'a', '2.ndjson'), record(3) + record(0xffff_ffff));
  writeFileSync(join(dir, 'a', '1.idx'), 'no record');
  expect(countStored(dir)).toEqual({ envelopes: 4, items: 5, double: 0 });
  writeFileSync(join(dir, 'a', '3.ndjson'), record(1, 1));
  expect(countStored(dir)).toEqual({ envelopes: 4, items: 5, double: 1 });
  writeFileSync(join(dir, 'a', '4.ndjson'), '{"type":"heartbeat"}\n');
  expect(() => countStored(dir)).toThrow('not a record of the load');
  rmSync(dir, { recursive: true });
});
