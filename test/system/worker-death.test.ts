/** A worker dies beside one that serves: what was at it goes with it, and nobody notices afterwards. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import type { FromWorker } from '../../src/ingest/worker-pool.ts';
import { connectionsTo } from '../faults/soak/watch.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort } from '../support/servers.ts';
import { System, until } from '../support/system.ts';

const CLIENTS = 8;

/** State of a listening socket in /proc/net/tcp. */
const LISTENS = '0A';
/** Sockets that listen on a port; each worker has one of its own. */
function listenersOf(port: number): number {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const sockets = readFileSync('/proc/net/tcp', 'utf8').trim().split('\n').slice(1);
  const fields = sockets.map((line) => line.trim().split(/\s+/));
  return fields.filter(([, address, , state]) => address?.endsWith(local) && state === LISTENS).length;
}

interface Told {
  /** On this process's clock, ms. */
  readonly begunAt: number;
  /** The status, or how the connection ended. */
  readonly status: number | string;
}

/** On a connection of its own unless `agent` keeps some. @returns the status, or how the connection ended */
function post(url: string, agent: Agent | false = false): Promise<number | string> {
  return new Promise((resolve) => {
    const req = request(url, { agent, method: 'POST' }, (res) => {
      res.resume();
      res.once('end', () => resolve(res.statusCode ?? 0));
      res.once('error', () => resolve('cut'));
    });
    req.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    req.end(errorEvent(eventId()));
  });
}

it.runIf(process.platform === 'linux')(
  'clients that keep their connections come to its successor, and no request fails for it',
  async () => {
    const system = await System.start({ workers: 2, processor: false });
    const port = Number(new URL(system.url).port);
    const workers = (): number[] => childrenOf(system.ingest.child.pid ?? 0);
    const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
    // Refused for want of a key: that costs the least.
    const url = `${system.url}/api/1/envelope/`;
    const told = new Map<number | string, number>();
    let stopped = false;
    const client = async (): Promise<void> => {
      while (!stopped) {
        const status = await post(url, agent);
        told.set(status, (told.get(status) ?? 0) + 1);
      }
    };
    const [first = 0, second = 0] = workers();
    process.kill(first, 'SIGKILL');
    await until(() => !workers().includes(first));
    // All come to the one that is left, and would stay.
    const clients = Array.from({ length: CLIENTS }, client);
    await until(() => connectionsTo(second, port) > 0);
    await until(() => workers().length === 2 && listenersOf(port) === 2);
    const successor = workers().find((pid) => pid !== second) ?? 0;
    await until(() => connectionsTo(successor, port) > 1);
    stopped = true;
    await Promise.all(clients);
    agent.destroy();
    expect([...told.keys()]).toEqual([401]);
    await system.stop();
  },
);

it.runIf(process.platform === 'linux')(
  'no request comes to its successor before that can serve',
  async () => {
    const system = await System.start({ workers: 2, processor: false });
    const url = system.endpoint(await system.createProject());
    const workers = (): number[] => childrenOf(system.ingest.child.pid ?? 0);
    const told: Told[] = [];
    let stopped = false;
    const client = async (): Promise<void> => {
      while (!stopped) told.push({ begunAt: performance.now(), status: await post(url) });
    };
    const clients = Array.from({ length: CLIENTS }, client);
    await until(() => told.length > 100);
    const [first = 0, second = 0] = workers();
    expect(Math.min(first, second)).toBeGreaterThan(0);
    process.kill(first, 'SIGKILL');
    // Until it is gone its listener is there beside its dying connections: a client's next try may go down with it too.
    await until(() => !workers().includes(first));
    const goneAt = performance.now();
    await until(() => workers().length === 2 && listenersOf(system.port) === 2);
    const served = told.length;
    await until(() => told.length > served + 100);
    stopped = true;
    await Promise.all(clients);
    const later = told.filter(({ begunAt }) => begunAt > goneAt);
    expect(later.length).toBeGreaterThan(100);
    expect(later.filter(({ status }) => status === 503 || typeof status === 'string')).toEqual([]);
    // The successor does serve: nobody else can, for some hundred milliseconds.
    process.kill(second, 'SIGKILL');
    await until(() => !workers().includes(second));
    expect(await post(url)).toBe(200);
    expect(await system.ingest.stop()).toBe(0);
    await system.stop();
  },
);

