import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../../support/servers.ts';
import { StoredCounter } from './count-stored.ts';

const record = (id: number, index = 0): string =>
  `{"project_id":"77","event_id":"${id.toString(16).padStart(32, '0')}","item_index":${index},"type":"event","payload":{"event_id":"ff","x":"${'y'.repeat(500)}"}}\n`;

it('counts envelopes and items over all files, and what was stored twice, also in a file that it has removed', async () => {
  const dir = temporaryFolder('count');
  mkdirSync(join(dir, 'a'));
  const write = (name: string, lines: string): void => writeFileSync(join(dir, 'a', name), lines);
  const counter = new StoredCounter(dir);
  write('1.ndjson', record(1) + record(1, 1) + record(2));
  write('2.ndjson', record(3) + record(0xffff_ffff));
  write('1.idx', 'no record');
  expect(await counter.take()).toEqual({ envelopes: 4, items: 5, double: 0 });
  expect(['1.ndjson', '2.ndjson', '1.idx'].map((name) => existsSync(join(dir, 'a', name)))).toEqual([
    false,
    false,
    true,
  ]);
  write('3.ndjson', record(1, 1) + record(4));
  expect(await counter.take()).toEqual({ envelopes: 5, items: 6, double: 1 });
  write('4.ndjson', '{"type":"heartbeat"}\n');
  await expect(counter.take()).rejects.toThrow('not a record of the load');
  rmSync(dir, { recursive: true });
});
