/** The built program as a child process, as a user runs it. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ingestProblems } from '../../src/commands/ingest-settings.ts';
import { loadConfig } from '../../src/config.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { createLog } from '../../src/lib/log.ts';
import { type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import type { Entry } from '../../src/stream/frame.ts';
import { Publisher } from '../../src/stream/publish/publisher.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { link as connect, type NatsLink } from '../projects/broker.ts';
import {
  lastingPort,
  natsServer,
  redisServer,
  type TestServer,
  temporaryFolder,
} from '../support/servers.ts';
import { runCommand } from './run-command.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));
const CUID = 'cjld2cjxh0000qzrmn831i7rn';
const MIB = 1024 * 1024;
const plain: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
type Child = { process: ChildProcess; out: () => string; err: () => string; ended: Promise<number | null> };

let servers: [redis: TestServer, nats: TestServer];
let link: NatsLink;
const folder = temporaryFolder('program');
beforeAll(async () => {
  servers = await Promise.all([redisServer(), natsServer()]);
  link = await connect(servers[1].url);
  await setupTopology(link, { replicas: 1, shards: 1, maxBytes: 16 * MIB });
});
afterAll(async () => {
  await link?.close();
  await Promise.all(servers.map((server) => server.close()));
});

function start(args: string[], env: Record<string, string> = {}): Child {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('SLUICE_'));
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    cwd: folder,
    env: { ...Object.fromEntries(inherited), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err] = ['', ''];
  child.stdout.on('data', (data: Buffer) => {
    out += data;
  });
  child.stderr.on('data', (data: Buffer) => {
    err += data;
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  return { process: child, out: () => out, err: () => err, ended };
}

const urls = (): Record<string, string> => ({
  SLUICE_REDIS_URL: servers[0].url,
  SLUICE_NATS_URL: servers[1].url,
});

/** What a running `sluice dev` leaves in its folder. */
function writeDevFile(pid: number): void {
  mkdirSync(join(folder, '.sluice'), { recursive: true });
  const file = {
    url: 'http://localhost:7070',
    adminUrl: 'http://localhost:7071',
    redisUrl: servers[0].url,
    natsUrl: servers[1].url,
    sinkDir: join(folder, 'sink'),
    project: { id: '1', key: 'k', dsn: 'http://k@localhost:7070/1' },
    pid,
  };
  writeFileSync(join(folder, '.sluice', 'dev.json'), JSON.stringify(file));
}

it.each<[what: string, env: () => Record<string, string>, problem: string | RegExp]>([
  [
    'that its volume can never hold',
    () => ({ SLUICE_SPOOL_DIR: folder, SLUICE_SPOOL_MAX_BYTES: `${2 ** 52}` }),
    /^SLUICE_SPOOL_MAX_BYTES is 4096 TiB, and the volume of \S+ has [\d.]+ [GT]iB$/,
  ],
  [
    'without room for two whole bodies of each worker',
    () => ({
      SLUICE_WORKERS: '2',
      SLUICE_MAX_DECOMPRESSED_BYTES: '20000000',
      SLUICE_SPOOL_MAX_BYTES: '79999999',
    }),
    /^SLUICE_SPOOL_MAX_BYTES must be at least 80000000: twice SLUICE_MAX_DECOMPRESSED_BYTES for each of 2 workers$/,
  ],
  ['that is a file', () => ({ SLUICE_SPOOL_DIR: import.meta.filename }), 'SLUICE_SPOOL_DIR must be a folder'],
])('a spool %s is a wrong setting of ingest, and of no other program', (_what, env, problem) => {
  expect(() => loadConfig(env(), { alsoCheck: ingestProblems })).toThrow(problem);
  expect(() => loadConfig(env())).not.toThrow();
});

it('ingest reports what is wrong for it alone beside everything else', async () => {
  const missing = join(folder, 'no-folder');
  const wrong = { SLUICE_LOG_LEVEL: 'loud', SLUICE_PORT: '8081', SLUICE_SPOOL_DIR: missing };
  const child = start(['ingest'], { ...wrong, SLUICE_SPOOL_MAX_BYTES: '1', SLUICE_WORKERS: '1' });
  expect(await child.ended).toBe(2);
  expect(child.err()).toMatch(/SLUICE_LOG_LEVEL must be one of/);
  expect(child.err()).toContain('SLUICE_ADMIN_PORT (8081 unless it is set) must differ from SLUICE_PORT');
  expect(child.err()).toContain('SLUICE_SPOOL_MAX_BYTES must be at least 41943040');
  expect(child.err()).toContain(
    `SLUICE_SPOOL_DIR must be a folder that is there and can be looked at: ${missing}`,
  );
});

