/** What a primary knows of its workers; the workers are programs of the test. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { WorkerPool } from '../../src/worker-pool.ts';
import { temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';

let pool: WorkerPool | undefined;
afterEach(() => pool?.stop());

it('is complete when all workers have been ready, not when the first one is, and stays so', async () => {
  const dir = temporaryFolder('workers');
  vi.stubEnv('TAKEN', join(dir, 'taken'));
  vi.stubEnv('GO', join(dir, 'go'));
  const program = new URL('./slow-worker.mjs', import.meta.url);
  const workers = new WorkerPool({
    program,
    count: 2,
    log: createLog('silent'),
    onRequests: () => undefined,
  });
  pool = workers;
  const said = (): (string | undefined)[] => workers.readiness.map((one) => one?.status).sort();
  await until(() => said().join() === 'not ready,ready');
  expect(workers.wasComplete).toBe(false);
  writeFileSync(join(dir, 'go'), '');
  await until(() => workers.wasComplete);
  expect(said()).toEqual(['ready', 'ready']);
});
