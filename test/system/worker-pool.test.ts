/** What a primary knows of its workers; the workers are programs of the test. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { COLLECTIONS_ON_REQUEST, WorkerPool, YOUNG_SPACE } from '../../src/ingest/worker-pool.ts';
import { createLog } from '../../src/lib/log.ts';
import { WORKER_SILENT_MS_MAX } from '../../src/limits.ts';
import { temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';

const PROGRAM = new URL('./slow-worker.mjs', import.meta.url);
let dir: string;
let pool: WorkerPool | undefined;
afterEach(() => pool?.stop());

function poolOf(count: number, startMs: number, log = createLog('silent')): WorkerPool {
  dir = temporaryFolder('workers');
  for (const [name, value] of Object.entries({
    TAKEN: join(dir, 'taken'),
    GO: join(dir, 'go'),
    BORN: join(dir, 'born'),
  }))
    vi.stubEnv(name, value);
  vi.stubEnv('START_MS', `${startMs}`);
  pool = new WorkerPool({ program: PROGRAM, count, log, onRequests: () => undefined });
  return pool;
}
const saidBy = ({ readiness }: WorkerPool): (string | undefined)[] =>
  readiness.map((one) => one?.status).sort();

it('is complete when all workers have been ready, not when the first one is', async () => {
  const workers = poolOf(2, 0);
  await until(() => saidBy(workers).join() === 'not ready,ready');
  expect(workers.wasComplete).toBe(false);
  writeFileSync(join(dir, 'go'), '');
  await until(() => workers.wasComplete);
  expect(saidBy(workers)).toEqual(['ready', 'ready']);
});

it('has more patience with a worker that starts than with one that falls silent', async () => {
  const workers = poolOf(1, WORKER_SILENT_MS_MAX + 2_000);
  await until(() => workers.wasComplete);
  expect(workers.restarts).toBe(0);
});

it('goes on when no successor can be started, and tries again', async () => {
  const log = createLog('silent');
  const said = vi.spyOn(log, 'error');
  const workers = poolOf(1, 0, log);
  await until(() => saidBy(workers).join() === 'ready');
  // The kernel takes no variable of this size (E2BIG), which fork() throws as it does where memory is short.
  process.env.TOO_LONG = 'x'.repeat(256 * 1024);
  try {
    process.kill(Number(readFileSync(join(dir, 'taken'), 'utf8')), 'SIGKILL');
    await until(() => said.mock.calls.some(([, text]) => text === 'no worker can be started'));
  } finally {
    delete process.env.TOO_LONG;
  }
  await until(() => saidBy(workers).length === 1);
});

it('starts a worker again also when the system could not start it, and ends', async () => {
  const workers = poolOf(1, 0);
  await until(() => workers.wasComplete);
  const { execPath } = process;
  process.execPath = join(dir, 'no-such-program');
  try {
    process.kill(Number(readFileSync(join(dir, 'taken'), 'utf8')), 'SIGKILL');
    await until(() => workers.restarts >= 3);
    expect(workers.size).toBeLessThanOrEqual(1);
  } finally {
    process.execPath = execPath;
  }
  writeFileSync(join(dir, 'go'), '');
  await until(() => saidBy(workers).join() === 'ready');
  await workers.stop();
  expect(workers.size).toBe(0);
});

it.runIf(process.platform === 'linux')(
  'bounds the young space of its workers, and lets them ask for its collection',
  async () => {
    const workers = poolOf(1, 0);
    await until(() => workers.wasComplete);
    const pid = readFileSync(join(dir, 'born'), 'utf8').split(' ')[1]?.trim();
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    expect(args).toEqual(expect.arrayContaining([YOUNG_SPACE, COLLECTIONS_ON_REQUEST]));
  },
);
