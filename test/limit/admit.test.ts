/** A token and the quota in one call (admit.lua): who is counted, and who learns what. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  QuotaCounter,
  type QuotaDecision,
  type QuotaSubject,
  readUsage,
} from '../../src/limit/quota-counter.ts';
import { type RateDecision, RateLimiter, type TokenWaiter } from '../../src/limit/rate-limiter.ts';
import type { LimitRedis } from '../../src/limit/redis.ts';
import { quotaKey } from '../../src/limit/scripts.ts';
import { clock, connected, count, log, MemoryCheckpoints } from './limit-fixture.ts';
import { STORES, type Store } from './stores.ts';

/** A request: with `quota`, its body is whole when the call leaves. */
class Waiter implements TokenWaiter {
  readonly #quota: QuotaSubject | undefined;
  readonly told: ('decided' | 'counted')[] = [];
  rate: RateDecision | undefined;
  count: QuotaDecision | undefined;

  constructor(quota?: QuotaSubject) {
    this.#quota = quota;
  }
  counts(): QuotaSubject | undefined {
    return this.#quota;
  }
  decided(decision: RateDecision): void {
    this.told.push('decided');
    this.rate = decision;
  }
  counted(decision: QuotaDecision): void {
    this.told.push('counted');
    this.count = decision;
  }
  get position(): number | string | undefined {
    return this.count?.kind === 'counted' ? this.count.position : this.count?.kind;
  }
}

