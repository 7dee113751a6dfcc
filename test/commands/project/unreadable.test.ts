/** Records that a later build wrote, or another program spoiled: no command takes the others for all. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Kvm } from '@nats-io/kv';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { link as connect, makeBuckets, type NatsLink, openProjects } from '../../projects/broker.ts';
import { natsServer, type TestServer, temporaryFolder } from '../../support/servers.ts';
import { type Ran, runCommand } from '../run-command.ts';

const folder = temporaryFolder('unreadable');
const file = join(folder, 'projects.yaml');
const SPOILED = { err: expect.stringContaining('sluice: Records of projects cannot be read: 7 (') };
let nats: TestServer;
let link: NatsLink;
beforeAll(async () => {
  nats = await natsServer();
  link = await connect(nats.url);
  await makeBuckets(link);
  const store = await openProjects(link);
  await store.create({ id: '6', plan: 'Pro', overage: false, filters: [], allowedOrigins: [] });
  const bucket = await new Kvm(link.js).open('sluice_projects');
  await bucket.put('7', JSON.stringify({ ...(await store.get('6')), id: '7', ofALaterBuild: true }));
});
afterAll(async () => {
  await link?.close();
  await nats?.close();
  rmSync(folder, { recursive: true });
});

const sluice = (...args: string[]): Promise<Ran> => {
  const env = { SLUICE_NATS_URL: nats.url, SLUICE_REDIS_URL: 'redis://127.0.0.1:1' };
  return runCommand(['project', ...args], env);
};

it('project export writes nothing, and names the project', async () => {
  for (const flags of [[], ['--json']])
    expect(await sluice('export', ...flags)).toMatchObject({ ...SPOILED, status: 1, out: '' });
});

it('project apply plans and changes nothing, and names the project', async () => {
  writeFileSync(file, 'projects: [{ id: 7, plan: Pro }, { id: 8, plan: Pro }]');
  for (const flags of [['--dry-run'], ['--prune', '--dry-run'], [], ['--prune']])
    expect(await sluice('apply', '-f', file, ...flags)).toMatchObject({ ...SPOILED, status: 1, out: '' });
  expect(await sluice('show', '6')).toMatchObject({ status: 0 });
  expect(await sluice('show', '8')).toMatchObject({ status: 1 });
});

it('project list prints the others, and names the project', async () => {
  const ran = await sluice('list');
  expect(ran).toMatchObject({ ...SPOILED, status: 1 });
  expect(ran.out).toMatch(/^ID .*\n6 .*\n$/);
  const { status, out } = await sluice('list', '--json');
  const shown = JSON.parse((await sluice('show', '6', '--json')).out);
  expect([status, JSON.parse(out)]).toEqual([1, [{ ...shown, revision: expect.any(Number) }]]);
});
