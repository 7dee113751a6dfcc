import { afterAll, beforeAll, expect, it } from 'vitest';
import { Refunds, readUsage, setUsage } from '../../../src/ingest/limit/month-count.ts';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { quotaKey } from '../../../src/ingest/limit/scripts.ts';
import type { Log } from '../../../src/lib/log.ts';
import { redisServer, type TestServer } from '../../support/servers.ts';
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

it('what Redis never got stays owed, and is logged when nobody can send it any more', async () => {
  const closing = await connected(server.url);
  const lost: unknown[] = [];
  const log = { warn: (of: unknown) => lost.push(of) } as unknown as Log;
  const refunds = new Refunds({ redis: closing, log }, () => undefined);
  refunds.refund('p', '2026-01');
  await closing.close();
  expect(lost).toEqual([]);
  refunds.close();
  refunds.refund('q', '2026-01');
  expect(lost).toEqual([
    { project: 'p', month: '2026-01' },
    { project: 'q', month: '2026-01' },
  ]);
});
