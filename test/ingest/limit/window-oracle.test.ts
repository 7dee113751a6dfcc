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
  let worlds = 0;

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
  const wayMs = fc.oneof(
    { weight: 6, arbitrary: fc.integer({ min: 0, max: 20 }) },
    fc.integer({ min: 0, max: 1200 }),
  );
  const journey: fc.Arbitrary<Journey> = fc.record({
    thereMs: wayMs,
    backMs: wayMs,
    lost: fc.constantFrom<Journey['lost']>('no', 'no', 'no', 'no', 'no', 'no', 'request', 'reply'),
  });
  const waitMs = fc.oneof(
    { weight: 5, arbitrary: fc.integer({ min: 0, max: 100 }) },
    { weight: 3, arbitrary: fc.integer({ min: 0, max: 2_000 }) },
    fc.integer({ min: 0, max: 45_000 }),
  );
  const LIMITS = fc.oneof(fc.integer({ min: 1, max: 30 }), fc.constantFrom(200, 1000, 1500, 4000));
  const STEP = {
    waitMs,
    worker: fc.nat(4),
    share: fc.double({ min: 0, max: 0.6, noNaN: true }),
    journey,
    dies: fc.nat(40).map((at) => at === 0),
  };
  /** `happens` comes before what is asked in the step: what it is, is for the test to say. */
  type Step = {
    waitMs: number;
    worker: number;
    share: number;
    journey: Journey;
    dies: boolean;
    key?: number;
    happens?: 'restart' | number | undefined;
  };
  const steps = (more: Record<string, fc.Arbitrary<unknown>> = {}): fc.Arbitrary<Step[]> =>
    fc.array(fc.record({ ...STEP, ...more }) as fc.Arbitrary<Step>, { minLength: 20, maxLength: 120 });
  type Happening = (happens: NonNullable<Step['happens']>, worker: number) => unknown;
  async function play(world: Simulation, limit: number, all: Step[], happening?: Happening): Promise<void> {
    for (const { waitMs: wait, worker, share, journey: way, dies, key, happens } of all) {
      await world.advance(wait);
      if (dies) world.restart(worker);
      if (happens !== undefined) await happening?.(happens, worker);
      const requests = 1 + Math.floor(share * limit);
      world.demand({ worker, requests, journey: way, ...(key !== undefined && { key }) });
    }
    await world.advance(5_000);
  }
  const runs = (inLongRun: number, otherwise: number) => ({
    numRuns: rounds(inLongRun, otherwise),
    interruptAfterTimeLimit: SHRINK_MS,
  });
  const simulation = (
    workers: number,
    limit: number,
    epoch: number,
    more: { keys?: number[] } = {},
  ): Simulation =>
    new Simulation(redis, {
      projectId: `simulated-${++worlds}`,
      workers,
      record: { limit, revision: 1 },
      epoch: 1_700_000_000_000 + epoch,
      ...more,
    });

  it('never admits more than the limit in any 60 seconds, however calls travel and workers die', async () => {
    await fc.assert(
      fc.asyncProperty(LIMITS, fc.nat(10_000), steps(), async (limit, epoch, all) => {
        const world = simulation(5, limit, epoch / 7);
        await play(world, limit, all);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
        expect(await fieldsOf(world.memory)).toBeLessThanOrEqual(FIELDS_MAX);
      }),
      runs(60, 10),
    );
  });

  it('never admits more than its own limit to a key, nor more than the limit to all, whoever asks for what', async () => {
    const shares = fc.tuple(fc.constantFrom(0.1, 0.5, 0.9), fc.constantFrom(0.5, 2));
    const ofKeys = steps({ key: fc.option(fc.nat(1), { nil: undefined, freq: 3 }) });
    await fc.assert(
      fc.asyncProperty(LIMITS, shares, ofKeys, async (limit, [first, second], all) => {
        const keys = [Math.ceil(limit * first), Math.ceil(limit * second)];
        const world = simulation(3, limit, 0, { keys });
        await play(world, limit, all);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
        for (const [key, own] of keys.entries()) expect(world.busiestWindow(key)).toBeLessThanOrEqual(own);
      }),
      runs(60, 10),
    );
  });

  it('admits at least 98 percent of what a key may under steady over-demand of it, and leaves the rest to the others', async () => {
    const [limit, own] = [600, 150];
    const world = simulation(4, limit, 0, { keys: [own] });
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

  const nothing = (weight: number) => ({ weight, arbitrary: fc.constant(undefined) });
  const stepBackMs = (weight: number, max: number) => ({ weight, arbitrary: fc.integer({ min: 1, max }) });
  const restart = { weight: 1, arbitrary: fc.constant('restart' as const) };

  it('never admits more when Redis restarts with its memory and its clock steps back, by milliseconds or hours', async () => {
    const happens = fc.oneof(nothing(8), stepBackMs(2, 7_200_000), stepBackMs(1, 900), restart);
    await fc.assert(
      fc.asyncProperty(LIMITS, steps({ happens }), async (limit, all) => {
        const world = simulation(5, limit, 0);
        await play(world, limit, all, (accident) =>
          accident === 'restart' ? world.restartRedis('kept') : world.stepClockBack(accident),
        );
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
      }),
      runs(80, 12),
    );
  });

  it('admits at most one further limit for each loss of memory, and says each that a worker can know of once', async () => {
    const limits = fc.oneof(fc.integer({ min: 1, max: 30 }), fc.constantFrom(200, 1500));
    const losing = steps({ dies: fc.constant(false), happens: fc.oneof(nothing(9), restart) });
    await fc.assert(
      fc.asyncProperty(limits, losing, async (limit, all) => {
        const world = simulation(5, limit, 0);
        await play(world, limit, all, () => {
          world.restartRedis('lost');
          // A start takes longer than the millisecond by which the script tells generations apart.
          return world.advance(1);
        });
        expect(world.worstExcessWithLosses(limit)).toBeLessThanOrEqual(0);
        expect(world.lossesSaid).toBe(world.lossesMet.size);
      }),
      runs(80, 12),
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
      runs(25, 6),
    );
  });

  it('keeps reserves within the limit too when many small demands drain and return them', async () => {
    const requests = fc.integer({ min: 1, max: 60 });
    const small = fc.record({ waitMs: fc.nat(400), worker: fc.nat(2), requests, journey });
    const many = fc.array(small, { minLength: 150, maxLength: 300 });
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1001, max: 3000 }), many, async (limit, demands) => {
        const world = simulation(3, limit, 0);
        for (const { waitMs: wait, ...demand } of demands) {
          await world.advance(wait);
          world.demand(demand);
        }
        await world.advance(5_000);
        expect(world.busiestWindow()).toBeLessThanOrEqual(limit);
        expect(await fieldsOf(world.memory)).toBeLessThanOrEqual(FIELDS_MAX);
      }),
      runs(30, 6),
    );
  });

  it('binds every grant to the newest limit that any worker brought before it', async () => {
    const happens = fc.option(fc.integer({ min: 1, max: 40 }), { nil: undefined, freq: 6 });
    await fc.assert(
      fc.asyncProperty(steps({ dies: fc.constant(false), happens }), async (all) => {
        const world = simulation(4, 20, 0);
        let revision = 1;
        await play(world, 40, all, (limit, worker) =>
          world.setRecord(worker, { limit: Number(limit), revision: ++revision }),
        );
        expect(world.worstExcess()).toBeLessThanOrEqual(0);
      }),
      runs(60, 10),
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
