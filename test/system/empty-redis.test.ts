/** A Redis that comes back empty, end to end: counting resumes from a checkpoint, and the sink's tally corrects the rest. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { CHECKPOINT_MS_MAX } from '../../src/limits.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { operator } from '../ingest/limit/redis-cluster.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { type Project, System, until } from '../support/system.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;
let system: System;
let project: Project;
beforeAll(async () => {
  system = await System.start({ workers: 2 });
  project = await system.createProject({ quota: 1_000 });
});
afterAll(() => system.stop());

/** The count as commands show it. */
async function usage(): Promise<number> {
  const { stdout } = await sluice('usage', project.id, '--json');
  return (JSON.parse(stdout) as { current: number }).current;
}

const sluice = (...args: string[]): Promise<{ stdout: string }> =>
  promisify(execFile)(process.execPath, [CLI, ...args], { env: { ...process.env, ...system.env } });

/** Sends one event and resolves with its position and what remains of the rate window. */
async function accepted(): Promise<{ position: number; remaining: number }> {
  const response = await system.send(project, errorEvent(eventId()));
  expect(response.status).toBe(200);
  await response.arrayBuffer();
  const [position, quota] = (response.headers.get('x-service-usage') ?? '').split('/').map(Number);
  expect(quota).toBe(1_000);
  return { position: position ?? 0, remaining: Number(response.headers.get('x-ratelimit-remaining')) };
}

describe('a Redis that lost everything', () => {
  it('counts on from a checkpoint that is at most ten seconds old, and what is missing is counted again by itself', async () => {
    const counters = new CheckpointBucket({ link: system.link, log: createLog('silent') });
    const month = new Date().toISOString().slice(0, 7);
    const noted = performance.now();
    for (let n = 1; n <= 5; n++) expect((await accepted()).position).toBe(n);
    await until(async () => (await counters.read(project.id, month)) === 5);
    // A second for a machine that is busy with something else.
    expect(performance.now() - noted).toBeLessThan(CHECKPOINT_MS_MAX + 1_000);
    const [six, seven] = [await accepted(), await accepted()];
    expect([six.position, seven.position]).toEqual([6, 7]);

    await operator(system.redis.port, 'FLUSHALL');
    const { position: first } = await accepted();
    // Of the last two the checkpoint may know or not: a worker may just have had its turn.
    expect(first).toBeOneOf([6, 7, 8]);
    const asked: number[] = [];
    for (let n = 0; n < 8; n++) asked.push((await accepted()).position);
    expect(asked).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((n) => first + n));
    // Both workers knew of bookings; the loss is told to one of them, once.
    await until(async () => (await system.metric('sluice_limiter_state_lost_total')) === 1);

    await until(async () => (await system.metric('sluice_counters_restored_total')) === 1);
    await system.ingest.logged('redis lost the count of a month: it goes on from a checkpoint');

    await until(() => system.stored().length === 16);
    // Of the checkpoint nothing was missing where it had all: then there is nothing to raise.
    const missing = 8 - first;
    await until(async () => (await usage()) === 16);
    if (missing > 0)
      await system.processor?.logged("processor: raised the count of a month to what the sink's tally says");
    const { stdout } = await sluice('usage', 'reconcile', project.id);
    expect(stdout).toContain(`the counter said 16, the sink's tally says 16. The counter stays as it is.`);
    expect((await accepted()).position).toBe(17);
    await until(async () => ((await counters.read(project.id, month)) ?? 0) >= 16);
  });
});
