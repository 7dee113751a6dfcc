import { describe, expect, it } from 'vitest';
import { ScopeCache, type WindowReply } from '../../../src/ingest/limit/scope-cache.ts';

const record = { limit: 100_000, revision: 1 };
const windowReply = (of: Partial<WindowReply>): WindowReply => ({
  granted: 1,
  needBucket: 6,
  reserve: 0,
  reserveBucket: 7,
  booked: 1,
  limit: record.limit,
  revision: 1,
  now: 1_000_000,
  emptyAt: 1_060_500,
  admitsAt: 0,
  gen: 1,
  seq: 1,
  scarce: false,
  refusingWindow: 0,
  ...of,
});

/** A cache that has asked often enough to want a reserve, and got `reserve` tokens at 0 ms. */
function withReserve(reserve: number): ScopeCache {
  const cache = new ScopeCache();
  const first = cache.ask(-50, 40, record);
  cache.answer(first, windowReply({ granted: 40 }), -50);
  cache.answer(cache.ask(0, 1, record), windowReply({ reserve }), 1);
  return cache;
}

describe('ScopeCache', () => {
  it('knows nothing at first', () => {
    expect(new ScopeCache().take(0, 1)).toBeUndefined();
  });

  it('wants no reserve for the first request after a lull, and some once there is demand', () => {
    const cache = new ScopeCache();
    expect(cache.ask(0, 1, record).reserve).toBe(0);
    expect(cache.ask(10, 1, record).reserve).toBe(3);
    expect(cache.ask(20, 1, { limit: 49, revision: 1 }).reserve).toBe(0);
    expect(cache.ask(600_000, 1, record).reserve).toBe(0);
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
    const answer = (at: number) => {
      const cache = new ScopeCache();
      const decisions = cache.answer(cache.ask(0, 2, record), windowReply({ granted: 2 }), at);
      return [decisions.filter((decision) => decision !== undefined).length, cache.take(at, 1)];
    };
    expect(answer(248.9)).toEqual([2, undefined]);
    expect(answer(249)).toEqual([0, undefined]);
  });

  it('sends the reserve of a late reply back', () => {
    const cache = new ScopeCache();
    cache.answer(cache.ask(-50, 40, record), windowReply({ granted: 40 }), -50);
    cache.answer(cache.ask(0, 2, record), windowReply({ granted: 2, reserve: 3 }), 499);
    expect(cache.take(499, 1)).toBeUndefined();
    expect(cache.ask(499, 0, record).settled).toMatchObject([
      { bucket: 6, unused: 2, used: -2 },
      { bucket: 7, unused: 3, used: 0 },
    ]);
  });

  it('keeps a refusal until the window admits, at least 300 ms, and only for records up to its own', () => {
    const cache = new ScopeCache();
    const refused = windowReply({ granted: 0, admitsAt: 1_000_400, refusingWindow: 3 });
    cache.answer(cache.ask(0, 1, record), refused, 10);
    expect(cache.take(409, 1)).toEqual({ kind: 'refused', resetSec: 1001, windowNumber: 3 });
    expect(cache.take(410, 1)).toBeUndefined();
    cache.answer(cache.ask(500, 1, record), windowReply({ granted: 0, admitsAt: 1_000_001 }), 510);
    expect(cache.take(809, 1)).toMatchObject({ kind: 'refused' });
    expect(cache.take(809, 2)).toBeUndefined();
  });

  it('refuses after the last token of a reply that left the window full, and for 300 ms when room is scarce', () => {
    const cache = new ScopeCache();
    cache.answer(cache.ask(0, 1, record), windowReply({ admitsAt: 1_000_400 }), 10);
    expect(cache.take(409, 1)).toMatchObject({ kind: 'refused' });
    expect(cache.take(410, 1)).toBeUndefined();
    const contended = cache.ask(450, 40, record);
    cache.answer(contended, windowReply({ granted: 40 }), 450);
    const next = cache.ask(500, 1, record);
    cache.answer(next, windowReply({ reserve: 1, scarce: true }), 500);
    expect(cache.take(501, 1)).toMatchObject({ kind: 'admitted' });
    expect(cache.take(799, 1)).toMatchObject({ kind: 'refused' });
    expect(cache.take(800, 1)).toBeUndefined();
  });

  it('decides in arrival order', () => {
    const cache = new ScopeCache();
    const exact = { limit: 10, revision: 1 };
    const reply = windowReply({ granted: 2, booked: 10, limit: 10, admitsAt: 1_000_500, refusingWindow: 2 });
    expect(cache.answer(cache.ask(0, 3, exact), reply, 1)).toEqual([
      { kind: 'admitted', remaining: 1, resetSec: 1061 },
      { kind: 'admitted', remaining: 0, resetSec: 1061 },
      { kind: 'refused', resetSec: 1001, windowNumber: 2 },
    ]);
  });
});

