import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KeyUse } from '../../../src/ingest/usage/key-use.ts';
import { keyId } from '../../../src/projects/project.ts';
import { ProjectState } from '../../../src/projects/project-state.ts';
import { ProjectStore } from '../../../src/projects/project-store.ts';
import { link as connect, log, makeBuckets, type NatsLink } from '../../projects/broker.ts';
import { natsServer, type TestServer } from '../../support/servers.ts';
import { type Ran, runCommand } from '../run-command.ts';

const DAY_MS = 86_400_000;
let server: TestServer;
let link: NatsLink;
beforeAll(async () => {
  server = await natsServer();
  link = await connect(server.url);
  await makeBuckets(link);
});
afterAll(async () => {
  await link?.close();
  await server?.close();
});

const sluice = (...args: string[]): Promise<Ran> => {
  const env = { SLUICE_NATS_URL: server.url, SLUICE_REDIS_URL: 'redis://127.0.0.1:1' };
  return runCommand(args, { ...env, SLUICE_PUBLIC_URL: 'http://localhost:9090' });
};
type Key = { id: string; key: string; enabled: boolean; expires?: string; dsn: string };
type Json = Record<string, unknown> & { id: string; key: string; keys: Key[] };
const json = async (...args: string[]): Promise<Json> => {
  const ran = await sluice('project', ...args, '--json');
  expect(ran, ran.err).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out) as Json;
};
const create = (): Promise<Json> => json('create', '--plan', 'Pro');

