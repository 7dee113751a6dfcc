/**
 * The one admission of a request: a rate token, a position in the month, or both.
 *
 * A token comes from the worker's lease (subject-cache.ts) while there is one. All else needs
 * Redis: all requests that wait for a subject (a project, or a key or categories of it that have
 * limits) when a batch leaves are one call of admit.lua. A subject has one call under way; what is
 * asked meanwhile joins the next one, so calls grow with the load. A refusal is kept in memory
 * until the window can admit again, 300 ms at least, so a flood over the limit costs some three
 * calls a second.
 *
 * The month. It is Redis's. A month without a count is MISSING: it is new, or Redis came back
 * empty. Then the checkpoint is read once, as part of the same call, and a second call counts
 * from that figure; it takes no tokens.
 *
 * Late replies. A token is void when its lease may have ended: 250 ms after sending, or 750 ms
 * while replies are slow. A position stays valid, so the request keeps it and asks for a token once
 * more; if that fails, the position goes back. A call that is never answered is not repeated: its
 * positions and tokens are wasted, never made twice.
 *
 * A timer sends back tokens whose lease ended unused, so that a worker that falls silent keeps
 * nothing from the others, and forgets subjects that were idle for longer than a window.
 */
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { CHECKPOINT_READ_MS_MAX, LEASE_RESERVE_MS, RATE_BUCKET_MS, RATE_WINDOW_MS } from '../limits.ts';
import type { ProjectState, Subject } from '../projects/project-state.ts';
import { admitArgs, admitKeys, type MonthReply, parseReply } from './admit-call.ts';
import { noteClock } from './clock-watch.ts';
import { Refunds } from './month-count.ts';
import type { LimitRedis, ScriptReply } from './redis.ts';
import { type Ask, SubjectCache, type WindowDecision, type WindowReply } from './subject-cache.ts';

export type RateDecision = WindowDecision | { kind: 'unavailable' };

/** `month`: YYYY-MM, UTC by Redis's clock. `position` counts from 1 within it. */
export type CountDecision =
  | { kind: 'counted'; position: number; month: string }
  | { kind: 'exceeded'; current: number; month: string }
  | { kind: 'unavailable' };

/**
 * `token`: one of the per-minute limit, if the subject has one. `count`: a position in the month.
 */
export type Wanted = { token: boolean; count: boolean };
/**
 * What came of it, a refusal too. `rate` undefined: no token was wanted, or no limit applies.
 * `count` undefined: not wanted, or there was no token.
 */
export type AdmissionResult = { rate: RateDecision | undefined; count: CountDecision | undefined };

/** The durable figures from which counting resumes when Redis comes back empty. */
interface UsageCheckpoints {
  note(project: ProjectState, month: string, count: number): void;
  /** Undefined: there is none. Rejects when it cannot be known. */
  read(projectId: string, month: string): Promise<number | undefined>;
}

type AdmissionOptions = {
  redis: LimitRedis;
  clock: Clock;
  checkpoints: UsageCheckpoints;
  log: Log;
  /** Unix ms that the script takes for now, in tests; without it, it reads Redis's own clock. */
  scriptNow?: () => number;
};

/** A request that waits for a call: what it still needs, and what it has. */
type Waiter = {
  needsToken: boolean;
  needsCount: boolean;
  rate: RateDecision | undefined;
  count: CountDecision | undefined;
  /** A token of it came too late. */
  isLate: boolean;
  done(admitted: AdmissionResult): void;
};
type Call = {
  subject: Subject;
  cache: SubjectCache;
  waiting: readonly Waiter[];
  ask: Ask | undefined;
};

const UNAVAILABLE = { kind: 'unavailable' } as const;
/** Idle for longer than any window that this worker may know of. */
const IDLE_MS = RATE_WINDOW_MS + 5_000;
const EVICT_EVERY_MS = 10_000;

