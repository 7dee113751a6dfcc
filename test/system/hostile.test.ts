/** The hostile benches in small: what they show at size is in bench/results. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runMutations } from '../../bench/hostile/mutations.ts';
import { HostileWorker } from '../../bench/hostile/worker.ts';
import type { Project } from '../../src/registry/project.ts';
import { MIB, System } from '../support/system.ts';

let system: System;
let project: Project;
let worker: HostileWorker;

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_PLAN_LIMITS: 'free-only' } });
  project = await system.createProject({ filters: ['browser-extension', 'localhost', 'crawler'] });
  worker = new HostileWorker();
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

describe('a worker', () => {
  it('answers ten thousand mutated envelopes as documented, and lives', async () => {
    const seed = Math.floor(Math.random() * 0x1_0000_0000);
    const count = 10_000;
    const result = await runMutations(worker, { targets: [project], count, seed, connections: 8 });
    const { answers, surprises, restarts, memory } = result;
    expect({ seed, surprises, restarts }).toEqual({ seed, surprises: [], restarts: 0 });
    expect(answers['200']).toBeGreaterThan(count / 10);
    expect(answers['400']).toBeGreaterThan(count / 10);
    expect(memory.peak - memory.before, `seed ${seed}`).toBeLessThan(150 * MIB);
    await worker.idle();
    expect(worker.spoolFiles()).toEqual({ open: 0, named: 0 });
  });
});
