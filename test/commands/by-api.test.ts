/** The commands by way of the management API print what they print by way of Redis and NATS. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ApiOperations } from '../../src/management/api-client.ts';
import { fileLetter as letterIn } from '../support/letters.ts';
import { temporaryFolder } from '../support/servers.ts';
import { System } from '../support/system.ts';
import { type Ran, runCommand } from './run-command.ts';

const NOWHERE = { SLUICE_NATS_URL: 'nats://127.0.0.1:1', SLUICE_REDIS_URL: 'redis://127.0.0.1:1' };
const TOKENS = 'deploy=correct-horse-battery,another-of-sixteen';
let system: System;
beforeAll(async () => {
  system = await System.start({ processor: false, env: { SLUICE_ADMIN_TOKEN: TOKENS } });
});
afterAll(() => system?.stop());

/** Neither server can be reached but by the API. */
const byApi = (args: string[], env: Record<string, string> = {}): Promise<Ran> =>
  runCommand([...args, '--api', `${system.adminUrl}/`], { ...NOWHERE, SLUICE_ADMIN_TOKEN: TOKENS, ...env });
const direct = (args: string[]): Promise<Ran> => {
  const { SLUICE_NATS_URL = '', SLUICE_REDIS_URL = '', SLUICE_PORT = '' } = system.env;
  return runCommand(args, { SLUICE_NATS_URL, SLUICE_REDIS_URL, SLUICE_PORT });
};
/** Standard error: SLUICE_PUBLIC_URL is set neither here nor there, so each JSON with DSNs has a remark. */
const NO_ERROR =
  /^(sluice: The host in these URLs is a guess: set SLUICE_PUBLIC_URL to what clients reach\n)?$/;
const json = async <T = Record<string, unknown>>(...args: string[]): Promise<T> => {
  const ran = await byApi([...args, '--json']);
  expect(ran, ran.err).toMatchObject({ status: 0, err: expect.stringMatching(NO_ERROR) });
  return JSON.parse(ran.out) as T;
};
/** Prints the same either way. */
async function same(...args: string[]): Promise<void> {
  const ran = await byApi(args);
  expect(ran, ran.err).toMatchObject({ status: 0, err: expect.stringMatching(NO_ERROR) });
  expect(ran).toEqual(await direct(args));
}

const fileLetter = (frameId: string): Promise<string> => letterIn(system.link, frameId);

it('projects are created, shown, listed, changed and deleted, and the audit has the label', async () => {
  const made = await json('project', 'create', '--plan', 'Pro', '--quota', '50', '--rate-limit', '7');
  const id = String(made.id);
  expect(made.dsn).toBe(`http://${made.key}@localhost:${system.port}/${id}`);
  expect(await json('project', 'set', id, '--plan', 'Scale', '--quota', 'none')).toEqual({
    ...Object.fromEntries(Object.entries(made).filter(([name]) => name !== 'quota')),
    plan: 'Scale',
  });
  const rotated = await json('project', 'rotate-key', id);
  expect(rotated.key).not.toBe(made.key);
  await same('project', 'show', id);
  await same('project', 'show', id, '--json');
  await same('project', 'list');
  await same('project', 'list', '--json');
  await same('project', 'history', id);
  const history = await json<{ by: string }[]>('project', 'history', id);
  expect(history.map(({ by }) => by)).toEqual(['deploy', 'deploy', 'deploy']);
  await same('usage', id, '--json');
  await same('usage', id);
  await same('usage');
  expect(await json('project', 'delete', id, '--keep-usage', '--yes')).toEqual(rotated);
  expect(await byApi(['project', 'show', id])).toEqual({
    status: 1,
    out: '',
    err: `sluice: There is no project ${id}\n`,
  });
});

it('a guessed host is told beside text and JSON, as the API says', async () => {
  const made = await byApi(['project', 'create', '--plan', 'Pro', '--json']);
  expect(made.err).toContain('The host in these URLs is a guess: set SLUICE_PUBLIC_URL');
  const { id } = JSON.parse(made.out) as { id: string };
  expect((await byApi(['project', 'show', id])).out).toContain('(its host is a guess');
  expect((await byApi(['project', 'keys', 'list', id, '--json'])).err).toContain(
    'The host in these URLs is a guess',
  );
  expect((await byApi(['usage', id, '--json'])).err).toBe('');
});

