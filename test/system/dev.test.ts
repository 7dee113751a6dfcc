/** `sluice dev` as a person uses it: start, paste, look, stop, start again. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import { keyId } from '../../src/projects/project.ts';
import { link as connect } from '../projects/broker.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;
const run = promisify(execFile);
/** What another terminal reads in dev.json. */
type DevFile = {
  pid: number;
  url: string;
  adminUrl: string;
  natsUrl: string;
  sinkDir: string;
  project: { id: string; key: string; dsn: string };
};
let dir: string;
let started: Dev[] = [];

class Dev {
  readonly child: ChildProcess;
  output = '';
  readonly exited: Promise<number | null>;
  /** All that it printed. At its exit some of that may not have been read yet. */
  readonly printed: Promise<string>;

  constructor(flags: readonly string[] = [], settings: Readonly<Record<string, string>> = {}) {
    this.child = spawn(process.execPath, [CLI, 'dev', ...flags], {
      cwd: dir,
      env: { ...process.env, ...settings },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.child.stdout, this.child.stderr])
      stream?.on('data', (data: Buffer) => {
        this.output += data.toString();
      });
    this.exited = new Promise((resolve) => this.child.once('exit', resolve));
    this.printed = new Promise((resolve) => this.child.once('close', () => resolve(this.output)));
    started.push(this);
  }

  static async start(settings: Readonly<Record<string, string>> = {}): Promise<Dev> {
    const ports = ['--port', `${await lastingPort()}`, '--admin-port', `${await lastingPort()}`];
    const dev = new Dev(ports, settings);
    await until(() => {
      if (dev.child.exitCode !== null) throw new Error(dev.output);
      return dev.output.includes('sluice is ready');
    });
    return dev;
  }

  get file(): DevFile {
    return JSON.parse(readFileSync(join(dir, '.sluice/dev.json'), 'utf8'));
  }

  async stop(): Promise<number | null> {
    this.child.kill('SIGTERM');
    return this.exited;
  }
}

beforeEach(() => {
  dir = temporaryFolder('dev');
});
afterEach(async () => {
  for (const dev of started) {
    dev.child.kill('SIGTERM');
    await dev.exited;
  }
  started = [];
  rmSync(dir, { recursive: true, force: true });
});

it('takes its addresses and the size of its streams from SLUICE_HOST, SLUICE_ADMIN_HOST and SLUICE_STREAM_MAX_BYTES', async () => {
  const host = process.platform === 'linux' ? '127.0.0.2' : '127.0.0.1';
  const dev = await Dev.start({
    SLUICE_HOST: host,
    SLUICE_ADMIN_HOST: host,
    SLUICE_STREAM_MAX_BYTES: `${8 * 1024 * 1024}`,
  });
  expect(dev.file.adminUrl).toMatch(new RegExp(`^http://${host}:`));
  expect((await fetch(`${dev.file.adminUrl}/readyz`)).status).toBe(200);
  expect(dev.file.url).toMatch(new RegExp(`^http://${host}:`));
  expect((await fetch(dev.file.url)).status).toBe(404);
  const link = await connect(dev.file.natsUrl);
  const { config } = await (await link.manager()).streams.info('SLUICE_EVENTS');
  await link.close();
  expect(config.max_bytes).toBeLessThanOrEqual(8 * 1024 * 1024);
  expect(config.max_bytes).toBeGreaterThan(7 * 1024 * 1024);
});

