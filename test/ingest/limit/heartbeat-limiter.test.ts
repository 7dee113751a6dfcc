import { describe, expect, it } from 'vitest';
import { type HeartbeatDecision, HeartbeatLimiter } from '../../../src/ingest/limit/heartbeat-limiter.ts';
import { heartbeatKey, scriptSource } from '../../../src/ingest/limit/scripts.ts';
import { HEARTBEATS_PER_SECOND } from '../../../src/limits.ts';
import { clock } from './limit-fixture.ts';
import { STORES, useStore } from './stores.ts';

const T = 1_700_000_000_000_000;
describe.each(STORES)('on $name', (kind) => {
  const store = useStore(kind);
  let tokens = 0;

  const freshToken = (): string => `token-${++tokens}`;
  const ask = (token: string, at: number, n: number) =>
    store.redis().request('heartbeat', [heartbeatKey(token)], [T + at, n]);
  const take = (limiter: HeartbeatLimiter, token: string): Promise<HeartbeatDecision> => limiter.admit(token);

  describe('heartbeat.lua', () => {
    it('shares its figure with limits.ts', () => {
      expect(scriptSource('heartbeat')).toContain(
        `PER_SECOND, INTERVAL_US = ${HEARTBEATS_PER_SECOND}, 1000000`,
      );
    });

    it('admits the first five of any second, to the microsecond', async () => {
      const token = freshToken();
      expect(await ask(token, 0, 1)).toEqual([1, 0]);
      expect(await ask(token, 400_000, 3)).toEqual([3, 0]);
      expect(await ask(token, 999_999, 3)).toEqual([1, 1]);
      expect(await ask(token, 1_000_000, 3)).toEqual([1, 400_000]);
      expect(await ask(token, 1_400_000, 9)).toEqual([3, 599_999]);
      expect(await ask(token, 9_000_000, 9)).toEqual([5, 1_000_000]);
    });

    it('is not locked by a clock that stepped back', async () => {
      const token = freshToken();
      await ask(token, 3_600_000_000, 5);
      expect(await ask(token, 0, 1)).toEqual([0, 1_000_000]);
      expect(await ask(token, 1_000_000, 1)).toEqual([1, 0]);
    });
  });

  describe('HeartbeatLimiter', () => {
    it('admits thousands of tokens within their rate, and joins their calls', async () => {
      const limiter = new HeartbeatLimiter({ redis: store.redis(), clock });
      const [bursts, size] = [20, 256];
      const before = store.redis().stats.calls.heartbeat;
      for (let burst = 0; burst < bursts; burst++) {
        const decisions = await Promise.all(Array.from({ length: size }, () => take(limiter, freshToken())));
        expect(decisions.every((decision) => decision === 'admitted')).toBe(true);
      }
      const calls = store.redis().stats.calls.heartbeat - before;
      // One server runs 64 in a call; in a cluster each token is on its own.
      expect(calls).toBeLessThanOrEqual(
        store.server().urls.length === 1 ? bursts * Math.ceil(size / 64) : bursts * size,
      );
    });

    it('refuses from memory until the next can be admitted', async () => {
      const limiter = new HeartbeatLimiter({ redis: store.redis(), clock });
      const token = freshToken();
      await Promise.all([1, 2, 3, 4, 5, 6].map(() => take(limiter, token)));
      const before = store.redis().stats.calls.heartbeat;
      const flood = Array.from({ length: 1000 }, () => limiter.admit(token));
      expect(new Set(await Promise.all(flood))).toEqual(new Set(['refused']));
      expect(store.redis().stats.calls.heartbeat).toBe(before);
    });

    it('forgets a refusal when the interval is over', async () => {
      let monotonic = 0;
      const moving = { now: () => 0, monotonic: () => monotonic };
      const limiter = new HeartbeatLimiter({
        redis: store.redis(),
        clock: moving,
        scriptNow: () => T / 1000 + monotonic,
      });
      const token = freshToken();
      await Promise.all([1, 2, 3, 4, 5, 6].map(() => take(limiter, token)));
      monotonic = 999;
      expect(await take(limiter, token)).toBe('refused');
      monotonic = 1000;
      expect(await take(limiter, token)).toBe('admitted');
    });
  });
});
