import { describe, expect, it } from 'vitest';
import type { Ask } from '../../../src/ingest/limit/scope-cache.ts';
import { rateKey, scriptSource } from '../../../src/ingest/limit/scripts.ts';
import * as limits from '../../../src/limits.ts';
import { callAdmit } from './limit-fixture.ts';
import { STORES, useStore } from './stores.ts';

const T = 1_700_000_000_000;
describe.each(STORES)('on $name', (kind) => {
  const store = useStore(kind);
  let project = 0;

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
    const { window } = await callAdmit(store.redis(), id, {
      wishes: 't'.repeat(need),
      limit,
      ask,
      now: T + at,
    });
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

    it('moves bookings that a clock stepped back has put into the future', async () => {
      const key = freshKey();
      await call(key, { at: 3_600_000, need: 60 });
      expect(await call(key, { at: 0 })).toMatchObject({ granted: 0, booked: 60, admitsAt: T + 60_750 });
      expect(await call(key, { at: 60_750 })).toMatchObject({ granted: 1, booked: 1 });
    });

    it('notices a window that went back to an earlier state', async () => {
      const key = freshKey();
      const { gen, emptyAt } = await call(key, { at: 0 });
      expect(await call(key, { at: 10, known: [gen, 7, emptyAt] })).toMatchObject({ lost: true });
    });

    it('keeps no bucket at 0: a project that is always active has a bounded hash', async () => {
      const key = freshKey();
      let settled: number[] = [];
      // Two requests a second for ten minutes, each with a reserve that comes back unused.
      for (let at = 0; at < 600_000; at += 500) {
        const reply = await call(key, { at, limit: 10_000, reserve: 3, settled });
        settled = [reply.reserveBucket, reply.reserve, 0];
        expect(reply.reserve).toBe(3);
      }
      expect(await store.server().fields(rateKey(key))).toBeLessThan(150);
    });

    it('removes the empty buckets that an earlier build left, a part of them at each call', async () => {
      const key = freshKey();
      await call(key, { at: 0, limit: 10_000, need: 5 });
      const bucket = T / 250;
      const left = Array.from({ length: 3_000 }, (_, i) => `${bucket - 500 - i} 0 x${bucket - 500 - i} 2`);
      for (let i = 0; i < left.length; i += 500)
        await store.server().tell(`HSET ${rateKey(key)} ${left.slice(i, i + 500).join(' ')}`);
      expect(await store.server().fields(rateKey(key))).toBeGreaterThan(6_000);
      let booked = 0;
      for (let at = 60_000; at < 70_000; at += 250) ({ booked } = await call(key, { at, limit: 10_000 }));
      expect(booked).toBe(40);
      expect(await store.server().fields(rateKey(key))).toBeLessThan(550);
    });
  });
});
