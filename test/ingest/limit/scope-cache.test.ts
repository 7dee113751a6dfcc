import { describe, expect, it } from 'vitest';
import { ScopeCache } from '../../../src/ingest/limit/scope-cache.ts';

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
