import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LeaseCache, type WindowReply } from '../../src/limit/lease-cache.ts';
import type { LimitRedis } from '../../src/limit/redis.ts';
import { redisServer, type TestServer } from '../support/servers.ts';
import { connected } from './limit-fixture.ts';
import { type Journey, Simulation } from './limit-simulation.ts';

/** A failure is reported with its seed although there was no time to shrink it. */
const SHRINK_MS = 15_000;
const record = { limit: 100_000, revision: 1 };
const windowReply = (of: Partial<WindowReply>): WindowReply => ({
  granted: 1,
  excess: 0,
  excessBucket: 7,
  booked: 1,
  limit: record.limit,
  revision: 1,
  now: 1_000_000,
  emptyAt: 1_060_500,
  admitsAt: 0,
  gen: 1,
  seq: 1,
  scarce: false,
  ...of,
});

/** A cache that has asked often enough to want a reserve, and got `excess` tokens at 0 ms. */
function withReserve(excess: number): LeaseCache {
  const cache = new LeaseCache();
  const first = cache.ask(-50, 40, record);
  cache.answer(first, windowReply({ granted: 40 }), -50);
  cache.answer(cache.ask(0, 1, record), windowReply({ excess }), 1);
  return cache;
}

describe('LeaseCache', () => {
  it('knows nothing at first', () => {
    expect(new LeaseCache().take(0, 1)).toBeUndefined();
  });

  it('wants no reserve for the first request after a lull, and some once there is demand', () => {
    const cache = new LeaseCache();
    expect(cache.ask(0, 1, record).excess).toBe(0);
    expect(cache.ask(10, 1, record).excess).toBe(3);
    expect(cache.ask(20, 1, { limit: 49, revision: 1 }).excess).toBe(0);
    expect(cache.ask(600_000, 1, record).excess).toBe(0);
  });

  it('uses reserve up to half a second after the call was sent, and no longer', () => {
    const cache = withReserve(3);
    expect(cache.take(1, 1)).toMatchObject({ kind: 'admitted', remaining: record.limit - 1 + 2 });
    expect(cache.take(498.9, 1)).toMatchObject({ kind: 'admitted' });
    expect(cache.take(499, 1)).toBeUndefined();
  });

  it('tells the next call what was used and what was not, once', () => {
    const cache = withReserve(3);
    cache.take(1, 1);
    expect(cache.hasReturns(498)).toBe(false);
    expect(cache.hasReturns(499)).toBe(true);
    expect(cache.ask(499, 1, record).settled).toMatchObject([{ bucket: 7, unused: 2, used: 1 }]);
    expect(cache.ask(500, 1, record).settled).toEqual([]);
    expect(cache.unused).toBe(0);
  });

  it('admits nobody by a reply that comes later than the lease of what waited', () => {
    const cache = new LeaseCache();
    expect(cache.answer(cache.ask(0, 2, record), windowReply({ granted: 2 }), 248.9)).toHaveLength(2);
    expect(cache.answer(cache.ask(0, 2, record), windowReply({ granted: 2 }), 249)).toBeUndefined();
    expect(cache.take(249, 1)).toBeUndefined();
  });

  it('sends the reserve of a late reply back', () => {
    const cache = new LeaseCache();
    cache.answer(cache.ask(-50, 40, record), windowReply({ granted: 40 }), -50);
    cache.answer(cache.ask(0, 2, record), windowReply({ granted: 2, excess: 3 }), 499);
    expect(cache.take(499, 1)).toBeUndefined();
    expect(cache.ask(499, 0, record).settled).toMatchObject([{ unused: 3, used: 0 }]);
  });

  it('keeps a refusal until the window admits, at least 300 ms, and only for records up to its own', () => {
    const cache = new LeaseCache();
    const refused = windowReply({ granted: 0, admitsAt: 1_000_400 });
    cache.answer(cache.ask(0, 1, record), refused, 10);
    expect(cache.take(409, 1)).toEqual({ kind: 'refused', resetSec: 1001 });
    expect(cache.take(410, 1)).toBeUndefined();
    cache.answer(cache.ask(500, 1, record), windowReply({ granted: 0, admitsAt: 1_000_001 }), 510);
    expect(cache.take(809, 1)).toMatchObject({ kind: 'refused' });
    expect(cache.take(809, 2)).toBeUndefined();
  });

  it('refuses after the last token of a reply that left the window full, and for 300 ms when room is scarce', () => {
    const cache = new LeaseCache();
    cache.answer(cache.ask(0, 1, record), windowReply({ admitsAt: 1_000_400 }), 10);
    expect(cache.take(409, 1)).toMatchObject({ kind: 'refused' });
    expect(cache.take(410, 1)).toBeUndefined();
    const contended = cache.ask(450, 40, record);
    cache.answer(contended, windowReply({ granted: 40 }), 450);
    const next = cache.ask(500, 1, record);
    cache.answer(next, windowReply({ excess: 1, scarce: true }), 500);
    expect(cache.take(501, 1)).toMatchObject({ kind: 'admitted' });
    expect(cache.take(799, 1)).toMatchObject({ kind: 'refused' });
    expect(cache.take(800, 1)).toBeUndefined();
  });

  it('decides in arrival order', () => {
    const cache = new LeaseCache();
    const exact = { limit: 10, revision: 1 };
    const reply = windowReply({ granted: 2, booked: 10, limit: 10, admitsAt: 1_000_500 });
    expect(cache.answer(cache.ask(0, 3, exact), reply, 1)).toEqual([
      { kind: 'admitted', remaining: 1, resetSec: 1061 },
      { kind: 'admitted', remaining: 0, resetSec: 1061 },
      { kind: 'refused', resetSec: 1001 },
    ]);
  });
});

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
      }),
      { numRuns: 60, interruptAfterTimeLimit: SHRINK_MS },
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
      { numRuns: 25, interruptAfterTimeLimit: SHRINK_MS },
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
      }),
      { numRuns: 30, interruptAfterTimeLimit: SHRINK_MS },
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
      { numRuns: 60, interruptAfterTimeLimit: SHRINK_MS },
    );
  });

  it.each([
    [60, 1],
    [600, 4],
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