describe('a reply that comes too late', () => {
  it('voids the tokens that it granted, which go back with the next call, and leases longer from then on', () => {
    const cache = new ScopeCache();
    const ask = cache.ask(0, 4, record);
    const decisions = cache.answer(ask, windowReply({ granted: 3, needBucket: 9, admitsAt: 1_000_400 }), 249);
    expect(decisions).toMatchObject([undefined, undefined, undefined, { kind: 'refused' }]);
    expect([cache.unused, cache.take(249, 1)]).toEqual([3, undefined]);
    const next = cache.ask(250, 3, record);
    expect(next).toMatchObject({ settled: [{ bucket: 9, unused: 3, used: -3 }], needMs: 750 });
    expect(cache.answer(next, windowReply({ granted: 3 }), 950)).toHaveLength(3);
    expect(cache.answer(cache.ask(951, 1, record), windowReply({}), 952)).toHaveLength(1);
    expect(cache.ask(953, 1, record).needMs).toBe(250);
  });

  it('refuses all the same, and from memory from then on', () => {
    const cache = new ScopeCache();
    const full = windowReply({ granted: 0, admitsAt: 1_000_400 });
    expect(cache.answer(cache.ask(0, 2, record), full, 600)).toMatchObject([
      { kind: 'refused' },
      { kind: 'refused' },
    ]);
    expect(cache.take(700, 1)).toMatchObject({ kind: 'refused' });
  });
});

/** Redis is `ahead` of us when it runs the call, `late` ms after it was sent; the reply takes as long again. */
type Reply = { at: number; ahead: number; late?: number };
const seen = (...replies: Reply[]): boolean[] => {
  const watched = new ScopeCache();
  return replies.map(({ at, ahead, late = 0 }) =>
    watched.noteClock({ redisNow: at + late + ahead, sentAt: at, repliedAt: at + 2 * late }),
  );
};

describe('the clock of Redis', () => {
  it.each([
    { name: 'forward by a second', replies: [0, 1_000], said: [false, true] },
    { name: 'forward, and then no more', replies: [0, 90_000, 90_000], said: [false, true, false] },
    { name: 'back', replies: [90_000, 0], said: [false, false] },
    { name: 'back and forward again', replies: [90_000, 0, 90_000], said: [false, false, true] },
    { name: 'slewed', replies: [0, 5, 10, 15, 20], said: [false, false, false, false, false] },
  ])('a clock that goes $name', ({ replies, said }) => {
    expect(seen(...replies.map((ahead, n) => ({ at: n * 10_000, ahead })))).toEqual(said);
  });

  it('takes no slow reply for a step, and sees one behind it', () => {
    const slow = { at: 1_000, ahead: 0, late: 125 };
    expect(seen({ at: 0, ahead: 0 }, slow, { at: 2_000, ahead: 0 })).toEqual([false, false, false]);
    expect(seen({ at: 0, ahead: 0 }, { ...slow, ahead: 1_000 })).toEqual([false, true]);
  });
});
