import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { redisServer } from '../support/servers.ts';
import { RedisMarker } from './redis-marker.ts';

it.each([
  ['a file that is synced before each answer', ['appendfsync', 'always'], false],
  ['no file', ['appendonly', 'no'], true],
] as const)('of a Redis with %s, killed and started again', async (_what, setting, isLost) => {
  const redis = await redisServer();
  const client = new Redis(redis.url);
  await client.config('SET', ...setting);
  const marker = await RedisMarker.begin(redis.url);
  await pause(100);
  client.disconnect();
  process.kill(redis.pid, 'SIGKILL');
  await redis.exited;
  const again = await redisServer({ port: redis.port, dir: redis.dir });
  const lost = await marker.lost(again.url);
  await again.close();
  expect(lost > 0).toBe(isLost);
});
