import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findServer, freePort } from '../../src/dev/servers.ts';
import { RateLimiter } from '../../src/limit/rate-limiter.ts';
import { LimitRedis } from '../../src/limit/redis.ts';
import { quotaKey } from '../../src/limit/scripts.ts';
import { temporaryFolder } from '../support/servers.ts';
import { clock, log, until } from './limit-fixture.ts';

/** Two masters of a cluster, half of the slots each. */
const nodes: { port: number; process: ChildProcess; stop: () => Promise<void> }[] = [];
let redis: LimitRedis;

async function startNode(): Promise<void> {
  const bin = findServer('redis-server', { redis: process.env.REDIS_SERVER_BIN }, process.env.PATH ?? '');
  const port = await freePort();
  const busPort = await freePort();
  const dir = temporaryFolder('cluster');
  const args = [
    '--port',
    port,
    '--cluster-enabled',
    'yes',
    '--cluster-port',
    busPort,
    '--dir',
    dir,
    '--save',
    '',
  ];
  const child = spawn(bin ?? 'redis-server', [...args.map(String), '--bind', '127.0.0.1'], {
    stdio: 'ignore',
  });
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    await new Promise((done) => execFile('rm', ['-rf', dir], done));
  };
  nodes.push({ port, process: child, stop });
  for (let tries = 0; !(await operator(port, 'PING').catch(() => '')).includes('PONG'); tries++) {
    if (tries > 200) throw new Error('the node does not start');
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  await operator(port, `CLUSTER ADDSLOTSRANGE ${nodes.length === 1 ? '0 8191' : '8192 16383'}`);
  const [first] = nodes;
  // The bus port is the fourth argument, because it is not the port plus 10000.
  if (nodes.length === 2 && first) await operator(first.port, `CLUSTER MEET 127.0.0.1 ${port} ${busPort}`);
}

function operator(port: number, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(`${command}\r\n`));
    socket.once('error', reject);
    socket.once('data', (data) => {
      socket.destroy();
      resolve(data.toString());
    });
  });
}

beforeAll(async () => {
  await startNode();
  await startNode();
  for (const { port } of nodes)
    for (let ok = false; !ok; ok = (await operator(port, 'CLUSTER INFO')).includes('cluster_state:ok'))
      await new Promise((resolve) => setTimeout(resolve, 25));
  redis = new LimitRedis({ urls: nodes.map(({ port }) => `redis://127.0.0.1:${port}`), log, clock });
  await redis.connect();
});
afterAll(async () => {
  await redis?.close();
  await Promise.all(nodes.map((node) => node.stop()));
});

const month = (): string => new Date().toISOString().slice(0, 7);

describe('several URLs', () => {
  it('are a cluster: each project is counted on its own node, many in one turn', async () => {
    await until('available', () => redis.available);
    const ids = Array.from({ length: 100 }, (_, i) => `project-${i}`);
    const replies = await Promise.all(
      ids.map((id) => redis.request('quota', quotaKey(id), ['', 2, -1, month(), 0])),
    );
    expect(replies).toEqual(ids.map(() => [month(), 0, 2]));
    const sizes = await Promise.all(nodes.map(({ port }) => operator(port, 'DBSIZE')));
    const counts = sizes.map((text) => Number(text.slice(1)));
    expect(counts.reduce((a, b) => a + b)).toBe(100);
    expect(Math.min(...counts)).toBeGreaterThan(20);
  });

  it('limit exactly, as one server does', async () => {
    const limiter = new RateLimiter({ redis, clock });
    const subject = { projectId: 'exact', limit: 60, revision: 1 };
    const decisions = await Promise.all(
      Array.from({ length: 80 }, () => new Promise((done) => limiter.take(subject, done))),
    );
    limiter.close();
    expect(decisions.filter((decision) => (decision as { kind: string }).kind === 'admitted')).toHaveLength(
      60,
    );
  });

  it('survive SCRIPT FLUSH on every node', async () => {
    for (const { port } of nodes) await operator(port, 'SCRIPT FLUSH');
    const ids = Array.from({ length: 20 }, (_, i) => `project-${i}`);
    const replies = await Promise.all(
      ids.map((id) => redis.request('quota', quotaKey(id), ['', 1, -1, '', ''])),
    );
    expect(replies).toEqual(ids.map(() => [month(), 2, 1]));
  });

  it('go on with the projects of the other nodes while one hangs, and take its projects up again after', async () => {
    const [first, second] = nodes as [(typeof nodes)[number], (typeof nodes)[number]];
    const count = (id: string) => redis.request('quota', quotaKey(id), ['', 1, -1, month(), 0]);
    const { there, away } = await split(first.port);
    second.process.kill('SIGSTOP');
    const before = performance.now();
    const replies = await Promise.all([...there, ...away].map(count));
    expect(performance.now() - before).toBeLessThan(1000);
    expect(replies.map((reply) => reply !== undefined)).toEqual([
      ...there.map(() => true),
      ...away.map(() => false),
    ]);
    expect(await Promise.all(there.map(count))).not.toContain(undefined);
    second.process.kill('SIGCONT');
    const recovered = async (): Promise<boolean> => (await count(away[0] as string)) !== undefined;
    for (let tries = 0; !(await recovered()); tries++) {
      expect(tries).toBeLessThan(200);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(redis.available).toBe(true);
  });
});

/** Projects of the node at `port`, and of the other. */
async function split(port: number): Promise<{ there: string[]; away: string[] }> {
  const there: string[] = [];
  const away: string[] = [];
  for (let i = 0; i < 20; i++) {
    const slot = Number((await operator(port, `CLUSTER KEYSLOT ${quotaKey(`hang-${i}`)}`)).slice(1));
    (slot <= 8191 ? there : away).push(`hang-${i}`);
  }
  return { there, away };
}
