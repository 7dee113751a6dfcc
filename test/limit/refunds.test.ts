import { afterAll, beforeAll, expect, it } from 'vitest';
import { readUsage, setUsage } from '../../src/limit/month-count.ts';
import type { LimitRedis } from '../../src/limit/redis.ts';
import { quotaKey } from '../../src/limit/scripts.ts';
import { redisServer, type TestServer } from '../support/servers.ts';
import { admissionOn, connected, projectOf } from './limit-fixture.ts';

let server: TestServer;
let redis: LimitRedis;
beforeAll(async () => {
  server = await redisServer();
  redis = await connected(server.url);
});
afterAll(async () => {
  await redis?.close();
  await server?.close();
});

it('a count that is taken back as Redis falls silent is taken back when it answers again', async () => {
  const project = projectOf({ id: 'p' });
  const admission = admissionOn(redis);
  const { month } = await readUsage(redis, project.id);
  await setUsage(redis, { projectId: project.id, month, count: 5, seen: undefined });
  process.kill(server.pid, 'SIGSTOP');
  await new Promise<void>((resolve) => {
    const done = (): void => {
      admission.refund(project, month);
      resolve();
    };
    redis.call({ script: 'refund', keys: [quotaKey('another')], args: [month], done });
  });
  process.kill(server.pid, 'SIGCONT');
  await expect.poll(() => redis.available, { timeout: 5_000 }).toBe(true);
  const count = async (): Promise<number | undefined> => (await readUsage(redis, project.id)).count;
  await expect.poll(count, { timeout: 5_000 }).toBe(4);
  admission.close();
});

it('a call that Redis never got says so, where that matters', async () => {
  const closed = await connected(server.url);
  await closed.close();
  const call = { script: 'refund', keys: [quotaKey('p')], args: ['2026-01'] } as const;
  const said = new Promise((resolve) => {
    closed.call({ ...call, done: () => resolve('done'), unsent: () => resolve('unsent') });
  });
  expect(await said).toBe('unsent');
});
