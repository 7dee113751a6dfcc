import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { seededRandom } from '../../../bench/random.ts';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import type { Ask, WindowReply } from '../../../src/ingest/limit/scope-cache.ts';
import { rateKey } from '../../../src/ingest/limit/scripts.ts';
import { LEASE_NEED_MS, LEASE_NEED_SLOW_MS } from '../../../src/limits.ts';
import { rounds } from '../../support/rounds.ts';
import { redisServer, type TestServer } from '../../support/servers.ts';
import { callAdmit, connected } from './limit-fixture.ts';
import { WindowTwin } from './window-twin.ts';
import { World } from './world.ts';

let server: TestServer;
let redis: LimitRedis;
let operator: Redis;
let runs = 0;

beforeAll(async () => {
  server = await redisServer();
  redis = await connected(server.url);
  operator = new Redis(server.url);
});
afterAll(async () => {
  operator.disconnect();
  await redis.close();
  await server.close();
});

const T = 1_700_000_000_000;
const STEP = {
  waitMs: fc.oneof(
    { weight: 6, arbitrary: fc.integer({ min: 0, max: 600 }) },
    { weight: 2, arbitrary: fc.integer({ min: 1_000, max: 70_000 }) },
    fc.integer({ min: -90_000, max: -1 }),
    fc.integer({ min: -700, max: -1 }),
  ),
  need: fc.integer({ min: 0, max: 60 }),
  reserve: fc.integer({ min: 0, max: 20 }),
  /** A new limit with the next revision, or an old one. */
  limit: fc.option(fc.integer({ min: 1, max: 3_000 }), { freq: 10 }),
  /** Of an earlier reserve: how many come back and how many were used. */
  settle: fc.option(fc.record({ of: fc.nat(5), unused: fc.nat(12), used: fc.nat(12) }), { freq: 3 }),
  needMs: fc.constantFrom(LEASE_NEED_MS, LEASE_NEED_MS, LEASE_NEED_SLOW_MS),
  /** Need of an earlier call that came back too late, perhaps merged with reserve of the same bucket. */
  isVoid: fc.boolean(),
  knows: fc.option(fc.nat(5), { freq: 3 }),
};
const step = fc.record(STEP);

type Settling = { unused: number; used: number; isVoid: boolean };
const settledOf = (reply: WindowReply, { unused, used, isVoid }: Settling): Ask['settled'][number] => ({
  bucket: isVoid ? reply.needBucket : reply.reserveBucket,
  unused: isVoid ? unused + reply.granted : unused,
  used: isVoid ? used - reply.granted : used,
  endsAt: 0,
  next: undefined,
});

/** Buckets that are kept at 0, or have more reserve outstanding than booked. */
async function problemsOf(id: string): Promise<string[]> {
  const hash = await operator.hgetall(rateKey(id));
  return Object.entries(hash).flatMap(([name, value]) => {
    const bucket = /^x?(\d+)$/.exec(name)?.[1];
    if (bucket === undefined) return [];
    const isSound = Number(value) > 0 && Number(value) <= Number(hash[bucket] ?? 0);
    return isSound ? [] : [`${name} ${value}`];
  });
}

