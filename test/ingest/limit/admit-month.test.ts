import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { quotaKey } from '../../../src/ingest/limit/scripts.ts';
import { callAdmit, connected } from './limit-fixture.ts';
import { STORES, type Store } from './stores.ts';

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

  const FEBRUARY = Date.UTC(2026, 1, 3);
  const freshKey = (): string => `quota-${++project}`;
  /** [month, count before, counted], as a project without a limit has it. */
  async function quota(
    id: string,
    ...[now, n, most, month, count]: [number, number, number, string, number | '']
  ): Promise<[string, number, number]> {
    const start = count === '' ? undefined : { month, count };
    const cap = most < 0 ? undefined : most;
    const reply = await callAdmit(redis, id, {
      wishes: 'c'.repeat(n),
      quota: cap,
      now,
      ...(start && { start }),
    });
    if (reply.month?.kind === 'missing') return [reply.month.month, -1, 0];
    if (reply.month?.kind !== 'counted') throw new Error('not counted');
    return [reply.month.month, reply.month.before, reply.month.counted];
  }

  describe('the month of admit.lua', () => {
    it('knows the UTC month of any moment', async () => {
      const moments = [
        Date.UTC(1970, 0, 1),
        Date.UTC(2000, 1, 29, 23, 59, 59, 999),
        Date.UTC(2000, 2, 1),
        Date.UTC(2024, 1, 29),
        Date.UTC(2024, 2, 1) - 1,
        Date.UTC(2025, 11, 31, 23, 59, 59, 999),
        Date.UTC(2026, 0, 1),
        Date.UTC(2100, 1, 28, 12),
        Date.UTC(2100, 2, 1),
      ];
      for (let month = 0; month < 36; month++)
        moments.push(Date.UTC(2026, month, 1), Date.UTC(2026, month, 1) - 1);
      for (const at of moments)
        expect(await quota(freshKey(), at, 0, -1, '', '')).toEqual([
          new Date(at).toISOString().slice(0, 7),
          -1,
          0,
        ]);
    });

    it('says MISSING and writes nothing when the month has no count', async () => {
      const key = freshKey();
      expect(await quota(key, FEBRUARY, 3, 10, '', '')).toEqual(['2026-02', -1, 0]);
      expect(await quota(key, FEBRUARY, 3, 10, '', '')).toEqual(['2026-02', -1, 0]);
    });

    it('takes a start value only for its own month, and only once', async () => {
      const key = freshKey();
      expect(await quota(key, FEBRUARY, 2, -1, '2026-01', 500)).toEqual(['2026-02', -1, 0]);
      expect(await quota(key, FEBRUARY, 2, -1, '2026-02', 500)).toEqual(['2026-02', 500, 2]);
      expect(await quota(key, FEBRUARY, 2, -1, '2026-02', 0)).toEqual(['2026-02', 502, 2]);
    });

    it('grants up to the quota and no further', async () => {
      const key = freshKey();
      expect(await quota(key, FEBRUARY, 3, 5, '2026-02', 0)).toEqual(['2026-02', 0, 3]);
      expect(await quota(key, FEBRUARY, 3, 5, '', '')).toEqual(['2026-02', 3, 2]);
      expect(await quota(key, FEBRUARY, 3, 5, '', '')).toEqual(['2026-02', 5, 0]);
      expect(await quota(key, FEBRUARY, 3, -1, '', '')).toEqual(['2026-02', 5, 3]);
      expect(await quota(key, FEBRUARY, 3, 5, '', '')).toEqual(['2026-02', 8, 0]);
    });

    it('refuses everything at quota 0', async () => {
      expect(await quota(freshKey(), FEBRUARY, 3, 0, '2026-02', 0)).toEqual(['2026-02', 0, 0]);
    });

    it('counts a new month from its own start and keeps the old one', async () => {
      const key = freshKey();
      await quota(key, FEBRUARY, 7, -1, '2026-02', 0);
      const march = Date.UTC(2026, 2, 1);
      expect(await quota(key, march - 1, 1, -1, '', '')).toEqual(['2026-02', 7, 1]);
      expect(await quota(key, march, 1, -1, '', '')).toEqual(['2026-03', -1, 0]);
      expect(await quota(key, march, 1, -1, '2026-03', 0)).toEqual(['2026-03', 0, 1]);
      expect(await quota(key, FEBRUARY, 0, -1, '', '')).toEqual(['2026-02', 8, 0]);
    });

    it('counts exactly far beyond 2^32', async () => {
      const key = freshKey();
      const start = 4_503_599_627_370_000;
      await quota(key, FEBRUARY, 1, -1, '2026-02', start);
      expect(await quota(key, FEBRUARY, 1, -1, '', '')).toEqual(['2026-02', start + 1, 1]);
    });
  });

  describe('refund.lua', () => {
    it('takes one back, never below nothing and never from a month without a count', async () => {
      const key = freshKey();
      expect(await redis.request('refund', [quotaKey(key)], ['2026-02'])).toEqual([0]);
      await quota(key, FEBRUARY, 1, -1, '2026-02', 0);
      expect(await redis.request('refund', [quotaKey(key)], ['2026-01'])).toEqual([0]);
      expect(await redis.request('refund', [quotaKey(key)], ['2026-02'])).toEqual([1]);
      expect(await redis.request('refund', [quotaKey(key)], ['2026-02'])).toEqual([0]);
      expect(await quota(key, FEBRUARY, 0, -1, '', '')).toEqual(['2026-02', 0, 0]);
    });
  });

  describe('set-usage.lua', () => {
    it('sets the count only if it is still the one that was seen', async () => {
      const key = freshKey();
      expect(await redis.request('setUsage', [quotaKey(key)], ['2026-02', 40, 3])).toEqual([0, -1]);
      expect(await redis.request('setUsage', [quotaKey(key)], ['2026-02', 40, ''])).toEqual([1, 40]);
      expect(await redis.request('setUsage', [quotaKey(key)], ['2026-02', 50, 39])).toEqual([0, 40]);
      expect(await redis.request('setUsage', [quotaKey(key)], ['2026-02', 50, 40])).toEqual([1, 50]);
    });
  });
});
