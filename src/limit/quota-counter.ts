/**
 * The monthly quota (spec 4.1 step 4, contract part 2): one atomic increment for all requests of this turn that belong to the same
 * project. n requests wait together, 0..n are granted in arrival order, and each knows its own position.
 *
 * The month is Redis's. A month without a count is MISSING: it is new, or Redis came back empty. Then the checkpoint is read
 * once, all requests of the project wait for it, and the call is made again with the figure to start from. A lost reply is
 * never asked for again: those who waited are told `unavailable`, and the positions are wasted.
 *
 * Requests that wait for a rate token with their body whole are counted by the call that asks for the token (rate-limiter.ts, admit.lua),
 * which hands its result in here.
 */
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { CHECKPOINT_READ_MS_MAX } from '../limits.ts';
import { type CheckpointStore, type CheckpointSubject, Checkpoints } from './checkpoint.ts';
import type { LimitRedis, ScriptReply } from './redis.ts';
import type { ScriptArg } from './redis-batch.ts';
import { quotaKey } from './scripts.ts';

/** `quota` undefined: unlimited. With overage counting goes on past the quota. */
export type QuotaSubject = CheckpointSubject & {
  readonly quota: number | undefined;
  readonly overage: boolean;
  /** The counter's own: among those gathered in this turn; means something where this project stands at it. */
  gatheredAt?: number;
};

/** `month`: YYYY-MM, UTC by Redis's clock. `position` counts from 1 within it. */
export type QuotaDecision =
  | { kind: 'counted'; position: number; month: string }
  | { kind: 'exceeded'; current: number; month: string }
  | { kind: 'unavailable' };

/** Who waits to be counted. */
export interface CountWaiter {
  /** Once; never in the turn in which it began to wait, unless Redis is away. */
  counted(decision: QuotaDecision): void;
}
/** Requests of one project that are counted by one call, in arrival order. */
export type CountedTogether = { subject: QuotaSubject; readonly waiting: CountWaiter[] };
/** The figure to start a month from. */
type Start = { month: string; count: number };

export type QuotaCounterOptions = {
  redis: LimitRedis;
  clock: Clock;
  checkpoints: CheckpointStore;
  log: Log;
  /** Unix ms that the script shall take for now, in tests; without it, it reads Redis's own clock. */
  scriptNow?: () => number;
};

export const NOT_COUNTED: QuotaDecision = { kind: 'unavailable' };

export class QuotaCounter {
  readonly #redis: LimitRedis;
  readonly #checkpoints: Checkpoints;
  readonly #log: Log;
  readonly #scriptNow: (() => number) | undefined;
  /** Of the last reply. */
  #month = '';
  /** Gathered this turn. */
  #gathered: CountedTogether[] = [];
  /** Projects whose checkpoint is being read; requests join the group that waits for it. */
  readonly #restoring = new Map<string, CountedTogether>();

  constructor(options: QuotaCounterOptions) {
    this.#redis = options.redis;
    this.#log = options.log;
    this.#scriptNow = options.scriptNow;
    const { checkpoints: store, clock, log } = options;
    this.#checkpoints = new Checkpoints({ store, clock, log });
    this.#redis.beforeFlush(() => this.#sendGathered());
  }

  /** Counts one request. Positions are given in arrival order. */
  count(subject: QuotaSubject, waiter: CountWaiter): void {
    if (!this.#redis.available) return waiter.counted(NOT_COUNTED);
    const restoring = this.#restoring.size > 0 ? this.#restoring.get(subject.id) : undefined;
    if (restoring) {
      restoring.subject = subject;
      restoring.waiting.push(waiter);
      return;
    }
    const gathered = this.#gathered[subject.gatheredAt ?? 0];
    if (gathered?.subject === subject) {
      gathered.waiting.push(waiter);
      return;
    }
    subject.gatheredAt = this.#gathered.length;
    this.#gathered.push({ subject, waiting: [waiter] });
    this.#redis.schedule();
  }

  /** Whether the project's checkpoint is being read: who comes now is counted with those who wait for it. */
  isRestoring(projectId: string): boolean {
    return this.#restoring.size > 0 && this.#restoring.has(projectId);
  }

  /** One guarded decrement, sent once, errors only logged. Call it only when nothing of the envelope can have been queued. */
  refund(projectId: string, month: string): void {
    const done = (reply: ScriptReply): void => {
      if (reply?.[0] === 1) return;
      this.#log.warn(
        { project: projectId, month, known: reply !== undefined },
        'quota increment not taken back',
      );
    };
    this.#redis.call({ script: 'refund', keys: [quotaKey(projectId)], args: [month], done });
  }

