/** Commands on a terminal: a deletion asks, states are in colour. */
import { spawn } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { link as connect, type NatsLink } from '../projects/broker.ts';
import { natsServer, redisServer, type TestServer } from '../support/servers.ts';
import { DIST } from '../support/system.ts';
import { runCommand } from './run-command.ts';

const plain: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
let servers: [redis: TestServer, nats: TestServer];
let link: NatsLink;
let store: ProjectStore;
let env: Record<string, string>;
beforeAll(async () => {
  servers = await Promise.all([redisServer(), natsServer()]);
  link = await connect(servers[1].url);
  await setupTopology(link, { replicas: 1, shards: 1, maxBytes: 16 * 1024 * 1024 });
  store = await ProjectStore.open(link);
  env = { SLUICE_REDIS_URL: servers[0].url, SLUICE_NATS_URL: servers[1].url };
});
afterAll(async () => {
  await link?.close();
  await Promise.all((servers ?? []).map((server) => server.close()));
});

type OnTerminal = { status: number | null; out: string };
type Typed = { after: string; answer: string };

/**
 * Runs a command on a terminal of its own, which `script` makes, and types an answer behind a question. The
 * sequences of a terminal begin with `<` in `out`.
 */
async function onTerminal(
  args: string[],
  more: Record<string, string> = {},
  typed?: Typed,
): Promise<OnTerminal> {
  const line = [process.execPath, `${DIST}cli.js`, ...args].map((arg) => `'${arg}'`).join(' ');
  const { NO_COLOR: _, ...inherited } = process.env;
  const child = spawn('script', ['--quiet', '--return', '--flush', '--command', line, '/dev/null'], {
    env: { ...inherited, TERM: 'xterm', ...env, ...more },
  });
  let out = '';
  let isTyped = false;
  child.stdout.on('data', (data: Buffer) => {
    out += data.toString();
    if (!typed || isTyped || !out.includes(typed.after)) return;
    isTyped = true;
    child.stdin.write(`${typed.answer}\n`);
  });
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { status, out: out.replaceAll('\r\n', '\n').replaceAll('\u001b[', '<') };
}

describe.skipIf(process.platform !== 'linux')('on a terminal', () => {
  it('project delete says what would go, and deletes where the id is typed alone', async () => {
    const { id } = await store.create({ ...plain, name: 'Web shop' });
    const after = `Type ${id} to delete it: `;
    const kept = await onTerminal(['project', 'delete', id], {}, { after, answer: 'yes' });
    expect(kept.out).toContain(`Project ${id} "Web shop" (Pro, 1 keys) has 0 requests counted in `);
    expect([kept.status, kept.out]).toEqual([1, expect.stringContaining('nothing is deleted')]);
    expect((await store.get(id)).id).toBe(id);
    const gone = await onTerminal(['project', 'delete', id], {}, { after, answer: id });
    expect(gone).toMatchObject({ status: 0, out: expect.stringContaining('Deleted, with its usage') });
    await expect(store.get(id)).rejects.toThrow('There is no project');
  });

  it('states of projects and of findings are in colour, and without one where NO_COLOR is set', async () => {
    const off = await store.create({ ...plain, enabled: false, name: 'a project that is \u001b[31mred' });
    const list = await onTerminal(['project', 'list']);
    expect(list.out).toMatch(new RegExp(`^${off.id} +<31mdisabled<39m +Pro .*\\\\u001b\\[31mred$`, 'm'));
    const doctor = await onTerminal(['doctor'], { SLUICE_PORT: '8081', SLUICE_SPOOL_DIR: '/nonexistent' });
    expect(doctor.out).toMatch(/^<32mok<39m {4}consumer SLUICE_EVENTS\/processor /m);
    expect(doctor.out).toMatch(/^<33mwarn<39m {2}settings of ingest\n/m);
    expect(doctor.out).toMatch(/^<31mfail<39m {2}spool folder /m);
    const plainly = await onTerminal(['project', 'list'], { NO_COLOR: '1' });
    expect(plainly.out).toMatch(new RegExp(`^${off.id} +disabled +Pro `, 'm'));
    expect(plainly.out).not.toContain('<');
  });
});

it('what a program reads has no colour', async () => {
  const ran = await runCommand(['project', 'list'], env);
  expect(ran.out).toMatch(/^\d+ +\w+ +Pro /m);
  expect(ran.out).not.toContain('\u001b');
});
