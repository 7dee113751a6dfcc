/** Properties of the window over all workers, against an oracle that keeps every timestamp. fast-check prints the seed of a failure. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { rateKey } from '../../../src/ingest/limit/scripts.ts';
import { LEASE_NEED_SLOW_MS, RATE_BUCKET_MS, RATE_WINDOW_MS } from '../../../src/limits.ts';
import { rounds } from '../../support/rounds.ts';
import { redisServer, type TestServer } from '../../support/servers.ts';
import { connected } from './limit-fixture.ts';
import { type Journey, Simulation } from './limit-simulation.ts';
import { operator } from './redis-cluster.ts';

/** A failure is reported with its seed although there was no time to shrink it. */
const SHRINK_MS = 15_000;
/** Two for each bucket that a window and the longest lease can hold, and the named ones. */
const FIELDS_MAX = (2 * (RATE_WINDOW_MS + LEASE_NEED_SLOW_MS)) / RATE_BUCKET_MS + 10;

/** Admits as late as a lease allows; a minute later fresh workers ask every few milliseconds. */
async function fillLateAndHammer(
  world: Simulation,
  limit: number,
  demands: readonly { waitMs: number; worker: number; back: number }[],
): Promise<void> {
  const slow = (backMs: number): Journey => ({ thereMs: 0, backMs, lost: 'no' });
  for (const { waitMs, worker, back } of demands) {
    await world.advance(waitMs);
    world.demand({ worker, requests: Math.ceil(limit / 12), journey: slow(back) });
    world.demand({ worker: worker + 1, requests: 1, journey: slow(back) });
  }
  await world.advance(59_300);
  for (let i = 0; i < 300; i++) {
    await world.advance(7);
    world.restart(i);
    world.demand({ worker: i, requests: Math.ceil(limit / 4), journey: slow(0) });
  }
}

