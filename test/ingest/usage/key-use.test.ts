import { afterAll, expect, it, vi } from 'vitest';
import { KeyUse, readUse } from '../../../src/ingest/usage/key-use.ts';
import { PROJECT_KEYS_MAX } from '../../../src/limits.ts';
import type { Access } from '../../../src/projects/project-state.ts';
import { changeRecord } from '../../../src/projects/usage/records.ts';
import { log, makeBuckets, type NatsLink, useBroker } from '../../projects/broker.ts';
import { projectOf } from '../limit/limit-fixture.ts';

const AN_HOUR = /^\d{4}-\d\d-\d\dT\d\d:00Z$/;
let link: NatsLink;
let use: KeyUse;
useBroker((to) => {
  link = to;
  use = new KeyUse({ link, log });
});
afterAll(() => use?.close());

const noteKeys = (id: string, count: number): void => {
  const project = projectOf({ id });
  for (let key = 0; key < count; key++)
    use.note({ project, keyId: `k${key}`, isKeyUseNoted: false } as unknown as Access);
};

it('ends a flush before the next one begins, however many wait', async () => {
  noteKeys('1', 1);
  const first = use.flush();
  noteKeys('2', 40);
  const second = use.flush(40);
  noteKeys('3', 1);
  await use.flush();
  expect(Object.keys(await readUse(link, '2'))).toHaveLength(40);
  expect(Object.keys(await readUse(link, '3'))).toHaveLength(1);
  await Promise.all([first, second]);
});

it('keeps all that it cannot write, and says so once', async () => {
  const said = vi.spyOn(log, 'warn');
  const manager = await link.manager();
  await manager.streams.delete('KV_sluice_counters');
  noteKeys('5', 9);
  await use.flush();
  expect(said).toHaveBeenCalledTimes(1);
  said.mockRestore();
  await makeBuckets(link);
  await use.flush();
  expect(Object.keys(await readUse(link, '5'))).toHaveLength(9);
});

it('writes a record anew that cannot be read', async () => {
  await changeRecord(link, 'used.4', () => '{"k0":');
  expect(await readUse(link, '4')).toEqual({});
  noteKeys('4', 1);
  await use.flush();
  expect(await readUse(link, '4')).toEqual({ k0: expect.stringMatching(AN_HOUR) });
});

it('keeps the hours of as many keys as a project may have, the newest, for keys may come and go', async () => {
  const ids = Array.from({ length: PROJECT_KEYS_MAX }, (_, key) => `old${key}`);
  const hours = Object.fromEntries(
    ids.map((id, at) => [id, at === 7 ? '2026-01-01T00:00Z' : '2026-01-01T01:00Z']),
  );
  await changeRecord(link, 'used.6', () => JSON.stringify(hours));
  noteKeys('6', 1);
  await use.flush();
  const kept = Object.keys(await readUse(link, '6'));
  expect(kept.sort()).toEqual([...ids.filter((id) => id !== 'old7'), 'k0'].sort());
});
