/** A real Redis and what the limit stage needs around it. */
import { systemClock } from '../../src/lib/clock.ts';
import { createLog } from '../../src/lib/log.ts';
import type { CheckpointStore, Figures } from '../../src/limit/checkpoint.ts';
import { QuotaCounter, type QuotaDecision, type QuotaSubject } from '../../src/limit/quota-counter.ts';
import type { RateDecision, RateLimiter, RateSubject } from '../../src/limit/rate-limiter.ts';
import { LimitRedis } from '../../src/limit/redis.ts';

export const log = createLog('silent');
export const clock = systemClock;

/** One URL: a server. Several: a cluster. */
export async function connected(...urls: string[]): Promise<LimitRedis> {
  const redis = new LimitRedis({ urls, log, clock });
  await redis.connect();
  await until('available', () => redis.available);
  return redis;
}

export const count = (counter: QuotaCounter, of: QuotaSubject): Promise<QuotaDecision> =>
  new Promise((resolve) => counter.count(of, { counted: resolve }));

/** A counter that starts from nothing. */
export const quotaOn = (redis: LimitRedis): QuotaCounter =>
  new QuotaCounter({ redis, clock, checkpoints: new MemoryCheckpoints(), log });

/** Asks for a token only, as a request does whose body is not whole yet. */
export const take = (limiter: RateLimiter, of: RateSubject): Promise<RateDecision> =>
  new Promise((resolve) => {
    const decision = takeNow(limiter, of, resolve);
    if (decision) resolve(decision);
  });

/** The same; `later` is told when the decision does not come at once. */
export const takeNow = (
  limiter: RateLimiter,
  of: RateSubject,
  later: (decision: RateDecision) => void = () => undefined,
): RateDecision | undefined =>
  limiter.take(of, { counts: () => undefined, decided: later, counted: () => undefined });

/** Resolves when `condition` holds; fails after ten seconds. */
export async function until(what: string, condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 10_000; Date.now() < end; await pause(10)) if (condition()) return;
  throw new Error(`still not: ${what}`);
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Checkpoints in memory: the bucket is not what is tested here. */
export class MemoryCheckpoints implements CheckpointStore {
  readonly groups = 4;
  readonly figures = new Map<string, number>();
  reads = 0;
  writes = 0;

  groupOf(projectId: string): number {
    return (projectId.codePointAt(projectId.length - 1) ?? 0) % this.groups;
  }

  async write(_group: number, month: string, figures: Figures): Promise<void> {
    this.writes++;
    for (const [projectId, count] of figures) {
      const key = `${projectId} ${month}`;
      this.figures.set(key, Math.max(count, this.figures.get(key) ?? 0));
    }
  }

  async read(projectId: string, month: string): Promise<number | undefined> {
    this.reads++;
    return this.figures.get(`${projectId} ${month}`);
  }
}