it('ends when NATS takes its connection and then says nothing', async () => {
  const mute = createServer().listen({ host: '127.0.0.1', port: await lastingPort() });
  await once(mute, 'listening');
  const { port } = mute.address() as { port: number };
  const child = start(['project', 'list'], { ...urls(), SLUICE_NATS_URL: `nats://127.0.0.1:${port}` });
  expect(await child.ended).toBe(1);
  expect(child.err()).toContain('NATS cannot be reached at nats://127.0.0.1:');
  mute.close();
});

/** Imports modules of dist one after the other; says after each whether ioredis is loaded by now. */
const LOADS = `
  import { createRequire } from 'node:module';
  const { cache } = createRequire('${PROGRAM}');
  for (const path of process.argv.slice(1)) {
    await import(new URL(path, 'file://${PROGRAM}').href);
    console.log(path, Object.keys(cache).some((file) => file.includes('/ioredis/')));
  }
`;

it('programs that serve are loaded without the client of Redis, which only workers always need', () => {
  const serve = [
    'commands/run-program.js',
    'commands/processor.js',
    'commands/ingest.js',
    'commands/dev/dev.js',
  ];
  const args = ['--input-type=module', '-e', LOADS, ...serve, 'ingest/limit/redis.js'];
  const said = execFileSync(process.execPath, args, { encoding: 'utf8' });
  const lines = [...serve.map((path) => `${path} false`), 'ingest/limit/redis.js true'];
  expect(said).toBe(`${lines.join('\n')}\n`);
});

describe('the program', () => {
  it('prints its version and help, and ends with 0', async () => {
    const version = start(['--version']);
    expect(await version.ended).toBe(0);
    expect(version.out()).toMatch(/^\d+\.\d+\.\d+\n$/);
    const help = start(['--help']);
    expect(await help.ended).toBe(0);
    for (const name of ['dev', 'ingest', 'setup', 'project', 'heartbeat', 'usage', 'tail', 'doctor'])
      expect(help.out()).toMatch(new RegExp(`^  ${name}\\b`, 'm'));
  });

  it('ends with 2 for what it does not know', async () => {
    const child = start(['nonsense']);
    expect([await child.ended, child.out()]).toEqual([2, '']);
    expect(child.err()).not.toContain('    at ');
    const tail = await runCommand(['tail', '--type', 'statsd'], {});
    expect(tail).toMatchObject({ status: 2, out: '' });
  });

  it('finishes a change though its reader has left, and fails as it would have', async () => {
    writeDevFile(process.pid);
    const file = join(folder, 'many.yaml');
    const ids = Array.from({ length: 300 }, (_, n) => `${5_000 + n}`);
    writeFileSync(file, `projects:\n${ids.map((id) => `  - { id: "${id}", plan: Pro }\n`).join('')}`);
    const apply = start(['project', 'apply', '-f', file]);
    apply.process.stdout?.destroy();
    expect(await apply.ended, apply.err()).toBe(0);
    const list = start(['project', 'list', '--json']);
    expect(await list.ended).toBe(0);
    const there = new Set((JSON.parse(list.out()) as { id: string }[]).map(({ id }) => id));
    expect(ids.filter((id) => !there.has(id))).toEqual([]);
    const doctor = start(['doctor'], { ...urls(), SLUICE_NATS_URL: 'nats://127.0.0.1:1' });
    doctor.process.stdout?.destroy();
    expect(await doctor.ended).toBe(1);
  });

  it('uses the sluice dev of its folder while that lives, and its URL for DSNs', async () => {
    writeDevFile(process.pid);
    const create = start(['project', 'create', '--plan', 'Pro', '--id', '70', '--key', 'k', '--json']);
    expect(await create.ended).toBe(0);
    expect(JSON.parse(create.out())).toMatchObject({ dsn: 'http://k@localhost:7070/70' });
    const gone = start(['--version']);
    await gone.ended;
    writeDevFile(gone.process.pid ?? 0);
    const list = start(['project', 'list'], { SLUICE_REDIS_URL: 'redis://127.0.0.1:1' });
    expect(await list.ended).toBe(1);
    expect(list.err()).toContain('NATS cannot be reached at nats://127.0.0.1:4222');
  });

  it('lets both URLs win over a sluice dev', async () => {
    writeDevFile(process.pid);
    const child = start(['project', 'list'], { ...urls(), SLUICE_NATS_URL: 'nats://127.0.0.1:1' });
    expect(await child.ended).toBe(1);
    expect(child.err()).toContain('nats://127.0.0.1:1');
  });
});

