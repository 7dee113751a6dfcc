import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import type { Ask } from '../../../src/ingest/limit/scope-cache.ts';
import { quotaKey, rateKey, scriptSource } from '../../../src/ingest/limit/scripts.ts';
import * as limits from '../../../src/limits.ts';
import { callAdmit, connected } from './limit-fixture.ts';
import { STORES, type Store } from './stores.ts';

const T = 1_700_000_000_000;
describe.each(STORES)('on $name', ({ start }) => {
  let server: Store;
  let redis: LimitRedis;
  let project = 0;

  beforeAll(async () => {
    server = await start();
    redis = await connected(...server.urls);
  });
  afterAll(async () => {
    await redis.close();
    await server.close();
  });

  type Step = {
    at: number;
    limit?: number;
    revision?: number;
    need?: number;
    reserve?: number;
    needMs?: number;
    known?: [gen: number, seq: number, emptyAt: number];
    settled?: number[];
  };

  async function call(id: string, step: Step) {
    const { at, limit = 60, revision = 1, need = 1, reserve = 0, needMs = 250, known, settled = [] } = step;
    const [gen, seq, emptyAt] = known ?? [];
    const [bucket = 0, unused = 0, used = 0] = settled;
    const lease = { bucket, unused, used, endsAt: 0, next: undefined };
    const ask: Ask = {
      sentAt: 0,
      need,
      reserve,
      needMs,
      revision,
      settled: settled.length > 0 ? [lease] : [],
      known:
        gen === undefined || seq === undefined || emptyAt === undefined ? undefined : { gen, seq, emptyAt },
    };
    const { window } = await callAdmit(redis, id, { wishes: 't'.repeat(need), limit, ask, now: T + at });
    if (!window) throw new Error('there is no window');
    return window;
  }
  const freshKey = (): string => `window-${++project}`;

  describe('the window of admit.lua', () => {
    it('shares its constants with limits.ts', () => {
      const source = scriptSource('admit');
      expect(source).toContain(
        `WINDOW_MS, BUCKET_MS, NEED_MS_MAX, RESERVE_MS = ${limits.RATE_WINDOW_MS}, ${limits.RATE_BUCKET_MS}, ${limits.LEASE_NEED_SLOW_MS}, ${limits.LEASE_RESERVE_MS}`,
      );
      expect(source).toContain(
        `EXACT_LIMIT_MAX, RESERVE_SHARE = ${limits.EXACT_LIMIT_MAX}, ${limits.RESERVE_SHARE_MAX}`,
      );
      expect(source).toContain(
        `CONTENDED_MS, CONTENDED_RESERVE_SHARE = ${limits.CONTENDED_MS}, ${limits.CONTENDED_RESERVE_SHARE_MAX}`,
      );
    });

    it('grants what fits into the window and says when the rest can be had', async () => {
      const key = freshKey();
      expect(await call(key, { at: 0, need: 59 })).toMatchObject({ granted: 59, booked: 59, admitsAt: 0 });
      expect(await call(key, { at: 10, need: 3 })).toMatchObject({
        granted: 1,
        booked: 60,
        admitsAt: T + 60_250,
      });
      expect(await call(key, { at: 20 })).toMatchObject({ granted: 0, booked: 60, emptyAt: T + 60_500 });
    });

    it('frees a booking 60 s after the end of its bucket, not a millisecond earlier', async () => {
      const key = freshKey();
      await call(key, { at: 1, limit: 1 });
      expect(await call(key, { at: 60_499, limit: 1 })).toMatchObject({ granted: 0, admitsAt: T + 60_500 });
      expect(await call(key, { at: 60_500, limit: 1 })).toMatchObject({ granted: 1, booked: 1 });
    });

    it('books need at 250 ms and reserve at 500 ms ahead, rounded up', async () => {
      const key = freshKey();
      const reply = await call(key, { at: 1, limit: 100_000, need: 1, reserve: 10 });
      expect(reply).toMatchObject({
        granted: 1,
        reserve: 10,
        reserveBucket: T / 250 + 3,
        emptyAt: T + 60_750,
      });
      expect(await call(key, { at: 60_500, limit: 100_000 })).toMatchObject({ booked: 11 });
      expect(await call(key, { at: 60_750, limit: 100_000 })).toMatchObject({ booked: 2 });
    });

    it('books need as far ahead as the caller says', async () => {
      const key = freshKey();
      await call(key, { at: 1, limit: 1, needMs: 750 });
      expect(await call(key, { at: 60_999, limit: 1 })).toMatchObject({ granted: 0, admitsAt: T + 61_000 });
      expect(await call(key, { at: 61_000, limit: 1 })).toMatchObject({ granted: 1 });
    });

    it('never grants a reserve for limits up to 1000 while nobody is refused', async () => {
      expect(await call(freshKey(), { at: 0, limit: 1000, reserve: 5 })).toMatchObject({ reserve: 0 });
      expect(await call(freshKey(), { at: 0, limit: 1001, reserve: 5 })).toMatchObject({ reserve: 3 });
    });

    it('hands out room in halves while a refusal is fresh, also below 1000, and says that it is scarce', async () => {
      const key = freshKey();
      await call(key, { at: 0, limit: 800, need: 790 });
      await call(key, { at: 250, limit: 800, need: 10 });
      expect(await call(key, { at: 60_250, limit: 800, need: 795 })).toMatchObject({ granted: 790 });
      const contended = { limit: 800, need: 1, reserve: 20 };
      expect(await call(key, { at: 60_500, ...contended })).toMatchObject({
        granted: 1,
        reserve: 5,
        scarce: true,
        admitsAt: 0,
      });
      expect(await call(key, { at: 60_510, ...contended })).toMatchObject({ reserve: 2, scarce: true });
      expect(await call(key, { at: 60_520, limit: 800, need: 1, reserve: 1 })).toMatchObject({
        granted: 1,
        scarce: true,
        admitsAt: T + 120_500,
      });
      const later = await call(key, { at: 126_000, ...contended });
      expect(later).toMatchObject({ granted: 1, reserve: 0, scarce: false });
    });

    it('keeps all outstanding reserve within 0.5 % of the limit, until leases end', async () => {
      const key = freshKey();
      let outstanding = 0;
      for (let i = 0; i < 12; i++)
        outstanding += (await call(key, { at: i, limit: 10_000, reserve: 1000 })).reserve;
      expect(outstanding).toBe(50);
      expect(await call(key, { at: 499, limit: 10_000, reserve: 1000 })).toMatchObject({ reserve: 0 });
      expect(await call(key, { at: 750, limit: 10_000, reserve: 1000 })).toMatchObject({ reserve: 25 });
    });

    it('takes unused tokens back, but never more than the bucket holds', async () => {
      const key = freshKey();
      const first = await call(key, { at: 0, limit: 10_000, need: 5, reserve: 20 });
      expect(first).toMatchObject({ booked: 25, reserve: 20 });
      const back = await call(key, { at: 10, limit: 10_000, need: 1, settled: [first.reserveBucket, 8, 0] });
      expect(back.booked).toBe(18);
      const all = await call(key, { at: 20, limit: 10_000, need: 0, settled: [first.reserveBucket, 999, 0] });
      expect(all.booked).toBe(5);
      const stranger = await call(key, { at: 30, limit: 10_000, need: 0, settled: [1, 999, 0] });
      expect(await call(key, { at: 31, limit: 10_000, need: 0, settled: [9e9, 999, 9] })).toMatchObject({
        booked: 5,
      });
      expect(stranger.booked).toBe(5);
    });

    it('hands out reserve again that was used, and keeps it booked', async () => {
      const key = freshKey();
      const first = await call(key, { at: 0, limit: 2000, reserve: 10 });
      expect(first).toMatchObject({ reserve: 5, booked: 6 });
      await call(key, { at: 1, limit: 2000, reserve: 10 });
      expect(
        await call(key, { at: 2, limit: 2000, reserve: 10, settled: [first.reserveBucket, 0, 5] }),
      ).toMatchObject({
        reserve: 4,
        booked: 6 + 4 + 5,
      });
    });

    it('grants again what came back, up to the limit', async () => {
      const key = freshKey();
      const { reserveBucket } = await call(key, { at: 0, limit: 2000, need: 1990, reserve: 10 });
      const reply = await call(key, { at: 5, limit: 2000, need: 50, settled: [reserveBucket, 5, 0] });
      expect(reply).toMatchObject({ granted: 10, booked: 2000 });
    });

    it('lets the newest revision of the limit win, whoever brings it', async () => {
      const key = freshKey();
      await call(key, { at: 0, limit: 60, revision: 5, need: 10 });
      expect(await call(key, { at: 1, limit: 12, revision: 6, need: 5 })).toMatchObject({
        granted: 2,
        limit: 12,
        revision: 6,
      });
      expect(await call(key, { at: 2, limit: 60, revision: 5, need: 5 })).toMatchObject({
        granted: 0,
        limit: 12,
        revision: 6,
      });
      expect(await call(key, { at: 3, limit: 20, revision: 7, need: 9 })).toMatchObject({
        granted: 8,
        limit: 20,
      });
    });

    it('looks as many bucket ends ahead as a lowered limit needs', async () => {
      const key = freshKey();
      for (const at of [0, 1000, 2000]) await call(key, { at, limit: 30, need: 10 });
      expect(await call(key, { at: 2100, limit: 5, revision: 2 })).toMatchObject({ admitsAt: T + 62_250 });
    });

    it('moves bookings that a clock stepped back has put into the future', async () => {
      const key = freshKey();
      await call(key, { at: 3_600_000, need: 60 });
      expect(await call(key, { at: 0 })).toMatchObject({ granted: 0, booked: 60, admitsAt: T + 60_750 });
      expect(await call(key, { at: 60_750 })).toMatchObject({ granted: 1, booked: 1 });
    });

    it('says once that a window forgot bookings, and never when it merely emptied', async () => {
      const key = freshKey();
      const { gen, seq, emptyAt } = await call(key, { at: 0, need: 3 });
      const known: [number, number, number] = [gen, seq, emptyAt];
      expect(await call(key, { at: 5, known })).toMatchObject({ lost: false });
      const other = freshKey();
      expect(await call(other, { at: 10, known })).toMatchObject({ lost: true });
      expect(await call(other, { at: 11, known })).toMatchObject({ lost: false });
      // Another worker may know of the bookings until their lease would have ended and a window after.
      expect(await call(other, { at: 60_100, known })).toMatchObject({ lost: false });
      expect(await call(freshKey(), { at: emptyAt - T, known })).toMatchObject({ lost: false });
    });

    it('notices a window that went back to an earlier state', async () => {
      const key = freshKey();
      const { gen, emptyAt } = await call(key, { at: 0 });
      expect(await call(key, { at: 10, known: [gen, 7, emptyAt] })).toMatchObject({ lost: true });
    });

    it('writes nothing when there is nothing to write', async () => {
      const key = freshKey();
      expect(await call(key, { at: 0, need: 0 })).toMatchObject({ booked: 0, gen: 0 });
      expect(await call(key, { at: 1, need: 1 })).toMatchObject({ gen: T + 1, seq: 1 });
    });

    it('keeps no bucket at 0: a project that is always active has a bounded hash', async () => {
      const key = freshKey();
      let settled: number[] = [];
      // Two requests a second for half an hour, each with a reserve that comes back unused.
      for (let at = 0; at < 1_800_000; at += 500) {
        const reply = await call(key, { at, limit: 10_000, reserve: 3, settled });
        settled = [reply.reserveBucket, reply.reserve, 0];
        expect(reply.reserve).toBe(3);
      }
      expect(await server.fields(rateKey(key))).toBeLessThan(150);
    });

    it('removes the empty buckets that an earlier build left, a part of them at each call', async () => {
      const key = freshKey();
      await call(key, { at: 0, limit: 10_000, need: 5 });
      const bucket = T / 250;
      const left = Array.from({ length: 3_000 }, (_, i) => `${bucket - 500 - i} 0 x${bucket - 500 - i} 2`);
      for (let i = 0; i < left.length; i += 500)
        await server.tell(`HSET ${rateKey(key)} ${left.slice(i, i + 500).join(' ')}`);
      expect(await server.fields(rateKey(key))).toBeGreaterThan(6_000);
      let booked = 0;
      for (let at = 60_000; at < 70_000; at += 250) ({ booked } = await call(key, { at, limit: 10_000 }));
      expect(booked).toBe(40);
      expect(await server.fields(rateKey(key))).toBeLessThan(550);
    });

    it('asserts its arity', async () => {
      const keys = [rateKey('arity'), quotaKey('arity')] as const;
      expect(await redis.request('admit', keys, [1, 2, 3])).toBeUndefined();
      expect(redis.available).toBe(true);
    });
  });
});