  /** Writes the checkpoints that are still due. */
  close(): Promise<void> {
    return this.#checkpoints.close();
  }

  #sendGathered(): void {
    if (this.#gathered.length === 0) return;
    const gathered = this.#gathered;
    this.#gathered = [];
    for (const group of gathered) this.#send(group, undefined);
  }

  #send(group: CountedTogether, start: Start | undefined): void {
    const { subject, waiting } = group;
    const args = quotaArgs(waiting.length, { cap: capOf(subject), start, now: this.#scriptNow?.() });
    const done = (reply: ScriptReply): void => this.answered(group, reply);
    this.#redis.call({ script: 'quota', keys: [quotaKey(subject.id)], args, done });
  }

  /** Takes in the result of quota.lua for a group. One element alone is the error that it failed with, within another script. */
  answered(group: CountedTogether, reply: ScriptReply): void {
    if (reply?.length === 1) this.#log.error({ err: reply[0], script: 'quota' }, 'redis: script failed');
    if (!reply || reply.length === 1) return refuseAll(group);
    const month = this.#sameMonth(reply[0] as string);
    const before = reply[1] as number;
    const granted = reply[2] as number;
    if (before < 0) return this.#restore(group, month);
    if (granted > 0) this.#checkpoints.note(group.subject, month, before + granted);
    const current = before + granted;
    for (let i = 0; i < group.waiting.length; i++)
      group.waiting[i]?.counted(
        i < granted
          ? { kind: 'counted', position: before + i + 1, month }
          : { kind: 'exceeded', current, month },
      );
  }

  /** One string for all replies of a month: what stays with a project is not to be a young object. */
  #sameMonth(month: string): string {
    if (month !== this.#month) this.#month = month;
    return this.#month;
  }

  // ---- A month without a count ----

  #restore(group: CountedTogether, month: string): void {
    const { id: projectId } = group.subject;
    const restoring = this.#restoring.get(projectId);
    if (restoring) {
      restoring.subject = group.subject; // the newer record's
      restoring.waiting.push(...group.waiting);
      return;
    }
    this.#restoring.set(projectId, group);
    const started = (count: number | undefined): void => {
      this.#restoring.delete(projectId);
      this.#send(group, { month, count: count ?? 0 });
    };
    const failed = (error: unknown): void => {
      this.#restoring.delete(projectId);
      this.#log.warn({ err: error, project: projectId, month }, 'quota checkpoint not read');
      refuseAll(group);
    };
    within(CHECKPOINT_READ_MS_MAX, this.#checkpoints.read(projectId, month)).then(started, failed);
  }
}

function refuseAll(group: CountedTogether): void {
  for (const waiter of group.waiting) waiter.counted(NOT_COUNTED);
}

/** Rejects when `promise` is not settled in time; its late result is dropped. */
function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** The quota as the scripts take it. */
export const capOf = ({ quota, overage }: QuotaSubject): number =>
  quota === undefined || overage ? -1 : quota;

/** ARGV of quota.lua; `cap` -1: none. */
function quotaArgs(
  n: number,
  options: { cap: number; start?: Start | undefined; now?: number | undefined },
): ScriptArg[] {
  const { cap, start, now } = options;
  return [now ?? '', n, cap, start?.month ?? '', start?.count ?? ''];
}

/** Current usage without counting. `count` undefined: Redis has none for this month. Rejects when Redis does not answer. */
export async function readUsage(
  redis: LimitRedis,
  projectId: string,
): Promise<{ month: string; count: number | undefined }> {
  const reply = await redis.request('quota', quotaKey(projectId), quotaArgs(0, { cap: -1 }));
  if (!reply) throw new Error('Redis does not answer');
  const [month, before] = reply as [string, number];
  return { month, count: before < 0 ? undefined : before };
}

/** What {@link setUsage} sets, and the count that its caller saw (undefined: none). */
export type UsageChange = { projectId: string; month: string; count: number; seen: number | undefined };

/** Sets a month's count unless it changed meanwhile. @returns whether it was set, and the count as it stands now */
export async function setUsage(
  redis: LimitRedis,
  change: UsageChange,
): Promise<{ set: boolean; count: number | undefined }> {
  const { projectId, month, count, seen } = change;
  const reply = await redis.request('setUsage', quotaKey(projectId), [month, count, seen ?? '']);
  if (!reply) throw new Error('Redis does not answer');
  const [set, current] = reply as [number, number];
  return { set: set === 1, count: current < 0 ? undefined : current };
}