describe('the twin of the window of admit.lua', () => {
  it('answers every call as the script does', async () => {
    const scene = fc.record({
      limit: fc.oneof(fc.integer({ min: 1, max: 100 }), fc.constantFrom(800, 1000, 1001, 2000)),
      steps: fc.array(step, { minLength: 10, maxLength: 80 }),
    });
    await fc.assert(
      fc.asyncProperty(scene, async ({ limit: firstLimit, steps }) => {
        const twin = new WindowTwin();
        const id = `twin-${++runs}`;
        const replies: WindowReply[] = [];
        let now = T;
        let record = { limit: firstLimit, revision: 1 };
        for (const { waitMs, need, reserve, needMs, limit, settle, isVoid, knows } of steps) {
          now += waitMs;
          if (limit !== null) record = { limit, revision: record.revision + 1 };
          const known = knows === null ? undefined : replies.at(-1 - knows);
          const earlier = settle === null ? undefined : replies.at(-1 - settle.of);
          const ask: Ask = {
            sentAt: 0,
            need,
            reserve,
            needMs,
            revision: record.revision,
            settled: earlier && settle ? [settledOf(earlier, { ...settle, isVoid })] : [],
            known,
          };
          const call = { wishes: 't'.repeat(need), limit: record.limit, ask, now };
          const { window } = await callAdmit(redis, id, call);
          expect(window).toEqual(twin.call(call));
          replies.push(window as WindowReply);
          expect(await problemsOf(id)).toEqual([]);
        }
      }),
      { numRuns: rounds(60, 10), interruptAfterTimeLimit: 15_000 },
    );
  });
});

describe('twins of several windows', () => {
  /** Of what the first one is asked, at each step. */
  const calls = fc.array(
    fc.record({
      ...STEP,
      /** Of three windows in a row those from this one on are asked, as a key, its project and no more. */
      from: fc.nat(2),
    }),
    { minLength: 10, maxLength: 60 },
  );

  it('answer every call as the script does, whichever window begins', async () => {
    const limits = fc.tuple(
      ...[1, 2, 3].map(() => fc.oneof(fc.integer({ min: 1, max: 60 }), fc.constant(1_500))),
    );
    await fc.assert(
      fc.asyncProperty(limits, calls, async (all, steps) => {
        const windows = all.map((limit, i) => ({
          twin: new WindowTwin(),
          limit,
          name: i === 2 ? '' : `w${i}`,
        }));
        const id = `twins-${++runs}`;
        /** By the window that began. */
        const replies: WindowReply[][] = [[], [], []];
        let now = T;
        for (const { waitMs, need, reserve, needMs, settle, isVoid, knows, from } of steps) {
          now += waitMs;
          const [first, ...further] = windows.slice(from) as [(typeof windows)[0], ...typeof windows];
          const before = replies[from] as WindowReply[];
          const earlier = settle === null ? undefined : before.at(-1 - settle.of);
          const ask: Ask = {
            sentAt: 0,
            need,
            reserve,
            needMs,
            revision: 1,
            settled: earlier && settle ? [settledOf(earlier, { ...settle, isVoid })] : [],
            known: knows === null ? undefined : before.at(-1 - knows),
          };
          const call = { wishes: 't'.repeat(need), limit: first.limit, ask, now, further };
          const { window } = await callAdmit(redis, id, { ...call, window: first.name });
          expect(window).toEqual(first.twin.call(call));
          before.push(window as WindowReply);
        }
      }),
      { numRuns: rounds(60, 10), interruptAfterTimeLimit: 15_000 },
    );
  });
});

describe('a flood of 20 times the limit', () => {
  const cases: readonly (readonly [limit: number, workers: number])[] = [
    [60, 1],
    [1_000, 4],
    [30_000, 4],
    ...rounds([[199, 1] as const, [1_000, 1] as const, [30_000, 1] as const, [100_000, 4] as const], []),
  ];
  const begins = ['flood', 'steady'] as const;
  it.each(cases.flatMap(([limit, workers]) => begins.map((begin) => [limit, workers, begin] as const)))(
    'over %i a minute costs each of %i workers fewer than five calls a second, and wastes at most 2 percent (%s)',
    (limit, workers, begin) => {
      const result = new World({
        workers,
        weights: Array.from({ length: workers }, () => 1),
        limit,
        demand: 20 * limit,
        begin,
        wayMs: 1,
        random: seededRandom(1),
      }).run(180_000);
      expect((result.calls * 1000) / result.measuredMs / workers).toBeLessThan(5);
      expect(result.admitted / (3 * limit)).toBeGreaterThanOrEqual(0.98);
      expect(result.busiestWindow).toBeLessThanOrEqual(limit);
    },
  );
});