describe.each(STORES)('on $name', ({ start }) => {
  let server: Store;
  let redis: LimitRedis;
  let checkpoints: MemoryCheckpoints;
  let quota: QuotaCounter;
  let limiter: RateLimiter;
  let project = 0;
  /** Added to the limiter's clock. */
  let ahead = 0;

  beforeAll(async () => {
    server = await start();
    redis = await connected(...server.urls);
    checkpoints = new MemoryCheckpoints();
    quota = new QuotaCounter({ redis, clock, checkpoints, log });
    const late = { ...clock, now: () => clock.now(), monotonic: () => clock.monotonic() + ahead };
    limiter = new RateLimiter({ redis, clock: late, quota });
  });
  afterEach(() => {
    ahead = 0;
  });
  afterAll(async () => {
    limiter?.close();
    await quota?.close();
    await redis?.close();
    await server?.close();
  });

  const month = (): string => new Date().toISOString().slice(0, 7);
  const subject = (max: number | undefined, overage = false): QuotaSubject => ({
    id: `admit-${++project}`,
    quota: max,
    overage,
  });
  const used = async ({ id }: QuotaSubject): Promise<number | undefined> =>
    (await readUsage(redis, id)).count;
  const calls = () => ({ ...redis.stats.calls });

  /** All in one turn; resolves when all were told all that they wait for. */
  async function takeAll(waiters: readonly Waiter[], of: QuotaSubject, limit: number): Promise<void> {
    for (const waiter of waiters)
      expect(limiter.take({ id: of.id, limit, revision: 1 }, waiter)).toBeUndefined();
    await expect.poll(() => waiters.every((waiter) => waiter.rate !== undefined)).toBe(true);
    const counting = waiters.filter((waiter) => waiter.counts() && waiter.rate?.kind === 'admitted');
    await expect.poll(() => counting.every((waiter) => waiter.count !== undefined)).toBe(true);
  }

  /** Resolves right after a call has left, before its reply can be read. */
  const leaves = (sent: number): Promise<void> =>
    new Promise((resolve) => {
      const look = () => (calls().admit > sent ? resolve() : setImmediate(look));
      setImmediate(look);
    });

  it('is one call for all of a turn, which tells the token first and then the position', async () => {
    const of = subject(100);
    await count(quota, of);
    const before = calls();
    const waiters = [1, 2, 3].map(() => new Waiter(of));
    await takeAll(waiters, of, 60);
    expect(waiters.map(({ position }) => position)).toEqual([2, 3, 4]);
    expect(waiters.map(({ rate }) => rate)).toMatchObject(
      [57, 58, 59].reverse().map((remaining) => ({ remaining })),
    );
    expect(waiters.map(({ told }) => told)).toEqual(waiters.map(() => ['decided', 'counted']));
    expect(calls()).toEqual({ ...before, admit: before.admit + 1 });
    expect(await used(of)).toBe(4);
  });

  it('counts those only who get a token and whose body is whole', async () => {
    const of = subject(100);
    await count(quota, of);
    const waiters = [new Waiter(of), new Waiter(), new Waiter(of), new Waiter(of)];
    await takeAll(waiters, of, 3);
    expect(waiters.map(({ rate }) => rate?.kind)).toEqual(['admitted', 'admitted', 'admitted', 'refused']);
    expect(waiters.map(({ position }) => position)).toEqual([2, undefined, 3, undefined]);
    expect(await used(of)).toBe(3);
  });

  it('asks for the token alone when no body is whole', async () => {
    const of = subject(100);
    const before = calls();
    await takeAll([new Waiter()], of, 60);
    expect(calls()).toEqual({ ...before, rateWindow: before.rateWindow + 1 });
    expect(await used(of)).toBeUndefined();
  });

  it('grants the token and refuses the count at the quota, and counts on with overage', async () => {
    const of = subject(2);
    await count(quota, of);
    const waiters = [new Waiter(of), new Waiter(of)];
    await takeAll(waiters, of, 60);
    expect(waiters.map(({ rate }) => rate?.kind)).toEqual(['admitted', 'admitted']);
    expect(waiters.map(({ count: decision }) => decision)).toEqual([
      { kind: 'counted', position: 2, month: month() },
      { kind: 'exceeded', current: 2, month: month() },
    ]);
    const more = [new Waiter({ ...of, overage: true }), new Waiter({ ...of, quota: undefined })];
    await takeAll(more, of, 60);
    expect(more.map(({ position }) => position)).toEqual([3, 4]);
  });

  it('goes on from the checkpoint when the month has no count; who comes while it is read is left to count himself', async () => {
    const of = subject(2_000);
    checkpoints.write(0, month(), new Map([[of.id, 1_000]]));
    const read = checkpoints.read.bind(checkpoints);
    let told = (): void => undefined;
    const readable = new Promise<void>((resolve) => {
      told = resolve;
    });
    checkpoints.read = (...which) => readable.then(() => read(...which));
    const first = new Waiter(of);
    limiter.take({ id: of.id, limit: 60, revision: 1 }, first);
    await expect.poll(() => first.rate?.kind).toBe('admitted');
    const own = new Waiter(of);
    limiter.take({ id: of.id, limit: 60, revision: 1 }, own);
    await expect.poll(() => own.rate?.kind).toBe('admitted');
    const last = count(quota, of);
    expect([first.count, own.count]).toEqual([undefined, undefined]);
    told();
    checkpoints.read = read;
    expect(await last).toEqual({ kind: 'counted', position: 1_002, month: month() });
    expect([first.position, own.told]).toEqual([1_001, ['decided']]);
    expect(await used(of)).toBe(1_002);
  });

  it('tells what was counted although the reply came too late for the token', async () => {
    const of = subject(100);
    await count(quota, of);
    const waiter = new Waiter(of);
    const sent = calls().admit;
    limiter.take({ id: of.id, limit: 60, revision: 1 }, waiter);
    await leaves(sent);
    ahead = 300;
    await expect.poll(() => waiter.count).toEqual({ kind: 'counted', position: 2, month: month() });
    expect(waiter.rate).toEqual({ kind: 'unavailable' });
  });

  it('is one call for many projects of a turn, of which one may fail for itself', async () => {
    const all = Array.from({ length: 70 }, () => subject(100));
    await Promise.all(all.map((of) => count(quota, of)));
    const [broken, ...rest] = all as [QuotaSubject, ...QuotaSubject[]];
    await server.set(quotaKey(broken.id), 'foreign');
    const waiters = all.map((of) => [new Waiter(of), new Waiter()]);
    await Promise.all(all.map((of, i) => takeAll(waiters[i] as Waiter[], of, 60)));
    const told = (of: QuotaSubject) =>
      waiters[all.indexOf(of)]?.map(({ rate, position }) => [rate?.kind, position]);
    for (const of of rest)
      expect(told(of)).toEqual([
        ['admitted', 2],
        ['admitted', undefined],
      ]);
    expect(told(broken)).toEqual([
      ['admitted', 'unavailable'],
      ['admitted', undefined],
    ]);
    expect(redis.available).toBe(true);
  });

  it('tells all that named a quota, when a reply comes too late that granted only some', async () => {
    const of = subject(100);
    await count(quota, of);
    const waiters = [new Waiter(of), new Waiter(of)];
    const sent = calls().admit;
    for (const waiter of waiters) limiter.take({ id: of.id, limit: 1, revision: 1 }, waiter);
    await leaves(sent);
    ahead = 300;
    await expect.poll(() => waiters.map(({ position }) => position)).toEqual([2, 'unavailable']);
    expect(waiters.map(({ rate }) => rate)).toEqual([{ kind: 'unavailable' }, { kind: 'unavailable' }]);
  });
});