describe('the window over all workers', () => {
  let server: TestServer;
  let redis: LimitRedis;
  let runs = 0;

  beforeAll(async () => {
    server = await redisServer();
    redis = await connected(server.url);
  });
  afterAll(async () => {
    await redis.close();
    await server.close();
  });

  const fieldsOf = async (projectId: string): Promise<number> =>
    Number((await operator(server.port, `HLEN ${rateKey(projectId)}`)).slice(1));
  const journey: fc.Arbitrary<Journey> = fc.record({
    thereMs: fc.oneof(
      { weight: 6, arbitrary: fc.integer({ min: 0, max: 20 }) },
      fc.integer({ min: 0, max: 1200 }),
    ),
    backMs: fc.oneof(
      { weight: 6, arbitrary: fc.integer({ min: 0, max: 20 }) },
      fc.integer({ min: 0, max: 1200 }),
    ),
    lost: fc.constantFrom<Journey['lost']>('no', 'no', 'no', 'no', 'no', 'no', 'request', 'reply'),
  });
  const waitMs = fc.oneof(
    { weight: 5, arbitrary: fc.integer({ min: 0, max: 100 }) },
    { weight: 3, arbitrary: fc.integer({ min: 0, max: 2_000 }) },
    fc.integer({ min: 0, max: 45_000 }),
  );
  const simulation = (workers: number, limit: number, epoch: number): Simulation =>
    new Simulation(redis, {
      projectId: `simulated-${++runs}`,
      workers,
      record: { limit, revision: 1 },
      epoch: 1_700_000_000_000 + epoch,
    });

  it('never admits more than the limit in any 60 seconds, however calls travel and workers die', async () => {
    const steps = fc.array(
      fc.record({
        waitMs,
        worker: fc.nat(4),
        share: fc.double({ min: 0, max: 0.6, noNaN: true }),
        journey,
        dies: fc.nat(40),
      }),
      { minLength: 20, maxLength: 120 },
    );
    const limits = fc.oneof(fc.integer({ min: 1, max: 30 }), fc.constantFrom(200, 1000, 1500, 4000));
    await fc.assert(
      fc.asyncProperty(limits, fc.nat(10_000), steps, async (limit, epoch, demands) => {
        const world = simulation(5, limit, epoch / 7);
        for (const { waitMs: wait, worker, share, journey: way, dies } of demands) {
          await world.advance(wait);
          if (dies === 0) world.restart(worker);
          world.demand({ worker, requests: 1 + Math.floor(share * limit), journey: way });
        }
        await world.advance(5_000);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
        expect(await fieldsOf(world.memory)).toBeLessThanOrEqual(FIELDS_MAX);
      }),
      { numRuns: rounds(60, 10), interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it('never admits more than its own limit to a key, nor more than the limit to all, whoever asks for what', async () => {
    const steps = fc.array(
      fc.record({
        waitMs,
        worker: fc.nat(2),
        key: fc.option(fc.nat(1), { nil: undefined, freq: 3 }),
        share: fc.double({ min: 0, max: 0.6, noNaN: true }),
        journey,
        dies: fc.nat(40),
      }),
      { minLength: 20, maxLength: 120 },
    );
    const limits = fc.oneof(fc.integer({ min: 2, max: 30 }), fc.constantFrom(200, 1000, 1500, 4000));
    const shares = fc.tuple(fc.constantFrom(0.1, 0.5, 0.9), fc.constantFrom(0.5, 2));
    await fc.assert(
      fc.asyncProperty(limits, shares, steps, async (limit, [first, second], demands) => {
        const keys = [Math.ceil(limit * first), Math.ceil(limit * second)];
        const projectId = `keys-${++runs}`;
        const record = { limit, revision: 1 };
        const world = new Simulation(redis, {
          projectId,
          workers: 3,
          record,
          epoch: 1_700_000_000_000,
          keys,
        });
        for (const { waitMs: wait, worker, key, share, journey: way, dies } of demands) {
          await world.advance(wait);
          if (dies === 0) world.restart(worker);
          const requests = 1 + Math.floor(share * limit);
          world.demand({ worker, requests, journey: way, ...(key !== undefined && { key }) });
        }
        await world.advance(5_000);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
        for (const [key, own] of keys.entries()) expect(world.busiestWindow(key)).toBeLessThanOrEqual(own);
      }),
      { numRuns: rounds(60, 10), interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it('admits at least 98 percent of what a key may under steady over-demand of it, and leaves the rest to the others', async () => {
    const [limit, own] = [600, 150];
    const record = { limit, revision: 1 };
    const options = {
      projectId: `keys-${++runs}`,
      workers: 4,
      record,
      epoch: 1_700_000_000_000,
      keys: [own],
    };
    const world = new Simulation(redis, options);
    const way: Journey = { thereMs: 1, backMs: 1, lost: 'no' };
    for (let at = 0; at < 4 * 60_000; at += 50) {
      await world.advance(50);
      world.demand({ worker: at / 50, requests: 1, journey: way, key: 0 });
      if (at % 200 === 0) world.demand({ worker: at / 50, requests: 1, journey: way });
    }
    const steady = world.uses.filter((use) => use.at > 60_000);
    const ofKey = steady.filter(({ key }) => key === 0).length;
    expect(ofKey / (own * 3)).toBeGreaterThanOrEqual(0.98);
    expect(steady.length - ofKey).toBe(3 * 300);
    expect(world.busiestWindow(0)).toBeLessThanOrEqual(own);
  });

  const accident = fc.oneof(
    { weight: 8, arbitrary: fc.constant(undefined) },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant('clock' as const),
        ms: fc.integer({ min: 1, max: 7_200_000 }),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('clock' as const), ms: fc.integer({ min: 1, max: 900 }) }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart' as const), ms: fc.constant(0) }) },
  );
  const demands = (accidents: typeof accident) =>
    fc.array(
      fc.record({
        waitMs,
        worker: fc.nat(4),
        share: fc.double({ min: 0, max: 0.6, noNaN: true }),
        journey,
        dies: fc.nat(40),
        accident: accidents,
      }),
      { minLength: 20, maxLength: 120 },
    );

  it('never admits more when Redis restarts with its memory and its clock steps back, by milliseconds or hours', async () => {
    const limits = fc.oneof(fc.integer({ min: 1, max: 30 }), fc.constantFrom(200, 1000, 1500, 4000));
    await fc.assert(
      fc.asyncProperty(limits, demands(accident), async (limit, steps) => {
        const world = simulation(5, limit, 0);
        for (const { waitMs: wait, worker, share, journey: way, dies, accident: happens } of steps) {
          await world.advance(wait);
          if (dies === 0) world.restart(worker);
          if (happens?.kind === 'clock') world.stepClockBack(happens.ms);
          if (happens?.kind === 'restart') world.restartRedis('kept');
          world.demand({ worker, requests: 1 + Math.floor(share * limit), journey: way });
        }
        await world.advance(5_000);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
      }),
      { numRuns: rounds(80, 12), interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it('admits at most one further limit for each loss of memory, and says each that a worker can know of once', async () => {
    const limits = fc.oneof(fc.integer({ min: 1, max: 30 }), fc.constantFrom(200, 1500));
    const losses = fc.oneof(
      { weight: 9, arbitrary: fc.constant(undefined) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart' as const), ms: fc.constant(0) }) },
    );
    await fc.assert(
      fc.asyncProperty(limits, demands(losses), async (limit, steps) => {
        const world = simulation(5, limit, 0);
        for (const { waitMs: wait, worker, share, journey: way, accident: happens } of steps) {
          await world.advance(wait);
          if (happens) {
            world.restartRedis('lost');
            // A start takes longer than the millisecond by which the script tells generations apart.
            await world.advance(1);
          }
          world.demand({ worker, requests: 1 + Math.floor(share * limit), journey: way });
        }
        await world.advance(5_000);
        expect(world.worstExcessWithLosses(limit)).toBeLessThanOrEqual(0);
        expect(world.lossesSaid).toBe(world.lossesMet.size);
      }),
      { numRuns: rounds(80, 12), interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it('never admits more when uses come at the very end of leases and demand at the very start of room', async () => {
    const fill = fc.array(
      fc.record({ waitMs: fc.nat(60), worker: fc.nat(4), back: fc.integer({ min: 200, max: 248 }) }),
      { minLength: 5, maxLength: 30 },
    );
    const scene = fc.record({
      limit: fc.oneof(fc.integer({ min: 1, max: 30 }), fc.constantFrom(1001, 2000)),
      epoch: fc.nat(1000),
      fills: fc.array(fill, { minLength: 1, maxLength: 3 }),
    });
    await fc.assert(
      fc.asyncProperty(scene, async ({ limit, epoch, fills }) => {
        const world = simulation(5, limit, epoch);
        for (const demands of fills) await fillLateAndHammer(world, limit, demands);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
      }),
      { numRuns: rounds(25, 6), interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it('keeps reserves within the limit too when many small demands drain and return them', async () => {
    const steps = fc.array(
      fc.record({
        waitMs: fc.nat(400),
        worker: fc.nat(2),
        requests: fc.integer({ min: 1, max: 60 }),
        journey,
      }),
      { minLength: 150, maxLength: 300 },
    );
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1001, max: 3000 }), steps, async (limit, demands) => {
        const world = simulation(3, limit, 0);
        for (const { waitMs: wait, ...demand } of demands) {
          await world.advance(wait);
          world.demand(demand);
        }
        await world.advance(5_000);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
        expect(await fieldsOf(world.memory)).toBeLessThanOrEqual(FIELDS_MAX);
      }),
      { numRuns: rounds(30, 6), interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it('binds every grant to the newest limit that any worker brought before it', async () => {
    const steps = fc.array(
      fc.record({
        waitMs,
        worker: fc.nat(3),
        requests: fc.integer({ min: 1, max: 25 }),
        journey,
        limit: fc.option(fc.integer({ min: 1, max: 40 }), { freq: 6 }),
      }),
      { minLength: 20, maxLength: 100 },
    );
    await fc.assert(
      fc.asyncProperty(steps, async (demands) => {
        const world = simulation(4, 20, 0);
        let revision = 1;
        for (const { waitMs: wait, limit, ...demand } of demands) {
          await world.advance(wait);
          if (limit !== null) world.setRecord(demand.worker, { limit, revision: ++revision });
          world.demand(demand);
        }
        await world.advance(5_000);
        expect(world.worstExcess()).toBeLessThanOrEqual(0);
      }),
      { numRuns: rounds(60, 10), interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it.each([
    [60, 1],
    [600, 4],
    [1_000, 4],
    [6_000, 4],
  ])(
    'admits at least 98 percent of %i a minute under steady over-demand from %i workers',
    async (limit, workers) => {
      const world = simulation(workers, limit, 0);
      const way: Journey = { thereMs: 1, backMs: 1, lost: 'no' };
      const minutes = 4;
      const stepMs = 50;
      let owed = 0;
      for (let at = 0; at < minutes * 60_000; at += stepMs) {
        await world.advance(stepMs);
        owed += (1.5 * limit * stepMs) / 60_000;
        for (let worker = 0; owed >= 1; worker++, owed--)
          world.demand({ worker: worker + at / stepMs, requests: 1, journey: way });
      }
      // From the second window on: the first is full from its start.
      const steady = world.uses.filter((use) => use.at > 60_000).length;
      expect(steady / (limit * (minutes - 1))).toBeGreaterThanOrEqual(0.98);
      expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
    },
  );
});