it('prints a curl line that any shell takes; its event is in the sink, and a line says so; it listens on loopback alone, and what it writes is for its user alone', async () => {
  const before = process.umask(0);
  // As an earlier version left it.
  mkdirSync(join(dir, '.sluice/sink'), { recursive: true, mode: 0o777 });
  const starting = Dev.start();
  const dev = await starting.finally(() => process.umask(before));
  const line = dev.output.split('\n').find((text) => text.trim().startsWith('curl ')) ?? '';
  const { stdout } = await run('/bin/sh', ['-c', line]);
  expect(stdout).toMatch(/^HTTP\/1.1 200 OK/);
  expect(JSON.parse(stdout.slice(stdout.lastIndexOf('{')))).toEqual({
    id: expect.stringMatching(/^[0-9a-f]{32}$/),
  });
  await until(() => storedMessages().length === 1);
  expect(storedMessages()).toEqual(['hello from curl']);
  await until(() => /ingest project 1 accepted/.test(dev.output));
  expect(dev.output).toContain(dev.file.project.dsn);
  const { url, project, adminUrl } = dev.file;
  const { port } = new URL(url);
  const post = (host: string): Promise<Response> =>
    fetch(`http://${host}:${port}/api/${project.id}/envelope/?compat_key=${project.key}`, {
      method: 'POST',
      body: '{}\n{"type":"event"}\n{"message":"secret"}',
    });
  expect((await post('127.0.0.1')).status).toBe(200);
  const [others] = Object.values(networkInterfaces()).map((all) =>
    all?.find(({ internal, family }) => !internal && family === 'IPv4'),
  );
  for (const address of [others?.address, '127.0.0.2'])
    if (address !== undefined) await expect(post(address)).rejects.toThrow();
  await until(() => storedMessages().length > 1);
  const open = readdirSync(join(dir, '.sluice'), { recursive: true, encoding: 'utf8' }).filter((name) => {
    const stat = statSync(join(dir, '.sluice', name), { throwIfNoEntry: false }); // NATS may remove a block
    if (!stat) return false;
    return (stat.mode & 0o077) !== 0 && !stat.isSocket(); // one that says that the folder is taken
  });
  expect(open).toEqual([]);
  expect(statSync(join(dir, '.sluice/dev.json')).mode & 0o777).toBe(0o600);
  expect((await fetch(`${adminUrl}/readyz`)).status).toBe(200);
});

it('says at once that both ports are the same', async () => {
  const dev = new Dev(['--port', '8081']);
  expect(await dev.exited).toBe(2);
  expect(await dev.printed).toContain('the admin port must differ from the port, both are 8081');
});

async function listenOn(port: number): Promise<Server> {
  const server = createServer((socket) => socket.destroy()).listen(port);
  await once(server, 'listening');
  return server;
}

/** What a start says that fails, when it has left nothing behind. */
async function failureOf(dev: Dev): Promise<string> {
  expect(await dev.exited).toBe(1);
  expect(existsSync(join(dir, '.sluice/dev.json'))).toBe(false);
  if (process.platform === 'linux') await until(() => processesOf(dir).length === 0);
  return dev.printed;
}

it('a taken port ends the start before anything runs: one line says which, who has it, and what to type', async () => {
  const [port, adminPort] = [await lastingPort(), await lastingPort()];
  const flags = ['--port', `${port}`, '--admin-port', `${adminPort}`];
  const by = process.platform === 'linux' ? ` by node.* \\(process ${process.pid}\\)` : '.*';
  const line = (ports: number[], hint: string): RegExp => {
    const each = ports.map(
      (taken) => `cannot listen on [^ ]+:${taken}: the port is taken \\(EADDRINUSE\\)${by}`,
    );
    return new RegExp(`^sluice: ${each.join('; ')}; choose another: npm start -- ${hint}\n$`);
  };
  const first = await listenOn(port);
  expect(await failureOf(new Dev(flags))).toMatch(line([port], '--port \\d+'));
  const second = await listenOn(adminPort);
  const both = await failureOf(new Dev(flags));
  expect(both).toMatch(line([port, adminPort], '--port \\d+ --admin-port \\d+'));
  first.close();
  const admin = await failureOf(new Dev(flags));
  expect(admin).toMatch(line([adminPort], '--port \\d+ --admin-port \\d+'));
  expect(readdirSync(join(dir, '.sluice'))).toEqual([]);
  const hinted = new Dev(/npm start -- (.+)\n/.exec(admin)?.[1]?.split(' '));
  await until(() => hinted.output.includes('sluice is ready'));
  second.close();
});

