/** What `npm run test:deployed` runs on is what it says. */
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { TestPostgres } from '../support/postgres.ts';
import { natsServer } from '../support/servers.ts';
import { DEPLOYED } from './versions.ts';

it('runs on the nats-server that deploy/ names', async () => {
  const nats = await natsServer();
  const { stdout } = spawnSync(nats.bin, ['--version'], { encoding: 'utf8' });
  await nats.close();
  expect(stdout.trim()).toBe(`nats-server: v${DEPLOYED.nats}`);
});

it('runs on the PostgreSQL that deploy/ names', async () => {
  const postgres = await TestPostgres.start();
  const rows = await postgres.query('SHOW server_version');
  await postgres.close();
  expect(rows).toEqual([{ server_version: DEPLOYED.postgres }]);
});