it.runIf(process.platform === 'linux')(
  'a successor that finds no registry for five seconds listens beside the other, and says to come again in a second',
  async () => {
    const system = await System.start({ workers: 2, processor: false });
    const [first = 0] = childrenOf(system.ingest.child.pid ?? 0);
    await system.nats.stop();
    process.kill(first, 'SIGKILL');
    // Until it is gone a connection may go down with it.
    await until(() => !childrenOf(system.ingest.child.pid ?? 0).includes(first));
    const ask = (): Promise<Response> =>
      fetch(`${system.url}/api/1/envelope/?compat_key=1`, {
        method: 'POST',
        headers: { connection: 'close' },
        body: '{}',
      });
    // The other one knows that there is no project 1.
    expect((await ask()).status).toBe(401);
    await until(async () => {
      const answer = await ask();
      if (answer.status === 401) return false;
      expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '1']);
      return true;
    });
    await system.restartNats();
    await until(async () => (await fetch(`${system.adminUrl}/readyz`)).status === 200);
    await system.stop();
  },
);

const WORKER = new URL('../../dist/ingest/worker.js', import.meta.url);
type Beat = Extract<FromWorker, { kind: 'beat' }>;

/** Accepted requests as a beat tells them; undefined when it has no metrics. */
const acceptedIn = ({ snapshot }: Beat): number | undefined =>
  snapshot
    ?.find(({ name }) => name === 'sluice_requests_total')
    ?.values.find(({ labels }) => labels.endpoint === 'ingest' && labels.outcome === 'accepted')?.value;

it('a worker tells its counts at once, and again only when there are others or its primary asks', async () => {
  const system = await System.start({ workers: 1, processor: false });
  const project = await system.createProject();
  // This worker's primary is the test.
  const port = await lastingPort();
  const env = { ...process.env, ...system.env, SLUICE_PORT: `${port}` };
  const worker = fork(WORKER, { env, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const exited = once(worker, 'exit');
  const beats: Beat[] = [];
  worker.on('message', (message: FromWorker) => {
    if (message.kind === 'beat') beats.push(message);
  });
  const next = async (count: number): Promise<Beat[]> => {
    const from = beats.length;
    await until(() => beats.length >= from + count);
    return beats.slice(from, from + count);
  };
  await until(() => beats.some(({ readiness }) => readiness.status === 'ready'));
  expect(beats.filter(({ snapshot }) => snapshot).map(acceptedIn)).toEqual([0]);
  expect((await next(2)).map(acceptedIn)).toEqual([undefined, undefined]);
  const url = system.endpoint(project).replace(`:${system.port}/`, `:${port}/`);
  expect(await post(url)).toBe(200);
  await until(() => beats.some((beat) => acceptedIn(beat) === 1));
  expect((await next(2)).map(acceptedIn)).toEqual([undefined, undefined]);
  worker.send({ kind: 'beat', projects: false, name: 'worker 1' });
  await until(() => beats.some(({ process }) => process));
  expect(beats.filter(({ process }) => process).map(acceptedIn)).toEqual([1]);
  worker.kill();
  await exited;
  await system.stop();
});

it('the counts of a worker that died stay in the metrics', async () => {
  const system = await System.start({ workers: 1, processor: false });
  const url = system.endpoint(await system.createProject());
  const accepted = () => system.metric('sluice_requests_total', '{endpoint="ingest",outcome="accepted"}');
  expect(await post(url)).toBe(200);
  await until(async () => (await accepted()) === 1);
  const [first = 0] = childrenOf(system.ingest.child.pid ?? 0);
  process.kill(first, 'SIGKILL');
  await until(async () => (await post(url)) === 200);
  await until(async () => (await accepted()) === 2);
  await system.stop();
});