it('a start that fails for a taken port forgets nothing, even with --reset', async () => {
  const port = await lastingPort();
  const taken = await listenOn(port);
  const kept = join(dir, '.sluice/kept');
  mkdirSync(join(dir, '.sluice'));
  writeFileSync(kept, 'data');
  await failureOf(new Dev(['--reset', '--port', `${port}`, '--admin-port', `${await lastingPort()}`]));
  expect(existsSync(kept)).toBe(true);
  taken.close();
});

it.each(['ingest', 'processor', 'redis', 'nats'])(
  '%s that ends before it was ready ends the start with its error',
  async (part) => {
    const port = await lastingPort();
    const flags = ['--port', `${port}`, '--admin-port', `${await lastingPort()}`];
    mkdirSync(join(dir, '.sluice'));
    // The processor's folder is a file, and so are those of the servers; ingest loses its port after it was looked at.
    const wrong = { processor: 'sink', redis: 'redis', nats: 'nats' }[part];
    if (wrong) writeFileSync(join(dir, '.sluice', wrong), 'a file');
    const dev = new Dev(flags);
    if (!wrong) await until(() => existsSync(join(dir, '.sluice/redis')));
    const taken = wrong ? undefined : await listenOn(port);
    const output = await failureOf(dev);
    expect(output).toContain(wrong ? `.sluice/${wrong}` : `:${port}: the port is taken`);
    expect(output).not.toContain('starting it again');
    if (part === 'processor')
      expect(output).toContain('sluice processor ended at start (1); the lines above say why');
    taken?.close();
  },
);

function storedMessages(sink = join(dir, '.sluice/sink')): string[] {
  return readdirSync(sink, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ndjson'))
    .flatMap((file) => readFileSync(join(sink, file), 'utf8').trimEnd().split('\n'))
    .map((line) => JSON.parse(line).payload.message);
}

/** Processes of this machine that run in our folder, or name it. Redis writes its title over its arguments and its environment. */
function processesOf(folder: string): string[] {
  const names = (pid: string): boolean => {
    try {
      const said = ['cmdline', 'environ'].map((file) => readFileSync(`/proc/${pid}/${file}`, 'utf8'));
      return [...said, readlinkSync(`/proc/${pid}/cwd`)].some((text) => text.includes(folder));
    } catch {
      return false; // gone meanwhile
    }
  };
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name) && names(name));
}

/** By the name of its program, or by the last part of one of its arguments; undefined while there is none. */
function childOf(dev: Dev, name: string): number | undefined {
  const isNamed = (pid: number): boolean => {
    try {
      const said = ['comm', 'cmdline'].map((file) => readFileSync(`/proc/${pid}/${file}`, 'utf8').trim());
      return said.some((text) => text.split('\0').some((word) => word.endsWith(name)));
    } catch {
      return false; // gone meanwhile
    }
  };
  return childrenOf(dev.child.pid ?? 0).find(isNamed);
}

it('says an address that listens, stores where SLUICE_SINK says, and says why nothing is stored', async () => {
  const elsewhere = join(dir, 'elsewhere');
  const dev = await Dev.start({ SLUICE_SINK: `ndjson:${elsewhere}` });
  const { url, project, sinkDir } = dev.file;
  expect(new URL(project.dsn).hostname).toBe('127.0.0.1');
  expect(sinkDir).toBe(elsewhere);
  const send = (body: string, key = project.key): Promise<Response> =>
    fetch(`${url}/api/${project.id}/envelope/?sentry_key=${key}`, { method: 'POST', body });
  expect((await send('{}\n{"type":"event"}\n{"message":"elsewhere"}')).status).toBe(200);
  await until(() => storedMessages(elsewhere).includes('elsewhere'));
  await send('{"message":"no envelope"}');
  await until(() => dev.output.includes('ingest project 1 empty (no-items) 25 B'));
  await send('{\n"message":"no envelope"}');
  await until(() => dev.output.includes('project 1 invalid (the envelope header is no JSON object) 26 B'));
  await send('{}', 'wrong');
  await until(() => dev.output.includes(`project 1 forbidden_key (unknown-key, key ${keyId('wrong')}) `));
});

