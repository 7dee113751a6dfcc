/** Every command asks the servers of the `sluice dev` that `--data-dir` names, whatever the environment says. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { natsServer, redisServer, type TestServer, temporaryFolder } from '../support/servers.ts';
import { COMMANDS, type Ran, runCommand } from './run-command.ts';

/** Commands that ask no server of the settings. */
const APART = new Set(['sluice backfill']);
const folder = temporaryFolder('every-data-dir');
let servers: [redis: TestServer, nats: TestServer];
beforeAll(async () => {
  servers = await Promise.all([redisServer(), natsServer()]);
  const project = { id: '1', key: 'k', dsn: 'http://k@127.0.0.1/1' };
  const urls = { url: 'http://127.0.0.1:1', adminUrl: 'http://127.0.0.1:1' };
  const [redisUrl, natsUrl] = servers.map(({ url }) => url);
  const dev = { ...urls, redisUrl, natsUrl, sinkDir: join(folder, 'sink'), project, pid: process.pid };
  writeFileSync(join(folder, 'dev.json'), JSON.stringify(dev));
  expect(await inFolder('setup')).toMatchObject({ status: 0, err: '' });
});
afterAll(async () => {
  await Promise.all((servers ?? []).map((server) => server.close()));
  rmSync(folder, { recursive: true });
});

const NOWHERE = {
  SLUICE_NATS_URL: 'nats://127.0.0.1:1',
  SLUICE_REDIS_URL: 'redis://127.0.0.1:1',
  SLUICE_SINK: 'postgres://nobody@127.0.0.1:1/none',
};
const inFolder = (...args: string[]): Promise<Ran> => runCommand([...args, '--data-dir', folder], NOWHERE);

/** The commands that do something themselves, with the words that name them. */
function doers(command: Command, words: string): string[] {
  const own = command.commands.length === 0 || command.registeredArguments.length > 0 ? [words] : [];
  return [...own, ...command.commands.flatMap((sub) => doers(sub, `${words} ${sub.name()}`))];
}

it('each has the flag, and says so with its usage', async () => {
  const all = COMMANDS.map((make) => make());
  const names = all.flatMap((command) => doers(command, `sluice ${command.name()}`));
  expect(names.length).toBeGreaterThan(25);
  for (const name of names.filter((one) => !APART.has(one))) {
    const ran = await runCommand([...name.split(' ').slice(1), '--help'], {});
    expect(ran, name).toMatchObject({ status: 0, err: '' });
    expect(ran.out).toContain(`Usage: ${name}`);
    expect(ran.out).toContain('--data-dir <folder>');
  }
});

it.each([
  ['project list'],
  ['project export'],
  ['heartbeat list'],
  ['dead-letters list'],
  ['usage'],
  ['doctor'],
])('%s asks the named one', async (words) => {
  const ran = await inFolder(...words.split(' '));
  expect(ran, `${ran.out}${ran.err}`).toMatchObject({ status: 0, err: '' });
});

it('none is asked where no sluice dev runs', async () => {
  const ran = await runCommand(['project', 'list', '--data-dir', join(folder, 'none')], NOWHERE);
  expect(ran).toMatchObject({ status: 2, err: `sluice: No sluice dev runs on ${join(folder, 'none')}\n` });
});

it('doctor names the file and the sink of the named one', async () => {
  const { out } = await inFolder('doctor');
  expect(out).toContain(`as the environment and ${folder}/dev.json say`);
  expect(out).toContain(`sink folder ${join(folder, 'sink')}`);
  expect(out).not.toContain('postgres');
});
