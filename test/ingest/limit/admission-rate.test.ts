import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Admission, CACHES, type RateDecision } from '../../../src/ingest/limit/admission.ts';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { RATE_BUCKET_MS } from '../../../src/limits.ts';
import type { ProjectState } from '../../../src/projects/project-state.ts';
import {
  admissionOn,
  callAdmit,
  clock,
  connected,
  elsewhere,
  pause,
  projectOf,
  take,
  until,
} from './limit-fixture.ts';
import { STORES, type Store } from './stores.ts';

const PING_OF_ANOTHER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { port, answered } = workerData;
  const socket = require('node:net').connect(port, '127.0.0.1', () => parentPort.postMessage('connected'));
  parentPort.once('message', () => socket.write('PING\\r\\n'));
  socket.on('data', () => {
    Atomics.store(answered, 0, 1);
    Atomics.notify(answered, 0);
    socket.destroy();
  });`;

/** Another connection to Redis, from a thread of its own, which takes long to start. */
async function anotherConnection(url: string): Promise<{ wait(): void }> {
  const answered = new Int32Array(new SharedArrayBuffer(4));
  const port = Number(new URL(url).port);
  const asking = new Worker(PING_OF_ANOTHER, { eval: true, workerData: { port, answered } });
  await once(asking, 'message');
  return {
    /** Stops this thread until Redis has answered there, and so all that it got before from here. */
    wait: () => {
      asking.postMessage('ask');
      expect(Atomics.wait(answered, 0, 0, 10_000)).not.toBe('timed-out');
      void asking.terminate();
    },
  };
}

describe.each(STORES)('on $name', ({ start }) => {
  let server: Store;
  /** One connection per worker. */
  let workers: LimitRedis[];
  let limiters: Admission[] = [];
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

  function makeLimiters(count: number): Admission[] {
    limiters = workers.slice(0, count).map((redis) => admissionOn(redis));
    return limiters;
  }
  const scope = (limit: number): ProjectState => projectOf({ id: `rate-${++project}`, limit });
  /** Asked without taking anything. */
  async function bookedIn(of: ProjectState): Promise<number | undefined> {
    const ask = { sentAt: 0, need: 0, reserve: 0, needMs: 250, revision: 0, settled: [], known: undefined };
    const { window } = await callAdmit(workers[0] as LimitRedis, of.id, { wishes: '', limit: 1, ask });
    return window?.booked;
  }
  const kinds = (decisions: RateDecision[], kind: RateDecision['kind']): number =>
    decisions.filter((decision) => decision.kind === kind).length;
  const callCount = (): number => workers.reduce((sum, redis) => sum + redis.stats.calls.admit, 0);

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

    it('shows limit - 1 to the first request and each lower figure once', async () => {
      const [limiter] = makeLimiters(1) as [Admission];
      const of = scope(5);
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
      const [limiter] = makeLimiters(1) as [Admission];
      const of = scope(1);
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

    it('serves those who began to wait just before a reply from what the reply brought', async () => {
      const [limiter] = makeLimiters(1) as [Admission];
      const of = scope(1);
      await take(limiter, scope(1));
      const another = await anotherConnection(server.urls[0] as string);
      const before = callCount();
      const first = Promise.all([take(limiter, of), take(limiter, of)]);
      // After this turn's flush: the reply comes while nothing runs here, the request just before it is read.
      const second = new Promise<RateDecision>((resolve) =>
        setImmediate(() => {
          another.wait();
          void take(limiter, of).then(resolve);
        }),
      );
      expect((await first).map((decision) => decision.kind)).toEqual(['admitted', 'refused']);
      expect(await second).toMatchObject({ kind: 'refused' });
      // In a cluster calls leave a turn later, so that the second may come too late for the first reply.
      expect(callCount()).toBeLessThanOrEqual(before + Math.min(2, server.urls.length));
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

    it('binds everybody to a lowered limit at anyone’s first call, and forgets refusals when it is raised', async () => {
      const [a, b] = makeLimiters(2) as [Admission, Admission];
      const ofA = scope(60);
      const ofB = elsewhere(ofA);
      await Promise.all(Array.from({ length: 10 }, () => take(a, ofA)));
      ofB.update(ofB.record, 2, 5);
      expect(await take(b, ofB)).toMatchObject({ kind: 'refused' });
      expect(await take(a, ofA)).toMatchObject({ kind: 'refused' });
      ofA.update(ofA.record, 3, 20);
      expect(await take(a, ofA)).toMatchObject({ kind: 'admitted', remaining: 9 });
    });

    it('forgets what it knows of a project that was idle for longer than a window, and learns it anew', async () => {
      let later = 0;
      const [redis] = workers as [LimitRedis];
      const admission = admissionOn(redis, { monotonic: () => clock.monotonic() + later });
      limiters = [admission];
      const of = scope(1);
      const refuses = async (): Promise<void> => {
        while ((await take(admission, of)).kind !== 'refused');
        expect(admission.knownRefusal(of)).toMatchObject({ kind: 'refused' });
      };
      await refuses();
      later = 100_000;
      await until('forgotten', () => CACHES.find(of) === undefined);
      await refuses();
    });

    it('has no timer before its first request, and none once every scope is forgotten', async () => {
      let later = 0;
      const [redis] = workers as [LimitRedis];
      vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
      try {
        const admission = admissionOn(redis, { monotonic: () => clock.monotonic() + later });
        limiters = [admission];
        const of = scope(100);
        expect(vi.getTimerCount()).toBe(0);
        for (let round = 1; round <= 2; round++) {
          await take(admission, of);
          expect(vi.getTimerCount()).toBe(1);
          later += 100_000;
          for (const end = Date.now() + 10_000; vi.getTimerCount() > 0 && Date.now() < end; await pause(10))
            vi.advanceTimersByTime(RATE_BUCKET_MS);
          expect(vi.getTimerCount()).toBe(0);
          expect(CACHES.find(of)).toBeUndefined();
        }
      } finally {
        vi.useRealTimers();
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

    it('counts a window that Redis forgot, once', async () => {
      const [a, b] = makeLimiters(2) as [Admission, Admission];
      const ofA = scope(60);
      const ofB = elsewhere(ofA);
      await Promise.all([take(a, ofA), take(b, ofB)]);
      await take(a, ofA);
      await bookedIn(ofA);
      await server.flush();
      await take(a, ofA);
      await take(b, ofB);
      expect(a.stateLost + b.stateLost).toBe(1);
    });

    it('counts a window whose bookings left it because the clock of Redis stepped forward, and none for a step back', async () => {
      let ahead = 0;
      const [redis] = workers as [LimitRedis];
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