it('a second terminal needs no settings; a second dev on the folder is refused; a Ctrl-C that comes twice, from the terminal and from npm, stops everything once', async () => {
  const dev = await Dev.start();
  const { project, url, pid } = dev.file;
  expect(pid).toBe(dev.child.pid);
  const { stdout } = await run(process.execPath, [CLI, 'project', 'list', '--json'], { cwd: dir });
  expect(JSON.parse(stdout)).toMatchObject([
    { id: project.id, key: project.key, dsn: project.dsn, plan: 'Platform' },
  ]);
  expect(project.dsn).toBe(`${url.replace('://', `://${project.key}@`)}/${project.id}`);
  const second = new Dev();
  expect(await second.exited).toBe(1);
  expect(await second.printed).toContain('another sluice dev is running');
  dev.child.kill('SIGINT');
  await until(() => dev.output.includes('stopping'));
  dev.child.kill('SIGINT');
  expect(await dev.exited).toBe(0);
  expect(existsSync(join(dir, '.sluice/dev.json'))).toBe(false);
  // The shell that watches over Redis ends a moment after it.
  if (process.platform === 'linux') await until(() => processesOf(dir).length === 0);
});

it('a later Ctrl-C ends it at once, though a child does not stop', async () => {
  const dev = await Dev.start();
  const children = childrenOf(dev.child.pid as number);
  await Promise.all(children.map(freeze));
  try {
    await until(() => dev.child.signalCode !== null || !dev.child.kill('SIGINT'));
    expect(dev.child.signalCode).toBe('SIGINT');
  } finally {
    children.forEach(thaw);
  }
  if (process.platform === 'linux') await until(() => processesOf(dir).length === 0);
});

it('a second start finds projects and data again; --reset forgets them', async () => {
  const first = await Dev.start();
  const { project } = first.file;
  await first.stop();
  const second = await Dev.start();
  expect(second.file.project.key).toBe(project.key);
  await second.stop();
  const notOurs = join(dir, '.sluice/notes.txt');
  writeFileSync(notOurs, 'of somebody else');
  const third = new Dev([
    '--reset',
    '--port',
    `${await lastingPort()}`,
    '--admin-port',
    `${await lastingPort()}`,
  ]);
  await until(() => third.output.includes('sluice is ready'));
  expect(third.file.project.key).not.toBe(project.key);
  expect(existsSync(notOurs)).toBe(true);
});

it.runIf(process.platform === 'linux')(
  'a child that dies is started again, and killing dev leaves no orphans',
  async () => {
    const dev = await Dev.start();
    const { url, project } = dev.file;
    const send = async (): Promise<number> => {
      const body = '{}\n{"type":"event"}\n{"message":"again"}';
      return (
        await fetch(`${url}/api/${project.id}/envelope/?compat_key=${project.key}`, { method: 'POST', body })
      ).status;
    };
    const names = ['redis-server', 'nats-server', 'ingest/worker.js', 'processor'];
    for (const name of names) {
      const killed = childOf(dev, name);
      if (killed === undefined) throw new Error(`dev has no ${name}`);
      process.kill(killed, 'SIGKILL');
      await until(() => ![killed, undefined].includes(childOf(dev, name)));
      await until(async () => (await send().catch(() => 0)) === 200);
    }
    await until(() => storedMessages().length >= names.length);
    dev.child.kill('SIGKILL');
    await until(() => processesOf(dir).length === 0);
  },
);
