/** When a primary says that it is ready. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { System, until } from '../support/system.ts';

let system: System;
beforeAll(async () => {
  system = await System.start({ workers: 2, processor: false });
});
afterAll(() => system?.stop());

const statusOf = (url: string): Promise<number> =>
  fetch(`${url}/readyz`, { headers: { connection: 'close' }, signal: AbortSignal.timeout(1_000) }).then(
    ({ status }) => status,
    () => 0,
  );

/** A child that was stopped before it has become our program would hold the primary, which waits for that. */
const isWorker = (pid: number): boolean =>
  readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('ingest/worker.js');

/** Starts it with one worker that stands still from its first moments. @returns what the primary says while the other one serves */
async function statusWithHalf(): Promise<number> {
  await system.ingest.stop();
  system.ingest = system.startIngest();
  let held: number | undefined;
  await until(() => {
    expect(system.ingest.child.exitCode, system.ingest.log).toBeNull();
    held = childrenOf(system.ingest.child.pid ?? 0)[1];
    return held !== undefined && isWorker(held);
  });
  await freeze(held);
  try {
    await until(async () => (await statusOf(system.url)) === 200);
    return await statusOf(system.adminUrl);
  } finally {
    thaw(held);
  }
}

it.runIf(process.platform === 'linux')('does not do so while a worker has not come up', async () => {
  // A test that was slow may have stopped a worker that served already: that says nothing.
  const said: number[] = [];
  while (said.length < 5 && !said.includes(503)) said.push(await statusWithHalf());
  expect(said).toContain(503);
  await until(async () => (await statusOf(system.adminUrl)) === 200);
});