it('keys are added, listed, switched and removed, and projects switched', async () => {
  const made = await json<{ id: string; key: string }>('project', 'create', '--plan', 'Pro', '--key', 'a-b');
  const { id } = made;
  const flags = ['--label', 'iOS', '--expires', '30d', '--rate-limit', '5'];
  const added = await json<{ id: string }>('project', 'keys', 'add', id, ...flags);
  expect(added).toMatchObject({ label: 'iOS', rateLimit: 5, enabled: true });
  await same('project', 'keys', 'list', id);
  await same('project', 'keys', 'list', id, '--json');
  expect(await json('project', 'keys', 'disable', id, added.id)).toMatchObject({ enabled: false });
  expect(await json('project', 'keys', 'enable', id, added.id)).toEqual(added);
  await same('project', 'show', id);
  expect(await json('project', 'keys', 'remove', id, added.id)).toEqual(added);
  const last = ['project', 'keys', 'remove', id, 'ffffffff'];
  expect(await byApi(last)).toEqual(await direct(last));
  expect((await byApi(last)).status).toBe(1);
  expect(await json('project', 'disable', id)).toEqual({ ...made, enabled: false });
  expect(await json('project', 'enable', id)).toEqual(made);
  const limited = ['project', 'set', id, '--rate-limit-for', 'replays', '5', 'logs', '6'];
  expect(await json(...limited)).toMatchObject({ rateLimits: { replays: 5, logs: 6 } });
  const less = await json('project', 'set', id, '--rate-limit-for', 'replays', 'none');
  expect(less.rateLimits).toEqual({ logs: 6 });
  const rotated = await json<{ keys: object[] }>('project', 'rotate-key', id, '--overlap', '90s');
  expect(rotated.keys).toMatchObject([{ enabled: true }, { key: 'a-b', expires: expect.any(String) }]);
});

it('a file of projects is applied and exported', async () => {
  const folder = temporaryFolder('by-api');
  const file = join(folder, 'projects.yaml');
  const projects = [
    {
      id: '8801',
      plan: 'Pro',
      keys: [
        { key: 'one', label: 'One' },
        { key: 'two', enabled: false },
      ],
    },
    { id: '8802', plan: 'Free', enabled: false, rateLimits: { replays: 5 } },
  ];
  writeFileSync(file, JSON.stringify({ projects }));
  const { created } = await json<{ created: object[] }>('project', 'apply', '-f', file);
  expect(created).toMatchObject(projects);
  writeFileSync(file, JSON.stringify({ projects: [{ ...projects[0], quota: 5 }, projects[1]] }));
  expect(await json('project', 'apply', '-f', file)).toMatchObject({
    changed: [{ id: '8801', fields: { quota: { to: 5 } } }],
    unchanged: 1,
  });
  await same('project', 'export');
  await same('project', 'export', '--json');
  writeFileSync(file, (await byApi(['project', 'export'])).out);
  expect((await byApi(['project', 'apply', '-f', file])).out).toMatch(/^No change: \d+ projects/);
  const { projects: all } = await json<{ projects: { id: string }[] }>('project', 'export');
  writeFileSync(file, JSON.stringify({ projects: all.filter(({ id }) => id !== '8802') }));
  const pruned = await json('project', 'apply', '-f', file, '--prune', '--force', '--keep-usage');
  expect(pruned).toMatchObject({ removed: ['8802'], failed: [] });
  rmSync(folder, { recursive: true });
});

it('heartbeat tokens are created, listed and deleted', async () => {
  const { token } = await json('heartbeat', 'create');
  await json('heartbeat', 'create');
  await same('heartbeat', 'list');
  await same('heartbeat', 'list', '--json');
  expect((await byApi(['heartbeat', 'delete', String(token)])).out).toBe(
    `Deleted heartbeat token ${token}.\n`,
  );
  expect((await byApi(['heartbeat', 'delete', String(token)])).status).toBe(1);
});

it('dead letters are listed, shown, replayed and purged', async () => {
  const ids = [await fileLetter('boot.1'), await fileLetter('boot.2'), await fileLetter('boot.3')];
  const [first = '', second = ''] = ids;
  await same('dead-letters', 'list');
  await same('dead-letters', 'list', '--json');
  for (const flags of [[], ['--json'], ['--raw']]) await same('dead-letters', 'show', first, ...flags);
  const replayed = await byApi(['dead-letters', 'replay', first, '--wait', '0']);
  expect(replayed).toEqual({ status: 0, out: `Replayed ${first} to sluice.events.0.\n`, err: '' });
  expect((await byApi(['dead-letters', 'purge', second])).out).toBe('Purged 1 dead letter.\n');
  expect((await byApi(['dead-letters', 'purge', '--all'])).out).toBe('Purged 1 dead letter.\n');
  expect((await direct(['dead-letters', 'list'])).out).toBe('There are no dead letters.\n');
});