export class Admission {
  readonly #redis: LimitRedis;
  readonly #clock: Clock;
  readonly #checkpoints: UsageCheckpoints;
  readonly #log: Log;
  readonly #scriptNow: (() => number) | undefined;
  /** Subjects that were active in the last minute: those that have a cache. */
  readonly #active = new Set<Subject>();
  /** Asked since the last flush, or while a call of the subject is under way. */
  #asked = new Map<Subject, Waiter[]>();
  /**
   * Reserve that was granted and may be in hand, in the order of the replies: nearly that in which
   * it ends.
   */
  #leased: { subject: Subject; cache: SubjectCache; endsAt: number }[] = [];
  readonly #refunds: Refunds;
  readonly #timer: NodeJS.Timeout;
  #evictAt: number;
  #stateLost = 0;

  constructor(options: AdmissionOptions) {
    this.#redis = options.redis;
    this.#clock = options.clock;
    this.#checkpoints = options.checkpoints;
    this.#log = options.log;
    this.#refunds = new Refunds(options);
    this.#scriptNow = options.scriptNow;
    this.#redis.beforeFlush(() => this.#sendAsked());
    this.#evictAt = this.#clock.monotonic() + EVICT_EVERY_MS;
    this.#timer = setInterval(() => this.#sweep(), RATE_BUCKET_MS);
    this.#timer.unref();
  }

  /**
   * Windows that Redis forgot while this worker knew of bookings in them, and those whose bookings
   * left early because Redis's clock stepped forward (sluice_limiter_state_lost_total).
   */
  get stateLost(): number {
    return this.#stateLost;
  }

  close(): void {
    clearInterval(this.#timer);
    this.#refunds.sendOwed();
    this.#refunds.close();
  }

  /**
   * A refusal that needs no body and no call: from memory, or because Redis is away. Takes no
   * token.
   */
  knownRefusal(subject: Subject): RateDecision | undefined {
    if (subject.limit === undefined) return undefined;
    const now = this.#clock.monotonic();
    const cache = this.#cacheOf(subject, now);
    if (cache.hasToken(now)) return undefined;
    return cache.refusal(now, subject.revision) ?? (this.#redis.available ? undefined : UNAVAILABLE);
  }

  /** `done` is called once, by the subject's next call or the one after, or before this returns. */
  admit(subject: Subject, { token, count }: Wanted, done: (admitted: AdmissionResult) => void): void {
    const now = this.#clock.monotonic();
    const needsToken = token && subject.limit !== undefined;
    const rate = needsToken ? this.#cacheOf(subject, now).take(now, subject.revision) : undefined;
    const waiter: Waiter = {
      needsToken: needsToken && !rate,
      needsCount: count,
      rate,
      count: undefined,
      isLate: false,
      done,
    };
    if (needsNothing(waiter)) this.#tell(subject, waiter);
    else this.#join(subject, waiter);
  }

  /** Call it only when nothing of the envelope can have been queued. */
  refund({ id }: ProjectState, month: string): void {
    this.#refunds.refund(id, month);
  }

  #cacheOf(subject: Subject, now: number): SubjectCache {
    if (!subject.cache) {
      subject.cache = new SubjectCache();
      this.#active.add(subject);
    }
    subject.cache.usedAt = now;
    return subject.cache;
  }

  // ---- The call ----

  #join(subject: Subject, waiter: Waiter): void {
    if (!this.#redis.available) return this.#tell(subject, waiter);
    const waiting = this.#asked.get(subject);
    if (waiting) waiting.push(waiter);
    else this.#asked.set(subject, [waiter]);
    this.#redis.schedule();
  }

  /** A callback may ask again, and this flush would miss that. So no callback is called here. */
  #sendAsked(): void {
    if (this.#asked.size === 0) return;
    const asked = this.#asked;
    const now = this.#clock.monotonic();
    this.#asked = new Map();
    for (const [subject, waiting] of asked) {
      const cache = this.#cacheOf(subject, now);
      if (!this.#redis.available)
        for (const waiter of waiting) queueMicrotask(() => this.#tell(subject, waiter));
      else if (cache.isCalling) this.#asked.set(subject, waiting);
      else {
        const left = waiting.filter((waiter) => !this.#servesFromMemory(subject, waiter, now));
        if (left.length > 0) this.#send(subject, left);
      }
    }
  }

  /** The reply before may have brought tokens or a refusal, or the limit may be gone. */
  #servesFromMemory(subject: Subject, waiter: Waiter, now: number): boolean {
    if (!waiter.needsToken) return false;
    if (subject.limit !== undefined) {
      waiter.rate = this.#cacheOf(subject, now).take(now, subject.revision);
      if (!waiter.rate) return false;
    }
    waiter.needsToken = false;
    if (!needsNothing(waiter)) return false;
    queueMicrotask(() => this.#tell(subject, waiter));
    return true;
  }

  #send(subject: Subject, waiting: readonly Waiter[]): void {
    const { project, limit, revision, windowName, further } = subject;
    const sentAt = this.#clock.monotonic();
    const cache = this.#cacheOf(subject, sentAt);
    let wishes = '';
    let need = 0;
    for (const { needsToken, needsCount } of waiting) {
      wishes += !needsToken ? 'c' : needsCount ? 'b' : 't';
      if (needsToken) need++;
    }
    const ask = limit === undefined ? undefined : cache.ask(sentAt, need, { limit, revision });
    const call: Call = { subject, cache, waiting, ask };
    cache.isCalling = true;
    this.#redis.call({
      script: 'admit',
      keys: admitKeys(project.id, windowName, further),
      args: admitArgs({
        waiting: wishes,
        limit,
        ask,
        further,
        quota: project.quotaCap,
        now: this.#scriptNow?.(),
      }),
      done: (reply) => this.#answered(call, reply),
    });
  }

  #answered(call: Call, reply: ScriptReply): void {
    if (!reply) return this.#done(call, false);
    const { window, month } = parseReply(reply);
    const counting = window ? this.#takeTokens(call, window) : call.waiting;
    this.#takePositions(call, counting, month);
  }

