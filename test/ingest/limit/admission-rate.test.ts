import { afterEach, describe, expect, it } from 'vitest';
import { type Admission, CACHES, type RateDecision } from '../../../src/ingest/limit/admission.ts';
import type { ProjectState } from '../../../src/projects/project-state.ts';
import {
  ASK,
  admissionOn,
  callAdmit,
  clock,
  elsewhere,
  pause,
  projectOf,
  take,
  until,
} from './limit-fixture.ts';
import { STORES, useStore } from './stores.ts';

describe.each(STORES)('on $name', (kind) => {
  const store = useStore(kind, 4);
  let limiters: Admission[] = [];
  let project = 0;
  afterEach(() => {
    for (const limiter of limiters) limiter.close();
    limiters = [];
  });

  function makeLimiters(count: number): Admission[] {
    limiters = store
      .workers()
      .slice(0, count)
      .map((redis) => admissionOn(redis));
    return limiters;
  }
  const scope = (limit: number): ProjectState => projectOf({ id: `rate-${++project}`, limit });
  /** Asked without taking anything. */
  async function bookedIn(of: ProjectState): Promise<number | undefined> {
    const ask = { ...ASK, revision: 0 };
    const { window } = await callAdmit(store.redis(), of.id, { wishes: '', limit: 1, ask });
    return window?.booked;
  }
  const kinds = (decisions: RateDecision[], kind: RateDecision['kind']): number =>
    decisions.filter((decision) => decision.kind === kind).length;
  const callCount = (): number => store.workers().reduce((sum, redis) => sum + redis.stats.calls.admit, 0);

  /** Takes `total` tokens over all limiters in bursts, each worker awaiting its own burst. */
  async function burst(of: ProjectState, total: number, burstSize: number): Promise<RateDecision[]> {
    let left = total;
    const one = async (limiter: Admission): Promise<RateDecision[]> => {
      const own = elsewhere(of);
      const decisions: RateDecision[] = [];
      while (left > 0) {
        const n = Math.min(left, burstSize);
        left -= n;
        decisions.push(...(await Promise.all(Array.from({ length: n }, () => take(limiter, own)))));
      }
      return decisions;
    };
    return (await Promise.all(limiters.map(one))).flat();
  }

  describe('Admission', () => {
    it.each([
      [60, 7],
      [1000, 33],
    ])('admits exactly the first %i of a fresh project over four workers', async (limit, size) => {
      makeLimiters(4);
      const decisions = await burst(scope(limit), limit + 200, size);
      expect(kinds(decisions, 'admitted')).toBe(limit);
      expect(kinds(decisions, 'refused')).toBe(200);
    });

    it('admits at least 99 % and never more than a limit of 10,000 in a burst over four workers', async () => {
      makeLimiters(4);
      const decisions = await burst(scope(10_000), 12_000, 16);
      expect(kinds(decisions, 'admitted')).toBeGreaterThanOrEqual(9_900);
      expect(kinds(decisions, 'admitted')).toBeLessThanOrEqual(10_000);
    });

    it('makes one call for all requests of a turn and none for a flood over the limit', async () => {
      const [limiter] = makeLimiters(1) as [Admission];
      const of = scope(10);
      const before = callCount();
      await Promise.all(Array.from({ length: 50 }, () => take(limiter, of)));
      expect(callCount()).toBe(before + 1);
      for (let i = 0; i < 10_000; i++) expect(limiter.knownRefusal(of)).toMatchObject({ kind: 'refused' });
      await pause(300);
      expect(limiter.knownRefusal(of)).toMatchObject({ kind: 'refused' });
      expect(callCount()).toBe(before + 1);
    });

    it('needs few calls for a project far above 1000 a minute', async () => {
      const [limiter] = makeLimiters(1) as [Admission];
      const of = scope(100_000);
      const before = callCount();
      for (let i = 0; i < 5_000; i++) {
        await take(limiter, of);
        if (i % 50 === 0) await pause(1);
      }
      expect(callCount() - before).toBeLessThan(250);
    });

    it('sends an unused reserve back when the worker falls silent', async () => {
      const [limiter] = makeLimiters(1) as [Admission];
      const of = scope(100_000);
      for (let i = 0; i < 40; i++) {
        await Promise.all(Array.from({ length: 20 }, () => take(limiter, of)));
        await pause(5);
      }
      await pause(1000);
      const last = await take(limiter, of);
      expect(last).toMatchObject({ kind: 'admitted', remaining: 100_000 - 801 });
      expect(await bookedIn(of)).toBe(801);
    });

    it('forgets what it knows of a project that was idle for longer than a window, and learns it anew', async () => {
      let later = 0;
      const redis = store.redis();
      const admission = admissionOn(redis, { monotonic: () => clock.monotonic() + later });
      limiters = [admission];
      const of = scope(1);
      const refuses = async (): Promise<void> => {
        while ((await take(admission, of)).kind !== 'refused');
        expect(admission.knownRefusal(of)).toMatchObject({ kind: 'refused' });
      };
      for (let times = 0; times < 2; times++) {
        await refuses();
        later += 100_000;
        await until('forgotten', () => CACHES.find(of) === undefined);
      }
    });

    it('has one call of a project under way, and what is asked meanwhile joins the next one', async () => {
      const [admission] = makeLimiters(1) as [Admission];
      const of = scope(60);
      const before = callCount();
      const waves: Promise<RateDecision>[] = [];
      let answered = 0;
      while (answered === 0) {
        const wave = take(admission, of);
        wave.then(() => answered++);
        waves.push(wave);
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect(kinds(await Promise.all(waves), 'admitted')).toBe(Math.min(60, waves.length));
      expect(callCount() - before).toBeLessThanOrEqual(2);
    });

    it('counts a window whose bookings left it because the clock of Redis stepped forward, and none for a step back', async () => {
      let ahead = 0;
      const redis = store.redis();
      const stepped = admissionOn(redis, { scriptNow: () => clock.now() + ahead });
      limiters = [stepped];
      const of = scope(3);
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
