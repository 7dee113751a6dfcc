/** The commands by way of the management API print what they print by way of Redis and NATS. */
import { Command } from 'commander';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deadLettersCommand } from '../../src/commands/dead-letters/dead-letters.ts';
import { heartbeatCommand } from '../../src/commands/heartbeat.ts';
import { projectCommand } from '../../src/commands/project/project.ts';
import { usageCommand } from '../../src/commands/usage/usage.ts';
import { DeadLetters } from '../../src/processor/dead-letters/dead-letters.ts';
import { deadLetterId } from '../../src/stream/dead-letter-format.ts';
import { log } from '../projects/broker.ts';
import { System } from '../support/system.ts';
import { type Ran, runCommand } from './run-command.ts';

const NOWHERE = { SLUICE_NATS_URL: 'nats://127.0.0.1:1', SLUICE_REDIS_URL: 'redis://127.0.0.1:1' };
const TOKENS = 'deploy=correct-horse,another';
let system: System;
beforeAll(async () => {
  system = await System.start({ processor: false, env: { SLUICE_ADMIN_TOKEN: TOKENS } });
});
afterAll(() => system?.stop());

function run(args: string[], env: Record<string, string>): Promise<Ran> {
  const program = new Command('sluice');
  for (const command of [projectCommand, heartbeatCommand, usageCommand, deadLettersCommand])
    program.addCommand(command());
  return runCommand(program, args, env);
}
/** Neither server can be reached but by the API. */
const byApi = (args: string[], env: Record<string, string> = {}): Promise<Ran> =>
  run([...args, '--api', `${system.adminUrl}/`], { ...NOWHERE, SLUICE_ADMIN_TOKEN: TOKENS, ...env });
const direct = (args: string[]): Promise<Ran> => {
  const { SLUICE_NATS_URL = '', SLUICE_REDIS_URL = '', SLUICE_PORT = '' } = system.env;
  return run(args, { SLUICE_NATS_URL, SLUICE_REDIS_URL, SLUICE_PORT });
};
const json = async <T = Record<string, unknown>>(...args: string[]): Promise<T> => {
  const ran = await byApi([...args, '--json']);
  expect(ran, ran.err).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out) as T;
};
/** Prints the same either way. */
async function same(...args: string[]): Promise<void> {
  const ran = await byApi(args);
  expect(ran, ran.err).toMatchObject({ status: 0, err: '' });
  expect(ran).toEqual(await direct(args));
}

async function fileLetter(frameId: string): Promise<string> {
  const letters = new DeadLetters({ link: system.link, log });
  const facts = { kind: 'frame' as const, reason: 'it is no frame', subject: 'sluice.events.0', frameId };
  await letters.publish({ ...facts, body: Buffer.from(`bytes of ${frameId}`) });
  return deadLetterId(facts);
}

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
  expect(await json('project', 'delete', id, '--keep-usage')).toEqual(rotated);
  expect(await byApi(['project', 'show', id])).toEqual({
    status: 1,
    out: '',
    err: `sluice: There is no project ${id}\n`,
  });
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
  const replayed = await byApi(['dead-letters', 'replay', first]);
  expect(replayed).toEqual({ status: 0, out: `Replayed ${first} to sluice.events.0.\n`, err: '' });
  expect((await byApi(['dead-letters', 'purge', second])).out).toBe('Purged 1 dead letter.\n');
  expect((await byApi(['dead-letters', 'purge', '--all'])).out).toBe('Purged 1 dead letter.\n');
  expect((await direct(['dead-letters', 'list'])).out).toBe('There are no dead letters.\n');
});

it('says what is wrong with the token, the address and the request', async () => {
  const refused = await byApi(['project', 'list'], { SLUICE_ADMIN_TOKEN: 'wrong' });
  expect(refused).toMatchObject({ status: 1, out: '' });
  expect(refused.err).toContain('Set SLUICE_ADMIN_TOKEN to a token that the API knows');
  const nobody = await run(['project', 'list', '--api', 'http://127.0.0.1:1'], NOWHERE);
  expect(nobody.err).toMatch(/^sluice: http:\/\/127\.0\.0\.1:1 cannot be reached: /);
  expect(nobody.status).toBe(1);
  const other = await run(['project', 'list', '--api', system.url], NOWHERE);
  expect(other.err).toContain(`${system.url} is no management API of sluice: it answered 404`);
  expect(await run(['project', 'list', '--api', 'localhost:8081'], NOWHERE)).toMatchObject({ status: 2 });
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