describe('load', () => {
  it('takes no misspelt variable, but tells of itself all the same', async () => {
    const misspelt = { SLUICE_SINKS: 'ndjson:here' };
    const load = start(['load', '--dsn', 'http://k@127.0.0.1:9/1', '--duration', '1s'], misspelt);
    expect(await load.ended).toBe(2);
    expect(load.err()).toContain('SLUICE_SINKS');
    expect(await start(['load', '--help'], misspelt).ended).toBe(0);
  });
});

describe('tail', () => {
  it('says that there are no streams', async () => {
    const empty = await natsServer();
    const tail = await runCommand(['tail'], { ...urls(), SLUICE_NATS_URL: empty.url });
    expect(tail).toMatchObject({ status: 1, err: expect.stringContaining('run sluice setup') });
    await empty.close();
  });

  const entry = (projectId: string, types: ('event' | 'log')[]): Entry => ({
    kind: 'envelope',
    projectId,
    eventId: '0123456789abcdef0123456789abcdef',
    receivedAt: 1_790_000_000_000,
    items: types.map((type, index) => {
      const payload = Buffer.from(JSON.stringify({ message: `boom\u001b[31m ${projectId}`, of: type }));
      const header = Buffer.from(JSON.stringify({ type }));
      return { index, type, header, length: payload.length, payload };
    }),
  });

  it('shows what is accepted, of one project and type, and consumes nothing', async () => {
    await (await ProjectStore.open(link)).create({ ...plain, id: CUID, alias: '42' });
    const all = start(['tail'], urls());
    const one = start(['tail', '42', '--type', 'log', '--json'], urls());
    const left = start(['tail'], urls());
    let isOver = false;
    void left.ended.then(() => {
      isOver = true;
    });
    const publisher = new Publisher({ link, shards: 1, clock: systemClock, log: createLog('silent') });
    const publish = async (): Promise<void> => {
      const deadline = performance.now() + 30_000;
      for (const of of [entry(CUID, ['event', 'log']), entry('7', ['log'])])
        publisher.publish(of, { deadline }, (result) => expect(result).toBe('stored'));
      await publisher.drain();
    };
    // Until both look on, what is published passes unseen.
    await expect
      .poll(
        async () => {
          await publish();
          return [' 7 ', `${CUID}  event `].every((text) => all.out().includes(text)) && one.out() !== '';
        },
        { interval: 100 },
      )
      .toBe(true);
    await expect
      .poll(async () => {
        await publish();
        return left.out();
      })
      .toContain('event ');
    left.process.stdout?.destroy(); // as `| head` does
    await expect
      .poll(async () => {
        await publish();
        return isOver;
      })
      .toBe(true);
    expect(await left.ended).toBe(0);
    const { state: before } = await (await link.manager()).streams.info('SLUICE_EVENTS');
    for (const child of [all, one]) child.process.kill('SIGINT');
    expect(await Promise.all([all.ended, one.ended])).toEqual([0, 0]);
    const seen = one
      .out()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    for (const item of seen)
      expect(item).toEqual({
        project_id: CUID,
        event_id: '0123456789abcdef0123456789abcdef',
        item_index: 1,
        type: 'log',
        received_at: '2026-09-21T14:13:20.000Z',
        item_header: { type: 'log' },
        payload_bytes: expect.any(Number),
        payload: { message: `boom\u001b[31m ${CUID}`, of: 'log' },
      });
    expect(all.out()).toContain(`${CUID}  event `);
    expect(all.out()).not.toContain('\u001b');
    expect(before.messages).toBeGreaterThan(0);
  });
});

it.each([
  ['ingest', 'SLUICE_PORT'],
  ['ingest', 'SLUICE_ADMIN_PORT'],
  ['processor', 'SLUICE_ADMIN_PORT'],
])('%s says in one line that the port of %s is taken, and who has it', async (command, setting) => {
  const taken = createServer().listen({ host: '127.0.0.1', port: await lastingPort() });
  await once(taken, 'listening');
  const { port } = taken.address() as { port: number };
  const others = { SLUICE_PORT: `${await lastingPort()}`, SLUICE_ADMIN_PORT: `${await lastingPort()}` };
  const sink = { SLUICE_SINK: `ndjson:${join(folder, 'sink')}` };
  const child = start([command], {
    ...urls(),
    ...others,
    ...sink,
    SLUICE_WORKERS: '1',
    [setting]: `${port}`,
  });
  expect(await child.ended).toBe(1);
  const by = process.platform === 'linux' ? ` by node.* \\(process ${process.pid}\\)` : '.*';
  const host = setting === 'SLUICE_PORT' ? '0.0.0.0' : '127.0.0.1';
  expect(child.err()).toMatch(
    new RegExp(`^sluice: cannot listen on ${host}:${port}: the port is taken \\(EADDRINUSE\\)${by}\n$`),
  );
  taken.close();
});