it('purges dead letters that another command has purged meanwhile, and leaves what was filed anew', async () => {
  await fileLetter('boot.4');
  const api = new ApiOperations(system.adminUrl, 'correct-horse-battery');
  const [letter] = await api.listDeadLetters();
  assert(letter);
  await api.purgeDeadLetter(letter);
  await api.purgeDeadLetter(letter);
  await fileLetter('boot.4');
  await api.purgeDeadLetter(letter);
  expect(await api.listDeadLetters()).toMatchObject([{ id: letter.id }]);
});

type Examined = { ok: boolean; checks: { state: string; what: string; found: string; fix?: string }[] };

it('doctor examines the deployment from where ingest runs, and looks at no sink', async () => {
  const whats = ({ checks }: Examined): string[] =>
    checks
      .map(({ what }) => what.replace(/^(spool folder) .*/, '$1'))
      .filter((what) => what !== 'settings of ingest');
  const there = await json<Examined>('doctor');
  const { out } = await direct(['doctor', '--json']);
  expect(new Set(whats(there))).toEqual(new Set(whats(JSON.parse(out) as Examined)));
  expect(there.checks).toContainEqual({
    state: 'ok',
    what: 'settings',
    found: 'as the environment of this ingest says',
  });
  expect(there.checks).toContainEqual(expect.objectContaining({ state: 'warn', what: 'SLUICE_PUBLIC_URL' }));
  const ran = await byApi(['doctor'], { SLUICE_SINK: 'postgres://nobody@127.0.0.1:1/none' });
  expect(ran.out).not.toContain('postgres');
  expect(ran.out).toMatch(/^ok +stream SLUICE_EVENTS /m);
});

it('doctor fails where the API cannot be asked, and says what to do', async () => {
  const away = await runCommand(['doctor', '--json', '--api', 'http://127.0.0.1:1'], NOWHERE);
  expect(away).toMatchObject({ status: 1, err: '' });
  expect(JSON.parse(away.out)).toMatchObject({
    ok: false,
    checks: [
      { state: 'fail', what: 'management API http://127.0.0.1:1', fix: expect.stringContaining('Start') },
    ],
  });
  const refused = await byApi(['doctor'], { SLUICE_ADMIN_TOKEN: 'wrong-but-long-enough' });
  expect(refused).toMatchObject({ status: 1, out: expect.stringContaining('Set SLUICE_ADMIN_TOKEN') });
});

it('says what is wrong with the token, the address and the request', async () => {
  const refused = await byApi(['project', 'list'], { SLUICE_ADMIN_TOKEN: 'wrong-but-long-enough' });
  expect(refused).toMatchObject({ status: 1, out: '' });
  expect(refused.err).toContain('Set SLUICE_ADMIN_TOKEN to a token that the API knows');
  const nobody = await runCommand(['project', 'list', '--api', 'http://127.0.0.1:1'], NOWHERE);
  expect(nobody.err).toMatch(/^sluice: http:\/\/127\.0\.0\.1:1 cannot be reached: /);
  expect(nobody.status).toBe(1);
  const other = await runCommand(['project', 'list', '--api', system.url], NOWHERE);
  expect(other.err).toContain(`${system.url} is no management API of sluice: it answered 404`);
  const login = createServer((_, res) => res.end('<html>Log in')).listen(0, '127.0.0.1');
  await once(login, 'listening');
  const page = `http://127.0.0.1:${(login.address() as AddressInfo).port}`;
  const loggedOut = await runCommand(['project', 'list', '--api', page], NOWHERE);
  expect(loggedOut.err).toBe(`sluice: ${page} is no management API of sluice: it answered 200\n`);
  expect(loggedOut.status).toBe(1);
  login.close();
  expect(await runCommand(['project', 'list', '--api', 'localhost:8081'], NOWHERE)).toMatchObject({
    status: 2,
  });
  const taken = await json('project', 'create', '--plan', 'Pro');
  const again = await byApi(['project', 'create', '--plan', 'Pro', '--id', String(taken.id)]);
  expect(again).toEqual({
    status: 1,
    out: '',
    err: `sluice: ${taken.id} is already in use, as a project's id or alias\n`,
  });
  const same = ['project', 'set', String(taken.id), '--alias', String(taken.id)];
  expect(await byApi(same)).toEqual(await direct(same));
  expect((await byApi(same)).status).toBe(2);
});
