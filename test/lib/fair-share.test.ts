import { describe, expect, it } from 'vitest';
import { FairShare, nextInTurn } from '../../src/lib/fair-share.ts';
import { Slotted } from '../../src/lib/slots.ts';

describe('a fair share', () => {
  it('shrinks as projects come and grows as they leave', () => {
    const share = new FairShare(100);
    const [one, two, three] = [new Slotted(), new Slotted(), new Slotted()];
    share.add(one, 40);
    share.add(two, 20);
    expect([share.allows(one), share.allows(two)]).toEqual([false, true]);
    share.add(three, 20);
    expect([share.allows(one), share.allows(two), share.allows(three)]).toEqual([false, true, true]);
    share.add(two, -20);
    share.add(three, -20);
    expect([share.total, share.allows(one)]).toEqual([40, true]);
  });

  it('never lets greedy projects fill it, however many there are', () => {
    for (let count = 1; count < 20; count++) {
      const share = new FairShare(1_000);
      const uses = Array.from({ length: count }, () => new Slotted());
      for (let round = 0; round < 1_000; round++)
        for (const project of uses) if (share.allows(project)) share.add(project, 1);
      expect(share.total).toBeLessThanOrEqual(1_000 - Math.floor(1_000 / (count + 1)) + count);
      expect(share.allows(new Slotted())).toBe(true);
    }
  });
});

describe('the next in turn', () => {
  const next = (waiting: readonly string[], atWork: Record<string, number>): string | undefined =>
    nextInTurn(waiting, (one) => atWork[one.charAt(0)] ?? 0);

  it('is the oldest of the project that has the least at work', () => {
    expect(next(['a1', 'b1', 'a2', 'b2'], { a: 2, b: 1 })).toBe('b1');
    expect(next(['a1', 'b1', 'c1', 'c2'], { a: 2, b: 1 })).toBe('c1');
    expect(next(['a1', 'a2', 'b1'], { a: 1, b: 1 })).toBe('a1');
  });

  it('is nobody when nobody waits', () => {
    expect(next([], {})).toBeUndefined();
  });
});
