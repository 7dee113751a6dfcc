/** Redis behind three sentinels: the primary dies, a replica takes its place, and requests go on. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findServer } from '../../src/commands/dev/servers.ts';
import { withRedis } from '../../src/ingest/limit/redis-client.ts';
import { createLog } from '../../src/lib/log.ts';
import { answers, operator } from '../ingest/limit/redis-cluster.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, redisServer, type TestServer, temporaryFolder } from '../support/servers.ts';
import { type Project, System, until } from '../support/system.ts';

const dir = temporaryFolder('sentinel');
const passwordFile = join(dir, 'password');
const sentinels: { port: number; child: ChildProcess }[] = [];
let primary: TestServer;
let replica: TestServer;
let system: System;
let url: string;

async function startSentinel(at: number): Promise<void> {
  const port = await lastingPort();
  const file = join(dir, `sentinel-${at}.conf`);
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `sentinel monitor cell 127.0.0.1 ${primary.port} 2`,
    'sentinel down-after-milliseconds cell 500',
    'sentinel failover-timeout cell 3000',
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  const bin = findServer('redis-server', { redis: process.env.REDIS_SERVER_BIN }, process.env.PATH ?? '');
  const child = spawn(bin ?? 'redis-server', [file, '--sentinel'], { stdio: 'ignore' });
  sentinels.push({ port, child });
  await answers(port, 'PING', 'PONG');
}

/** How far the log of a server's writes goes. */
const offsetOf = async ({ port }: TestServer): Promise<string | undefined> =>
  /master_repl_offset:(\d+)/.exec(await operator(port, 'INFO replication'))?.[1];

beforeAll(async () => {
  [primary, replica] = await Promise.all([redisServer(), redisServer()]);
  for (const { port } of [primary, replica])
    await answers(port, 'ACL SETUSER sluice on >secret ~sluice:* +@all -@dangerous +info', 'OK');
  writeFileSync(passwordFile, 'secret\n');
  await answers(replica.port, `REPLICAOF 127.0.0.1 ${primary.port}`, 'OK');
  await answers(replica.port, 'INFO replication', 'master_link_status:up');
  for (let at = 0; at < 3; at++) await startSentinel(at);
  for (const { port } of sentinels) {
    await answers(port, 'SENTINEL CKQUORUM cell', 'OK 3 usable');
    await answers(port, 'SENTINEL REPLICAS cell', `${replica.port}`);
  }
  url = `redis+sentinel://sluice@${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/cell`;
  system = await System.start({
    env: { SLUICE_REDIS_URL: url, SLUICE_REDIS_PASSWORD_FILE: passwordFile },
  });
});
afterAll(async () => {
  await system?.stop();
  for (const { child } of sentinels) {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
  await Promise.all([primary?.close(), replica?.close()]);
  rmSync(dir, { recursive: true, force: true });
});

/** @returns the status and the request's place in the month */
async function send(project: Project): Promise<{ status: number; position: number }> {
  const answer = await system.send(project, errorEvent(eventId()));
  await answer.text();
  return {
    status: answer.status,
    position: Number.parseInt(answer.headers.get('x-service-usage') ?? '', 10),
  };
}

/**
 * Has a sentinel promote the replica. It gives a failover up where the replica is slow to answer, so the command is repeated, as an
 * operator would.
 * @returns when the replica was seen to be the primary, by performance.now()
 */
async function failOver(): Promise<number> {
  await until(async () => {
    // A server whose role changes cuts its connections, this one too.
    const role = await operator(replica.port, 'INFO replication').catch(() => '');
    if (role.includes('role:master')) return true;
    await operator(sentinels[0]?.port ?? 0, 'SENTINEL FAILOVER cell');
    return false;
  });
  return performance.now();
}

it('a failover on command refuses nobody, and workers go to the new primary at once', async () => {
  const project = await system.createProject({ quota: 100_000 });
  const statuses: number[] = [];
  let isOver = false;
  const client = async (): Promise<void> => {
    while (!isOver) statuses.push((await send(project)).status);
  };
  const clients = [client(), client(), client()];
  try {
    await until(() => statuses.length > 20);
    const promoted = await failOver();
    await answers(replica.port, 'CLIENT LIST', 'user=sluice');
    // By itself a sentinel demotes the one before, and cuts its connections, after eight seconds.
    expect(performance.now() - promoted).toBeLessThan(8_000);
    await answers(primary.port, 'INFO replication', 'role:slave');
  } finally {
    isOver = true;
  }
  await Promise.all(clients);
  expect(statuses.filter((status) => status !== 200)).toEqual([]);
  [primary, replica] = [replica, primary];
  await answers(replica.port, 'INFO replication', 'master_link_status:up');
  for (const { port } of sentinels) await answers(port, 'SENTINEL REPLICAS cell', `${replica.port}`);
});

it('a killed primary costs refusals until its replica is promoted, and counting goes on there', async () => {
  const project = await system.createProject({ quota: 1_000 });
  for (let position = 1; position <= 5; position++)
    expect(await send(project)).toEqual({ status: 200, position });
  await until(async () => (await offsetOf(primary)) === (await offsetOf(replica)));
  process.kill(primary.pid, 'SIGKILL');
  await primary.exited;
  // One sentinel less is enough, whichever the workers asked first.
  sentinels[0]?.child.kill('SIGKILL');
  const refused = new Set<number>();
  await until(async () => {
    const { status } = await send(project);
    if (status !== 200) refused.add(status);
    return status === 200;
  });
  expect([429, 500]).toEqual(expect.arrayContaining([...refused]));
  expect(await operator(replica.port, 'INFO replication')).toContain('role:master');
  const { position: before } = await send(project);
  expect(before).toBeGreaterThanOrEqual(7);
  for (let next = before + 1; next <= before + 20; next++)
    expect(await send(project)).toEqual({ status: 200, position: next });
});

it('commands find the primary in the same way', async () => {
  const access = { urls: [url] as const, passwordFile, log: createLog('silent') };
  expect(await withRedis(access, (client) => client.info('replication'))).toContain('role:master');
});
