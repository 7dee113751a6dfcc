import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type RateDecision, RateLimiter, type RateSubject } from '../../src/limit/rate-limiter.ts';
import type { LimitRedis } from '../../src/limit/redis.ts';
import { rateKey } from '../../src/limit/scripts.ts';
import { clock, connected, pause, quotaOn, take, takeNow, until } from './limit-fixture.ts';
import { STORES, type Store } from './stores.ts';

describe.each(STORES)('on $name', ({ start }) => {
  let server: Store;
  /** One connection per worker. */
  let workers: LimitRedis[];
  let limiters: RateLimiter[] = [];
  let project = 0;

  beforeAll(async () => {
    server = await start();
    workers = await Promise.all([1, 2, 3, 4].map(() => connected(...server.urls)));
  });
  afterEach(() => {
    for (const limiter of limiters) limiter.close();
    limiters = [];
  });
  afterAll(async () => {
    await Promise.all(workers.map((redis) => redis.close()));
    await server.close();
  });

  function makeLimiters(count: number): RateLimiter[] {
    limiters = workers
      .slice(0, count)
      .map((redis) => new RateLimiter({ redis, clock, quota: quotaOn(redis) }));
    return limiters;
  }
  const subject = (limit: number, revision = 1): RateSubject => ({
    id: `rate-${++project}`,
    limit,
    revision,
  });
  const kinds = (decisions: RateDecision[], kind: RateDecision['kind']): number =>
    decisions.filter((decision) => decision.kind === kind).length;
  const callCount = (): number => workers.reduce((sum, redis) => sum + redis.stats.calls.rateWindow, 0);

  /** Takes `total` tokens over all limiters in bursts, each worker awaiting its own burst. */
  async function burst(of: RateSubject, total: number, burstSize: number): Promise<RateDecision[]> {
    let left = total;
    const one = async (limiter: RateLimiter): Promise<RateDecision[]> => {
      const decisions: RateDecision[] = [];
      while (left > 0) {
        const n = Math.min(left, burstSize);
        left -= n;
        decisions.push(...(await Promise.all(Array.from({ length: n }, () => take(limiter, of)))));
      }
      return decisions;
    };
    return (await Promise.all(limiters.map(one))).flat();
  }

  describe('RateLimiter', () => {
    it.each([
      [60, 7],
      [1000, 33],
    ])('admits exactly the first %i of a fresh project over four workers', async (limit, size) => {
      makeLimiters(4);
      const decisions = await burst(subject(limit), limit + 200, size);
      expect(kinds(decisions, 'admitted')).toBe(limit);
      expect(kinds(decisions, 'refused')).toBe(200);
    });

    it('admits at least 99 % and never more than a limit of 10,000 in a burst over four workers', async () => {
      makeLimiters(4);
      const decisions = await burst(subject(10_000), 12_000, 16);
      expect(kinds(decisions, 'admitted')).toBeGreaterThanOrEqual(9_900);
      expect(kinds(decisions, 'admitted')).toBeLessThanOrEqual(10_000);
    });

    it('shows limit - 1 to the first request and each lower figure once', async () => {
      const [limiter] = makeLimiters(1) as [RateLimiter];
      const of = subject(5);
      const decisions = await Promise.all([1, 2, 3, 4, 5, 6].map(() => take(limiter, of)));
      expect(decisions.map((d) => (d.kind === 'admitted' ? d.remaining : d.kind))).toEqual([
        4,
        3,
        2,
        1,
        0,
        'refused',
      ]);
    });

    it('says on admission when the window will be empty and on refusal when the next is admitted', async () => {
      const [limiter] = makeLimiters(1) as [RateLimiter];
      const of = subject(1);
      const before = Date.now();
      const admitted = await take(limiter, of);
      const refused = await take(limiter, of);
      for (const decision of [admitted, refused]) {
        if (decision.kind === 'unavailable') throw new Error('Redis is there');
        expect(decision.resetSec).toBeGreaterThanOrEqual((before + 60_000) / 1000);
        expect(decision.resetSec).toBeLessThanOrEqual((Date.now() + 62_000) / 1000);
      }
      expect(refused.kind).toBe('refused');
    });

    it('makes one call for all requests of a turn and none for a flood over the limit', async () => {
      const [limiter] = makeLimiters(1) as [RateLimiter];
      const of = subject(10);
      const before = callCount();
      await Promise.all(Array.from({ length: 50 }, () => take(limiter, of)));
      expect(callCount()).toBe(before + 1);
      for (let i = 0; i < 10_000; i++) expect(takeNow(limiter, of)).toMatchObject({ kind: 'refused' });
      await pause(300);
      expect(takeNow(limiter, of)).toMatchObject({ kind: 'refused' });
      expect(callCount()).toBe(before + 1);
    });

    it('serves those who began to wait just before a reply from what the reply brought', async () => {
      const [limiter] = makeLimiters(1) as [RateLimiter];
      const of = subject(1);
      await take(limiter, subject(1));
      const before = callCount();
      const first = Promise.all([take(limiter, of), take(limiter, of)]);
      // After this turn's flush: the reply comes while nothing runs here, the request just before it is read.
      const second = new Promise<RateDecision>((resolve) =>
        setImmediate(() => {
          for (const end = performance.now() + 50; performance.now() < end; );
          void take(limiter, of).then(resolve);
        }),
      );
      expect((await first).map((decision) => decision.kind)).toEqual(['admitted', 'refused']);
      expect(await second).toMatchObject({ kind: 'refused' });
      // In a cluster calls leave a turn later, so that the second may come too late for the first reply.
      expect(callCount()).toBeLessThanOrEqual(before + Math.min(2, server.urls.length));
    });

    it('needs few calls for a project far above 1000 a minute', async () => {
      const [limiter] = makeLimiters(1) as [RateLimiter];
      const of = subject(100_000);
      const before = callCount();
      for (let i = 0; i < 5_000; i++) {
        await take(limiter, of);
        if (i % 50 === 0) await pause(1);
      }
      expect(callCount() - before).toBeLessThan(250);
    });

    it('sends an unused reserve back when the worker falls silent', async () => {
      const [limiter] = makeLimiters(1) as [RateLimiter];
      const of = subject(100_000);
      for (let i = 0; i < 40; i++) {
        await Promise.all(Array.from({ length: 20 }, () => take(limiter, of)));
        await pause(5);
      }
      await pause(1000);
      const last = await take(limiter, of);
      expect(last).toMatchObject({ kind: 'admitted', remaining: 100_000 - 801 });
      const reply = await workers[0]?.request('rateWindow', rateKey(of.id), ['', 1, 0, 0, 0, '', '', '']);
      expect(reply?.[4]).toBe(801);
    });

    it('binds everybody to a lowered limit at anyone’s first call, and forgets refusals when it is raised', async () => {
      const [a, b] = makeLimiters(2) as [RateLimiter, RateLimiter];
      const old = subject(60, 1);
      await Promise.all(Array.from({ length: 10 }, () => take(a, old)));
      expect(await take(b, { ...old, limit: 5, revision: 2 })).toMatchObject({ kind: 'refused' });
      expect(await take(a, old)).toMatchObject({ kind: 'refused' });
      expect(await take(a, { ...old, limit: 20, revision: 3 })).toMatchObject({
        kind: 'admitted',
        remaining: 9,
      });
    });

    it('holds one window for all records of a project, also after it was idle and forgotten', async () => {
      let later = 0;
      const [redis] = workers as [LimitRedis];
      const aged = { now: clock.now, monotonic: () => clock.monotonic() + later };
      const limiter = new RateLimiter({ redis, clock: aged, quota: quotaOn(redis) });
      limiters = [limiter];
      const before = subject(1);
      const after = { ...before };
      const sharesRefusals = async (): Promise<void> => {
        while ((await take(limiter, before)).kind !== 'refused');
        expect(takeNow(limiter, after)).toMatchObject({ kind: 'refused' });
      };
      await sharesRefusals();
      later = 100_000;
      await until('forgotten', () => before.window?.limiter === undefined);
      await sharesRefusals();
    });

    it('counts a window that Redis forgot, once', async () => {
      const [a, b] = makeLimiters(2) as [RateLimiter, RateLimiter];
      const of = subject(60);
      await Promise.all([take(a, of), take(b, of)]);
      await take(a, of);
      await workers[0]?.request('rateWindow', rateKey(of.id), ['', 1, 0, 0, 0, '', '', '']);
      await server.flush();
      await take(a, of);
      await take(b, of);
      expect(a.stateLost + b.stateLost).toBe(1);
    });

    it('counts a window whose bookings left it because the clock of Redis stepped forward, and none for a step back', async () => {
      let ahead = 0;
      const [redis] = workers as [LimitRedis];
      const stepped = new RateLimiter({
        redis,
        clock,
        quota: quotaOn(redis),
        scriptNow: () => clock.now() + ahead,
      });
      limiters = [stepped];
      const of = subject(3);
      const admitted = async (count: number): Promise<number> =>
        kinds(await Promise.all(Array.from({ length: count }, () => take(stepped, of))), 'admitted');
      expect([await admitted(2), stepped.stateLost]).toEqual([2, 0]);
      ahead = 61_000;
      expect([await admitted(2), stepped.stateLost]).toEqual([2, 1]);
      ahead = 0;
      expect([await admitted(2), stepped.stateLost]).toEqual([1, 1]);
    });
  });
});
