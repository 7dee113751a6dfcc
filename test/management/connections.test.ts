import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { Connections, withoutPassword } from '../../src/management/connections.ts';
import { redisServer, temporaryFolder } from '../support/servers.ts';

it('to Redis are tried anew when a file of its settings is there again', async () => {
  const [server, dir] = [await redisServer(), temporaryFolder('password')];
  const redisPasswordFile = join(dir, 'password');
  const connections = new Connections({
    redisUrls: [server.url],
    redisPasswordFile,
    natsUrls: [],
    natsCredsFile: undefined,
    name: 'test',
    log: createLog('silent'),
  });
  await expect(connections.redis()).rejects.toMatchObject({ name: 'OperationError', kind: 'unavailable' });
  writeFileSync(redisPasswordFile, 'x');
  expect((await connections.redis()).available).toBe(true);
  await connections.close();
  await server.close();
  rmSync(dir, { recursive: true });
});

it.each([
  ['redis://:p@ss@host:6379', 'redis://…@host:6379'],
  ['postgres://u@host/db?password=secret&sslmode=require', 'postgres://…@host/db?password=…&sslmode=require'],
  ['postgres://u:a:b@host/db', 'postgres://…@host/db'],
  ['nats://host:4222', 'nats://host:4222'],
])('%s is shown without its password', (url, shown) => {
  expect(withoutPassword(url)).toBe(shown);
});