  /** @returns those that this call counted, in their order */
  #takeTokens({ subject, cache, waiting, ask }: Call, reply: WindowReply & { lost: boolean }): Waiter[] {
    const now = this.#clock.monotonic();
    const { sentAt } = ask as Ask;
    const stepped = noteClock(cache, { redisNow: reply.now, sentAt, repliedAt: now });
    if (reply.lost || stepped) this.#stateLost++;
    const decisions = cache.answer(ask as Ask, reply, now);
    if (reply.reserve > 0 || cache.hasReturns(now))
      this.#leased.push({ subject, cache, endsAt: sentAt + LEASE_RESERVE_MS });
    let place = 0;
    return waiting.filter((waiter) => {
      if (!waiter.needsToken) return waiter.needsCount;
      const decision = decisions[place];
      if (decision) {
        waiter.rate = decision;
        waiter.needsToken = false;
      }
      return place++ < reply.granted && waiter.needsCount;
    });
  }

  #takePositions(call: Call, counting: readonly Waiter[], reply: MonthReply | undefined): void {
    if (reply?.kind === 'missing' && this.#clock.monotonic() >= call.cache.uncountableUntil)
      return this.#restore(call, counting, reply.month);
    if (reply?.kind === 'failed') this.#log.error({ err: reply.error }, 'redis: the month cannot be counted');
    if (reply?.kind === 'counted') {
      const { month, before, counted } = reply;
      if (counted > 0) this.#checkpoints.note(call.subject.project, month, before + counted);
      counting.forEach((waiter, i) => {
        waiter.needsCount = false;
        waiter.count =
          i < counted
            ? { kind: 'counted', position: before + i + 1, month }
            : { kind: 'exceeded', current: before + counted, month };
      });
    }
    this.#done(call, true);
  }

  /**
   * The month has no count: it goes on from the checkpoint, by a call that counts and takes no
   * tokens. When that cannot be read, no request waits for it again for a while.
   */
  #restore(whole: Call, counting: readonly Waiter[], month: string): void {
    const { subject } = whole;
    const { id, quotaCap: quota } = subject.project;
    const call = { ...whole, waiting: counting };
    for (const waiter of whole.waiting) if (!counting.includes(waiter)) this.#tellOrAskAgain(subject, waiter);
    const send = (count: number): void => {
      const start = { month, count };
      this.#redis.call({
        script: 'admit',
        keys: admitKeys(id),
        args: admitArgs({ waiting: 'c'.repeat(counting.length), quota, start, now: this.#scriptNow?.() }),
        done: (reply) => {
          if (reply) this.#takePositions(call, counting, parseReply(reply).month);
          else this.#done(call, false);
        },
      });
    };
    within(CHECKPOINT_READ_MS_MAX, this.#checkpoints.read(id, month)).then(
      (count) => send(count ?? 0),
      (error) => {
        this.#log.warn({ err: error, project: id, month }, 'quota checkpoint not read');
        call.cache.uncountableUntil = this.#clock.monotonic() + CHECKPOINT_READ_MS_MAX;
        this.#done(call, true);
      },
    );
  }

  #done({ subject, cache, waiting }: Call, isAnswered: boolean): void {
    cache.isCalling = false;
    for (const waiter of waiting) {
      if (isAnswered) this.#tellOrAskAgain(subject, waiter);
      else this.#tell(subject, waiter);
    }
    if (this.#asked.size > 0) this.#redis.schedule();
  }

  /**
   * A waiter whose token came too late asks for another one, once, and before those who came
   * meanwhile.
   */
  #tellOrAskAgain(subject: Subject, waiter: Waiter): void {
    if (!waiter.needsToken || waiter.isLate || !this.#redis.available) return this.#tell(subject, waiter);
    waiter.isLate = true;
    const waiting = this.#asked.get(subject) ?? [];
    const behind = waiting.findIndex(({ isLate }) => !isLate);
    waiting.splice(behind < 0 ? waiting.length : behind, 0, waiter);
    this.#asked.set(subject, waiting);
    this.#redis.schedule();
  }

  /** Calls a waiter back. What it still needs by now, it does not get. */
  #tell(subject: Subject, { needsToken, needsCount, rate, count, done }: Waiter): void {
    if (!needsToken && (rate === undefined || rate.kind === 'admitted'))
      return done({ rate, count: needsCount ? UNAVAILABLE : count });
    if (count?.kind === 'counted') this.refund(subject.project, count.month);
    done({ rate: needsToken ? UNAVAILABLE : rate, count: undefined });
  }

  // ---- The timer ----

  #sweep(): void {
    const now = this.#clock.monotonic();
    this.#refunds.sendOwed();
    if (this.#redis.available) this.#sendBack(now);
    if (now < this.#evictAt) return;
    this.#evictAt = now + EVICT_EVERY_MS;
    for (const subject of this.#active) {
      const { cache } = subject;
      if (cache && (now - cache.usedAt < IDLE_MS || cache.isCalling)) continue;
      subject.cache = undefined;
      this.#active.delete(subject);
    }
  }

  #sendBack(now: number): void {
    const ended = this.#leased.filter(({ endsAt }) => endsAt <= now);
    if (ended.length === 0) return;
    this.#leased = this.#leased.filter(({ endsAt }) => endsAt > now);
    for (const lease of ended) {
      const { subject, cache } = lease;
      if (subject.cache !== cache || subject.limit === undefined || !cache.hasReturns(now)) continue;
      // The reply to a call under way may settle it; if not, it goes back at the next tick.
      if (cache.isCalling) this.#leased.push(lease);
      else this.#send(subject, []);
    }
  }
}

/** Nothing is left to ask Redis for. */
const needsNothing = ({ needsToken, needsCount, rate }: Waiter): boolean =>
  rate?.kind === 'refused' || !(needsToken || needsCount);

/** Rejects when `promise` is not settled in time; its late result is dropped. */
function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