describe('project keys', () => {
  it('adds a key with label, expiry and limit, and leaves the project its key and DSN', async () => {
    const before = await create();
    const asked = Date.now();
    const flags = ['--label', 'iOS 4', '--expires', '30d', '--rate-limit', '50'];
    const added = (await json('keys', 'add', before.id, ...flags)) as unknown as Key;
    expect(added).toEqual({
      id: keyId(added.key),
      key: expect.stringMatching(/^[0-9a-f]{32}$/),
      label: 'iOS 4',
      enabled: true,
      expires: expect.stringMatching(/Z$/),
      rateLimit: 50,
      dsn: `http://${added.key}@localhost:9090/${before.id}`,
    });
    expect(Math.abs(Date.parse(added.expires ?? '') - asked - 30 * DAY_MS)).toBeLessThan(60_000);
    expect(await json('show', before.id)).toEqual({ ...before, keys: [...before.keys, added] });
  });

  it.each([
    ['2127-01-31', '2127-01-31T00:00:00.000Z'],
    ['2127-01-31T10:00:00+02:00', '2127-01-31T08:00:00.000Z'],
  ])('takes %s as an expiry', async (text, expires) => {
    const { id } = await create();
    expect(await json('keys', 'add', id, '--expires', text)).toMatchObject({ expires });
  });

  it.each([
    [['--expires', '30'], 'a duration such as 30d'],
    [['--expires', '0d'], 'a duration such as 30d'],
    [['--expires', '2127-13-01'], 'a duration such as 30d'],
    [['--expires', '2127-02-29'], 'a duration such as 30d'],
    [['--expires', '2127-01-01T10:00'], 'a duration such as 30d'],
    [['--expires', '2020-01-01'], 'It has passed already'],
    [['--rate-limit', 'none'], 'an integer from 1 to 100000'],
    [['--label', ''], 'A label has 1 to 100 characters'],
    [['--key', 'a b'], 'A key is 1 to 64'],
  ])('refuses %s', async (flags, reason) => {
    const ran = await sluice('project', 'keys', 'add', '1', ...flags);
    expect(ran).toMatchObject({ status: 2, out: '' });
    expect(ran.err).toContain(reason);
  });

  it('disables, enables and removes a key; key and dsn follow the first one that is valid', async () => {
    const { id, key: old } = await create();
    const added = (await json('keys', 'add', id, '--key', 'new-key')) as unknown as Key;
    const change = async (name: string, of: string): Promise<unknown> => {
      await json('keys', name, id, keyId(of));
      const { key, dsn, keys: all } = await json('show', id);
      return [key, dsn, all.map(({ enabled }) => enabled)];
    };
    expect(await change('disable', old)).toEqual(['new-key', added.dsn, [false, true]]);
    expect(await change('disable', 'new-key')).toEqual([undefined, undefined, [false, false]]);
    expect((await sluice('project', 'show', id)).out).toContain('none is valid (1 more)');
    expect(await change('enable', 'new-key')).toEqual(['new-key', added.dsn, [false, true]]);
    expect(await change('remove', old)).toEqual(['new-key', added.dsn, [true]]);
    expect(await sluice('project', 'keys', 'remove', id, keyId('new-key'))).toMatchObject({
      status: 1,
      err: 'sluice: A project keeps at least one key: disable it instead\n',
    });
    expect(await sluice('project', 'keys', 'disable', id, keyId('unknown'))).toMatchObject({ status: 1 });
    expect(await sluice('project', 'keys', 'disable', id, 'unknown')).toMatchObject({ status: 2 });
  });

  it('does not put a key that is there already in the place of the first one', async () => {
    const { id, key: first } = await create();
    const added = (await json('keys', 'add', id, '--key', 'other-key')) as unknown as Key;
    const before = await json('show', id);
    expect(await sluice('project', 'set', id, '--key', 'other-key')).toEqual({
      status: 1,
      out: '',
      err: `sluice: Project ${id} has this key already, as ${added.id}: it cannot take the place of another one\n`,
    });
    expect(await json('set', id, '--key', first)).toEqual(before);
  });

  it('lists them with the hour in which each was last used, over all workers', async () => {
    const { id, key: old } = await create();
    await json('keys', 'add', id, '--key', 'new');
    const record = await (await ProjectStore.open(link)).get(id);
    const hours = ['2026-01-05T07:59:00Z', '2026-01-05T07:10:00Z', '2026-03-01T00:00:00Z'];
    const used = [old, old, 'new'];
    for (const [i, hour] of hours.entries()) {
      const clock = { now: () => Date.parse(hour), monotonic: () => 0 };
      const use = new KeyUse({ link, log, clock });
      const access = new ProjectState(record, 1, 60).authenticate(used[i] as string, clock);
      if (!access) throw new Error('not valid');
      use.note(access);
      await use.close();
    }
    const list = (await json('keys', 'list', id)) as unknown as (Key & { lastUsed?: string })[];
    expect(list.map(({ key, lastUsed }) => [key, lastUsed])).toEqual([
      [old, '2026-01-05T07:00Z'],
      ['new', '2026-03-01T00:00Z'],
    ]);
    expect((await sluice('project', 'keys', 'list', id)).out).toMatch(
      /^ID +KEY +LABEL +STATE +EXPIRES +PER MINUTE +LAST USED\n/,
    );
  });

  it('writes the use of a key anew in each hour', async () => {
    const { id } = await create();
    const record = await (await ProjectStore.open(link)).get(id);
    let now = Date.parse('2026-01-05T07:59:00Z');
    const clock = { now: () => now, monotonic: () => 0 };
    const use = new KeyUse({ link, log, clock });
    const access = new ProjectState(record, 1, 60).authenticate(record.key, clock);
    if (!access) throw new Error('not valid');
    const lastUsed = async (): Promise<unknown> => {
      use.note(access);
      await use.flush();
      return ((await json('keys', 'list', id)) as unknown as { lastUsed?: string }[])[0]?.lastUsed;
    };
    expect(await lastUsed()).toBe('2026-01-05T07:00Z');
    now += 3_600_000;
    await use.flush();
    expect(await lastUsed()).toBe('2026-01-05T08:00Z');
    await use.close();
  });
});

describe('project rotate-key --overlap', () => {
  it.each(['30', '1y', '0s', '-1d', '2127-01-01'])('refuses %s', async (text) => {
    const ran = await sluice('project', 'rotate-key', '1', '--overlap', text);
    expect(ran).toMatchObject({ status: 2, err: expect.stringContaining('a number and a unit') });
  });
});
