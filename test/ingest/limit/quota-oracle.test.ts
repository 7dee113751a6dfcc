/** Properties of the quota over all workers, whatever dies. fast-check prints the seed of a failure. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CountDecision } from '../../../src/ingest/limit/admission.ts';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import type { ProjectState } from '../../../src/projects/project-state.ts';
import { redisServer, type TestServer } from '../../support/servers.ts';
import {
  admissionOn,
  connected,
  count,
  elsewhere,
  MemoryCheckpoints,
  projectOf,
  type TestAdmission,
} from './limit-fixture.ts';

let server: TestServer;
let project = 0;

beforeAll(async () => {
  server = await redisServer();
});
afterAll(() => server.close());

/** Each keeps its own object of a project, as a process does. */
type Worker = {
  redis: LimitRedis;
  counter: TestAdmission;
  count(of: ProjectState): Promise<CountDecision>;
};
const positionsOf = (decisions: readonly CountDecision[]): number[] =>
  decisions
    .flatMap((decision) => (decision.kind === 'counted' ? [decision.position] : []))
    .sort((a, b) => a - b);
const upTo = (n: number): number[] => Array.from({ length: n }, (_, i) => i + 1);

async function startWorker(store: MemoryCheckpoints, scriptNow?: () => number): Promise<Worker> {
  const redis = await connected(server.url);
  const counter = admissionOn(redis, { store, ...(scriptNow && { scriptNow }) });
  const own = new Map<string, ProjectState>();
  const countOwn = (of: ProjectState): Promise<CountDecision> => {
    const state = own.get(of.id) ?? elsewhere(of);
    own.set(of.id, state);
    return count(counter, state);
  };
  return { redis, counter, count: countOwn };
}
const stop = async ({ redis, counter }: Worker): Promise<void> => {
  counter.close();
  await counter.checkpoints.close();
  await redis.close();
};

const burst = fc.record({
  worker: fc.nat(3),
  n: fc.integer({ min: 1, max: 12 }),
  turns: fc.nat(2),
  dies: fc.nat(7),
});

describe('positions', () => {
  it('are a permutation of 1..n over all workers while nothing fails', async () => {
    const bursts = fc.array(burst, { minLength: 1, maxLength: 60 });
    const checkpoints = new MemoryCheckpoints();
    const workers = await Promise.all(upTo(4).map(() => startWorker(checkpoints)));
    await fc.assert(
      fc.asyncProperty(bursts, fc.option(fc.nat(200)), async (steps, quota) => {
        const of = projectOf({ id: `permutation-${++project}`, quota: quota ?? undefined });
        const waiting: Promise<CountDecision>[] = [];
        for (const { worker, n, turns } of steps) {
          for (let i = 0; i < n; i++) waiting.push((workers[worker] as Worker).count(of));
          for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
        }
        const decisions = await Promise.all(waiting);
        expect(positionsOf(decisions)).toEqual(
          upTo(Math.min(decisions.length, quota ?? Number.POSITIVE_INFINITY)),
        );
        expect(decisions.filter(({ kind }) => kind === 'unavailable')).toEqual([]);
      }),
      { numRuns: 60, interruptAfterTimeLimit: 15_000 },
    );
    await Promise.all(workers.map(stop));
  });

  it('are given at most once and never past the quota when workers die with calls under way: what is missing is wasted', async () => {
    const bursts = fc.array(burst, { minLength: 5, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(bursts, fc.option(fc.integer({ min: 1, max: 150 })), async (steps, quota) => {
        const of = projectOf({ id: `crash-${++project}`, quota: quota ?? undefined });
        const checkpoints = new MemoryCheckpoints();
        const workers = await Promise.all(upTo(4).map(() => startWorker(checkpoints)));
        const waiting: Promise<CountDecision>[] = [];
        for (const { worker: at, n, turns, dies } of steps) {
          const worker = workers[at] as Worker;
          for (let i = 0; i < n; i++) waiting.push(worker.count(of));
          for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
          if (dies > 0) continue;
          // Its connection breaks wherever its calls are; another process takes its place.
          await worker.redis.close();
          workers[at] = await startWorker(checkpoints);
        }
        const decisions = await Promise.all(waiting);
        const last = await count((workers[0] as Worker).counter, projectOf({ id: of.id, overage: true }));
        const positions = positionsOf(decisions);
        expect(new Set(positions).size).toBe(positions.length);
        if (quota !== null) expect(positions.at(-1) ?? 0).toBeLessThanOrEqual(quota);
        // The counter is never lower than what was told, and never higher than what was asked for.
        const counted = last.kind === 'counted' ? last.position - 1 : -1;
        expect(counted).toBeGreaterThanOrEqual(positions.length);
        expect(counted).toBeLessThanOrEqual(decisions.length);
        await Promise.all(workers.map(stop));
      }),
      { numRuns: 30, interruptAfterTimeLimit: 15_000 },
    );
  });
});

describe('the month', () => {
  it('turns at midnight UTC under load, on all workers alike: each month is counted from 1 without a gap', async () => {
    const midnight = Date.UTC(2026, 6, 1);
    let now = midnight - 40;
    const checkpoints = new MemoryCheckpoints();
    const workers = await Promise.all(upTo(4).map(() => startWorker(checkpoints, () => now)));
    const of = projectOf({ id: `midnight-${++project}`, quota: 350 });
    const waiting: Promise<CountDecision>[] = [];
    for (; now < midnight + 40; now++) {
      const asked = workers.flatMap((worker) => upTo(3).map(() => worker.count(of)));
      waiting.push(...asked);
      await Promise.race(asked); // the others are under way while the clock goes on
    }
    const decisions = await Promise.all(waiting);
    const inMonth = (month: string): CountDecision[] =>
      decisions.filter((decision) => decision.kind !== 'unavailable' && decision.month === month);
    expect(inMonth('2026-06').length + inMonth('2026-07').length).toBe(80 * 4 * 3);
    expect(Math.min(inMonth('2026-06').length, inMonth('2026-07').length)).toBeGreaterThan(400);
    for (const month of ['2026-06', '2026-07']) expect(positionsOf(inMonth(month))).toEqual(upTo(350));
    await Promise.all(workers.map(stop));
    // The old month's last figure is billed, so it was written as well.
    expect(checkpoints.figures.get(`${of.id} 2026-06`)).toBe(350);
  });
});
