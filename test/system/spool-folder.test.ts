/** What becomes of large envelopes when their spool has no place: 503 to them, nothing to the others, and no restart needed after. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventId } from '../support/envelopes.ts';
import { temporaryFolder } from '../support/servers.ts';
import { MIB, type Project, System, until } from '../support/system.ts';

const root = temporaryFolder('spool-folder');
const folder = join(root, 'spool');
const isMounted = (options: string): boolean =>
  spawnSync('mount', ['-t', 'tmpfs', ...options.split(' '), 'tmpfs', folder]).status === 0;
const unmount = (): void => void spawnSync('umount', [folder]);

let system: System;
let project: Project;

beforeAll(async () => {
  mkdirSync(folder);
  // As a worker leaves it that is killed between making a file and removing its name.
  writeFileSync(join(folder, 'sluice-spool-1-0123456789abcdef'), '');
  system = await System.start({ env: { SLUICE_SPOOL_DIR: folder } });
  project = await system.createProject();
});
afterAll(async () => {
  unmount();
  rmSync(root, { recursive: true, force: true });
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

const envelopeOf = (bytes: number): string =>
  `{"event_id":"${eventId()}"}\n{"type":"event"}\n{"message":"${'x'.repeat(bytes)}"}`;
async function answers(): Promise<{ small: number; large: (number | string | null)[] }> {
  const [large, small] = await Promise.all([
    system.send(project, envelopeOf(3 * MIB)),
    system.send(project, envelopeOf(10_000)),
  ]);
  return { small: small.status, large: [large.status, await large.text(), large.headers.get('retry-after')] };
}
const REFUSED = { small: 200, large: [503, '{"error":"Service overloaded"}', '5'] };

async function expectRecovery(): Promise<void> {
  expect((await answers()).large[0]).toBe(200);
  expect(await system.metric('sluice_spooled_bytes')).toBe(0);
  expect(await system.metric('sluice_buffered_bytes')).toBe(0);
  expect(await system.metric('sluice_worker_restarts_total')).toBe(0);
}

it('is free of the names of workers that were killed', () => until(() => readdirSync(folder).length === 0));

it('a folder that is missing refuses large envelopes only, until it is back', async () => {
  rmSync(folder, { recursive: true });
  expect(await answers()).toEqual(REFUSED);
  mkdirSync(folder);
  await expectRecovery();
});

// Only who may mount can have a full disk of a MiB; elsewhere the unit test with /dev/full stands for it.
const mayMount = isMounted('-o size=1m');
unmount();
it(`a disk that is full refuses large envelopes only, until there is room (a small disk: ${mayMount ? 'mounted' : 'not allowed'})`, async () => {
  if (mayMount) {
    expect(isMounted('-o size=1m')).toBe(true);
    expect(await answers()).toEqual(REFUSED);
    expect(isMounted('-o remount,size=64m')).toBe(true);
  }
  await expectRecovery();
});
