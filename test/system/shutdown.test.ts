/** SIGTERM under load, and a primary that dies: what was answered 200 is stored, and no request that a worker has begun to read is reset. */
import { existsSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { RawConnection } from '../support/raw-http.ts';
import { lastingPort } from '../support/servers.ts';
import { Command, type Project, System, until } from '../support/system.ts';

const CONNECTIONS = 32;
/** A worker tells its primary how it fares at least once in this time. */
const BEATS_MS = 700;

type Told = { id: string; status: number | string };

function post(agent: Agent, url: string, id: string): Promise<Told> {
  return new Promise((resolve) => {
    const req = request(url, { agent, method: 'POST' }, (res) => {
      res.resume();
      res.once('end', () => resolve({ id, status: res.statusCode ?? 0 }));
      res.once('error', () => resolve({ id, status: 'cut' }));
    });
    req.once('error', (error: NodeJS.ErrnoException) => resolve({ id, status: error.code ?? error.message }));
    req.end(errorEvent(id));
  });
}

/** Its head is read; its body comes when `finish` is called, which returns the answer's status. */
async function beginRequest(system: System, project: Project) {
  const connection = await RawConnection.open(system.port);
  const id = eventId();
  const body = errorEvent(id);
  const { pathname, search } = new URL(system.endpoint(project));
  connection.send(
    `POST ${pathname}${search} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 10)}`,
  );
  const finish = async (): Promise<number | undefined> => {
    connection.send(body.slice(10));
    return (await connection.receive())[0]?.status;
  };
  return { id, finish };
}

/** Also when nobody has asked yet how it ended. */
const isGone = (pid: number): boolean =>
  !existsSync(`/proc/${pid}`) || readFileSync(`/proc/${pid}/cmdline`, 'utf8') === '';

it('loses and resets nothing', async () => {
  const system = await System.start({ workers: 2 });
  const project = await system.createProject();
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const told: Told[] = [];
  let stopped = false;
  const client = async (): Promise<void> => {
    while (!stopped) {
      const answer = await post(agent, system.endpoint(project), eventId());
      told.push(answer);
      if (answer.status === 'ECONNREFUSED') return;
    }
  };
  const clients = Array.from({ length: CONNECTIONS }, client);
  await until(() => told.length > 2_000);
  const slow = await beginRequest(system, project);
  const exited = system.ingest.stop('SIGTERM');
  // The listeners are closed, and the connections that are left are about to be.
  await until(() => told.some(({ status }) => status === 'ECONNREFUSED'));
  expect(await slow.finish()).toBe(200);
  expect(await exited).toBe(0);
  stopped = true;
  await Promise.all(clients);
  agent.destroy();
  expect([...new Set(told.map(({ status }) => `${status}`))].sort()).toEqual(['200', 'ECONNREFUSED']);
  const accepted = told.filter(({ status }) => status === 200).map(({ id }) => id);
  await until(() => system.stored().length >= accepted.length + 1);
  const stored = system.stored().map((record) => record.event_id);
  expect(new Set(stored).size).toBe(stored.length);
  expect(stored.sort()).toEqual([...accepted, slow.id].sort());
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

it.runIf(process.platform === 'linux')(
  'leaves in order too when the primary has died while its workers stood still',
  async () => {
    const system = await System.start({ workers: 2 });
    const project = await system.createProject();
    const slow = await beginRequest(system, project);
    await pause(BEATS_MS);
    const workers = childrenOf(system.ingest.child.pid ?? 0);
    expect(workers).toHaveLength(2);
    for (const pid of workers) await freeze(pid);
    await pause(BEATS_MS);
    system.ingest.child.kill('SIGKILL');
    await system.ingest.exited;
    // The first thing that each does now is to tell somebody who is not there how it fares.
    for (const pid of workers) thaw(pid);
    await pause(BEATS_MS);
    expect(await slow.finish()).toBe(200);
    await system.storedOf(slow.id);
    await until(() => workers.every(isGone));
    expect(system.ingest.errors).toEqual([]);
    await system.stop();
  },
);

it.runIf(process.platform === 'linux')('finishes what is open when it is told twice to leave', async () => {
  const system = await System.start({ workers: 2 });
  const slow = await beginRequest(system, await system.createProject());
  await pause(BEATS_MS);
  const workers = childrenOf(system.ingest.child.pid ?? 0);
  system.ingest.child.kill('SIGTERM');
  for (const pid of workers) process.kill(pid, 'SIGTERM');
  await pause(BEATS_MS);
  system.ingest.child.kill('SIGKILL');
  await pause(BEATS_MS);
  expect(await slow.finish()).toBe(200);
  await system.storedOf(slow.id);
  await until(() => workers.every(isGone));
  await system.stop();
});

/** A primary whose workers find neither Redis nor a broker. */
async function startWithoutServers({ workers = 2, adminPort = 0 } = {}): Promise<Command> {
  return new Command(['ingest'], {
    SLUICE_PORT: `${await lastingPort()}`,
    SLUICE_ADMIN_PORT: `${adminPort || (await lastingPort())}`,
    SLUICE_WORKERS: `${workers}`,
    SLUICE_REDIS_URL: 'redis://127.0.0.1:1',
    SLUICE_NATS_URL: 'nats://127.0.0.1:1',
  });
}

/** As soon as there is one. */
async function firstChild(ingest: Command): Promise<number> {
  for (;;) {
    expect(ingest.child.exitCode, ingest.log).toBeNull();
    const [first] = childrenOf(ingest.child.pid ?? 0);
    if (first !== undefined) return first;
    await pause(0);
  }
}

it.runIf(process.platform === 'linux')(
  'leaves also when the primary died before the worker was loaded',
  async () => {
    const ingest = await startWithoutServers();
    let workers: number[] = [];
    await until(() => {
      workers = childrenOf(ingest.child.pid ?? 0);
      return workers.length === 2;
    });
    ingest.child.kill('SIGKILL');
    await until(() => workers.every(isGone), 20_000);
  },
);

it.runIf(process.platform === 'linux')(
  'takes the workers along when it is told to leave while it starts them',
  async () => {
    const ingest = await startWithoutServers();
    const workers = new Set([await firstChild(ingest)]);
    ingest.child.kill('SIGTERM');
    const watch = setInterval(() => {
      for (const pid of childrenOf(ingest.child.pid ?? 0)) workers.add(pid);
    }, 2);
    expect(await ingest.exited).toBe(0);
    clearInterval(watch);
    expect([...workers].filter((pid) => !isGone(pid))).toEqual([]);
  },
);

it.runIf(process.platform === 'linux')(
  'ends with its workers when somebody takes the admin port while it starts them',
  async () => {
    const adminPort = await lastingPort();
    const taker = createServer();
    // It has looked at the port before its first fork, and listens after its last: we are faster than sixteen.
    const ingest = await startWithoutServers({ workers: 16, adminPort });
    await firstChild(ingest);
    await new Promise<void>((resolve, reject) => {
      taker.once('error', reject);
      taker.listen(adminPort, '127.0.0.1', resolve);
    });
    const workers = new Set<number>();
    const watch = setInterval(() => {
      for (const pid of childrenOf(ingest.child.pid ?? 0)) workers.add(pid);
    }, 2);
    const ended = await Promise.race([ingest.exited, pause(30_000, 'still there')]);
    clearInterval(watch);
    taker.close();
    await ingest.stop('SIGKILL');
    expect(ended).toBe(1);
    await ingest.logged('EADDRINUSE');
    // We may be too slow to see all sixteen.
    expect(workers.size).toBeGreaterThan(0);
    expect([...workers].filter((pid) => !isGone(pid))).toEqual([]);
  },
);
