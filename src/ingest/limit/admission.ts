/**
 * The one admission of a request: a rate token, a position in the month, or both.
 *
 * A token comes from the worker's lease (scope-cache.ts) while the lease has tokens left. A request
 * that finds no token there, or wants a position, needs Redis. All requests that wait for the same
 * scope (a project, or a key or categories of it that have limits) share one call of admit.lua. A
 * scope has at most one call under way, and requests that come meanwhile join the next call. A
 * refusal is kept in memory until the window can admit again, 300 ms at least, so a flood over the
 * limit costs some three calls a second.
 *
 * *The month*: Redis has its count. A month without a count is MISSING: either the month is new, or
 * Redis came back empty. Then the checkpoint is read once, while requests of the scope wait. A
 * second script call, which takes no tokens, counts on from the checkpoint.
 *
 * *Late replies*: a token is void when its lease may have ended: 250 ms after sending, or 750 ms
 * while replies are slow. The request keeps its position and asks for a token once more; if that
 * fails, the position goes back. A call that is never answered is not repeated, because it may have
 * run: its positions and tokens are wasted.
 *
 * *Lost calls*: when the connection broke under a call, the requests that waited for it join the
 * next call, for up to 700 ms. Tokens and positions that the lost call took are wasted, too.
 *
 * *Categories*, by an example. Project 7 may have 1,000 envelopes a minute and 100 with replays.
 * The scope of an envelope with an event and a replay is "project 7 with replays", which has two
 * windows. A token is booked (counted against the limit) in both windows or in none, and serves no
 * other scope. When the window of replays is full, nothing is booked: the request drops the replay
 * and asks again for project 7 alone, and its 200 carries the header `X-Sentry-Rate-Limits:
 * 12:replay:project`. An envelope that holds only a replay gets 429, and has used no token of the
 * project.
 *
 * A large body takes its token early, for the categories of the items that have come by then. For
 * the categories of later items, the request asks for tokens of their windows alone.
 *
 * A timer sends back tokens whose lease ended unused, so that other workers can have them. It also
 * forgets scopes that were idle for longer than a window.
 */
import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { Slot } from '../../lib/slots.ts';
import {
  CHECKPOINT_READ_MS_MAX,
  LEASE_RESERVE_MS,
  RATE_BUCKET_MS,
  RATE_WINDOW_MS,
  REDIS_REPLY_MS_MAX,
} from '../../limits.ts';
import type { ProjectState, RateScope } from '../../projects/project-state.ts';
import { admitArgs, admitKeys, type MonthReply, parseReply } from './admit-call.ts';
import { Refunds } from './month-count.ts';
import type { LimitRedis, ScriptReply } from './redis.ts';
import { type Ask, ScopeCache, type WindowDecision, type WindowReply } from './scope-cache.ts';

export type RateDecision = WindowDecision | { kind: 'unavailable' };

/**
 * Decision about the month. `month`: YYYY-MM, UTC by Redis's clock. `position` counts from 1 within
 * the month; `current` is the month's count.
 */
export type CountDecision =
  | { kind: 'counted'; position: number; month: string }
  | { kind: 'exceeded'; current: number; month: string }
  | { kind: 'unavailable' };

/**
 * Wishes of a request. `token`: a token of the per-minute limit, if the scope has one. `count`: a
 * position in the month.
 */
export type Wanted = { token: boolean; count: boolean };
/**
 * The result of an admission, also of a refused one. `rate` is undefined when the request wanted no
 * token, or when no limit applies. `count` is undefined when the request did not want to be counted
 * in the month, or got no token and therefore is not counted.
 */
export type AdmissionResult = { rate: RateDecision | undefined; count: CountDecision | undefined };

/** The durable counts from which counting resumes when Redis comes back empty. */
interface UsageCheckpoints {
  /** Notes a project's new count. `before`: the count that the call found. */
  note(project: ProjectState, month: string, count: number, before: number): void;
  /** Returns the stored count; undefined: there is none. Rejects when the count cannot be known. */
  read(project: ProjectState, month: string): Promise<number | undefined>;
  /** Notes that Redis lost counts, which must then be compared with the tally. */
  noteLoss(): void;
}

type AdmissionOptions = {
  redis: LimitRedis;
  clock: Clock;
  checkpoints: UsageCheckpoints;
  log: Log;
  /**
   * Returns the present time for the script (Unix ms), in tests. Without this function, the script
   * reads Redis's own clock.
   */
  scriptNow?: () => number;
};

/** A request that waits for a call: what the request still needs, and what it has. */
type Waiter = {
  needsToken: boolean;
  needsCount: boolean;
  rate: RateDecision | undefined;
  count: CountDecision | undefined;
  /** Whether a token for this request came too late. Another token is asked for only once. */
  isLate: boolean;
  /** When a call that asked for this request was first lost (monotonic ms). */
  lostAt: number | undefined;
  done(admitted: AdmissionResult): void;
};
type Call = {
  scope: RateScope;
  cache: ActiveScope;
  waiting: readonly Waiter[];
  ask: Ask | undefined;
};

/**
 * A scope in this worker, from its first request until it has been idle for IDLE_MS: its leases,
 * and the state of its calls.
 */
class ActiveScope extends ScopeCache {
  /** Time of the last request (monotonic ms). */
  usedAt = 0;
  /** Whether a call is under way. Requests that come meanwhile join the next call. */
  isCalling = false;
  /** Time until which no checkpoint is read for a missing count (monotonic ms). */
  uncountableUntil = Number.NEGATIVE_INFINITY;
}

export const CACHES = new Slot(
  () => new ActiveScope(),
  () => true,
);

const UNAVAILABLE = { kind: 'unavailable' } as const;
/**
 * Time in ms after which an idle scope is forgotten. By then its windows have no token of this
 * worker.
 */
const IDLE_MS = RATE_WINDOW_MS + 5_000;
const EVICT_EVERY_MS = 10_000;
/** Time in ms for which no request waits for a checkpoint, after a checkpoint could not be read. */
const UNCOUNTABLE_MS = 1_000;

export class Admission {
  readonly #options: AdmissionOptions;
  /** Scopes that were active in the last minute: those that have a cache. */
  readonly #active = new Set<RateScope>();
  /** Requests that came since the last flush, or while a call of their scope is under way. */
  #asked = new Map<RateScope, Waiter[]>();
  /**
   * Scopes that may have unused tokens to send back once `endsAt` (monotonic ms) has passed, in the
   * order of the replies.
   */
  #leased: { scope: RateScope; cache: ActiveScope; endsAt: number }[] = [];
  readonly #refunds: Refunds;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  #evictAt: number;
  #stateLost = 0;
  #countersRestored = 0;

  constructor(options: AdmissionOptions) {
    this.#options = options;
    this.#refunds = new Refunds(options, () => this.#runTimer());
    options.redis.beforeFlush(() => this.#sendAsked());
    this.#evictAt = options.clock.monotonic() + EVICT_EVERY_MS;
  }

  /**
   * How often a window lacked tokens that this worker had taken from it: Redis had lost them, or
   * Redis's clock stepped forward, so that they expired early (sluice_limiter_state_lost_total).
   */
  get stateLost(): number {
    return this.#stateLost;
  }

  /** Number of monthly counts that went on from a checkpoint, because Redis had lost them. */
  get countersRestored(): number {
    return this.#countersRestored;
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#refunds.sendOwed();
    this.#refunds.close();
  }

  /**
   * Returns a refusal that needs no body and no call: from memory, or because Redis is away. Takes
   * no token. Returns undefined when it is not certain that the request will be refused.
   */
  knownRefusal(scope: RateScope): RateDecision | undefined {
    if (scope.limit === undefined) return undefined;
    const now = this.#options.clock.monotonic();
    const cache = this.#cacheOf(scope, now);
    if (cache.hasToken(now)) return undefined;
    return cache.refusal(now, scope.revision) ?? (this.#options.redis.available ? undefined : UNAVAILABLE);
  }

  /**
   * Admits one request. `done` is called once: before this method returns, or when the calls that
   * the request needs have ended.
   */
  admit(scope: RateScope, { token, count }: Wanted, done: (admitted: AdmissionResult) => void): void {
    const now = this.#options.clock.monotonic();
    const needsToken = token && scope.limit !== undefined;
    const rate = needsToken ? this.#cacheOf(scope, now).take(now, scope.revision) : undefined;
    const waiter: Waiter = {
      needsToken: needsToken && !rate,
      needsCount: count,
      rate,
      count: undefined,
      isLate: false,
      lostAt: undefined,
      done,
    };
    if (needsNothing(waiter)) this.#tell(scope, waiter);
    else this.#join(scope, waiter);
  }

  /**
   * Takes back a position. Must be called only when nothing of the envelope can have been queued.
   */
  refund({ id }: ProjectState, month: string): void {
    this.#refunds.refund(id, month);
  }

  #cacheOf(scope: RateScope, now: number): ActiveScope {
    const found = CACHES.find(scope);
    if (!found) {
      this.#active.add(scope);
      this.#runTimer();
    }
    const cache = found ?? CACHES.of(scope);
    cache.usedAt = now;
    return cache;
  }

  // ---- The call ----

  #join(scope: RateScope, waiter: Waiter): void {
    if (!this.#options.redis.available) return this.#tell(scope, waiter);
    const waiting = this.#asked.get(scope);
    if (waiting) waiting.push(waiter);
    else this.#asked.set(scope, [waiter]);
    this.#options.redis.schedule();
  }

  /**
   * Sends one call for each scope whose requests wait and that has no call under way. A request
   * that gets its result without a call is told in a microtask, after this flush: it may ask again
   * at once, and what is asked during a flush would not be sent.
   */
  #sendAsked(): void {
    if (this.#asked.size === 0) return;
    const asked = this.#asked;
    const now = this.#options.clock.monotonic();
    this.#asked = new Map();
    for (const [scope, waiting] of asked) {
      const cache = this.#cacheOf(scope, now);
      if (!this.#options.redis.available)
        for (const waiter of waiting) queueMicrotask(() => this.#tell(scope, waiter));
      else if (cache.isCalling) this.#asked.set(scope, waiting);
      else {
        const left = waiting.filter((waiter) => !this.#servesFromMemory(scope, waiter, now));
        if (left.length > 0) this.#send(scope, left);
      }
    }
  }

  /**
   * Tries to serve a waiter without a call, and returns whether it was served. The reply to the
   * call before may have brought tokens or a refusal, or the limit may be gone.
   */
  #servesFromMemory(scope: RateScope, waiter: Waiter, now: number): boolean {
    if (!waiter.needsToken) return false;
    if (scope.limit !== undefined) {
      waiter.rate = this.#cacheOf(scope, now).take(now, scope.revision);
      if (!waiter.rate) return false;
    }
    waiter.needsToken = false;
    if (!needsNothing(waiter)) return false;
    queueMicrotask(() => this.#tell(scope, waiter));
    return true;
  }

  #send(scope: RateScope, waiting: readonly Waiter[]): void {
    const { project, limit, revision, windowName, further } = scope;
    const sentAt = this.#options.clock.monotonic();
    const cache = this.#cacheOf(scope, sentAt);
    let wishes = '';
    let need = 0;
    for (const { needsToken, needsCount } of waiting) {
      wishes += !needsToken ? 'c' : needsCount ? 'b' : 't';
      if (needsToken) need++;
    }
    const ask = limit === undefined ? undefined : cache.ask(sentAt, need, { limit, revision });
    const call: Call = { scope, cache, waiting, ask };
    cache.isCalling = true;
    this.#options.redis.call({
      script: 'admit',
      keys: admitKeys(project.id, windowName, further),
      args: admitArgs({
        wishes,
        limit,
        ask,
        further,
        quota: project.quotaCap,
        now: this.#options.scriptNow?.(),
      }),
      done: (reply) => this.#answered(call, reply),
      lost: () => this.#lost(call),
    });
  }

  /** Lets the requests of a lost call join the next one, before those that came meanwhile. */
  #lost({ scope, cache, waiting }: Call): void {
    cache.isCalling = false;
    const now = this.#options.clock.monotonic();
    const again: Waiter[] = [];
    for (const waiter of waiting) {
      waiter.lostAt ??= now;
      if (now - waiter.lostAt < REDIS_REPLY_MS_MAX && this.#options.redis.available) again.push(waiter);
      else this.#tell(scope, waiter);
    }
    if (again.length > 0) this.#asked.set(scope, [...again, ...(this.#asked.get(scope) ?? [])]);
    if (this.#asked.size > 0) this.#options.redis.schedule();
  }

  #answered(call: Call, reply: ScriptReply): void {
    if (!reply) return this.#endCall(call, false);
    const { window, month } = parseReply(reply);
    const counting = window ? this.#takeTokens(call, window) : call.waiting;
    this.#takePositions(call, counting, month);
  }

  /**
   * Gives tokens and refusals to the requests of a call.
   * @returns the requests that the script was to count in the month, in their order
   */
  #takeTokens({ scope, cache, waiting, ask }: Call, reply: WindowReply & { lost: boolean }): Waiter[] {
    const now = this.#options.clock.monotonic();
    const { sentAt } = ask as Ask;
    const stepped = cache.noteClock({ redisNow: reply.now, sentAt, repliedAt: now });
    if (reply.lost || stepped) this.#stateLost++;
    if (reply.lost) this.#options.checkpoints.noteLoss();
    const decisions = cache.answer(ask as Ask, reply, now);
    if (reply.reserve > 0 || cache.hasReturns(now))
      this.#leased.push({ scope, cache, endsAt: sentAt + LEASE_RESERVE_MS });
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
    if (reply?.kind === 'missing' && this.#options.clock.monotonic() >= call.cache.uncountableUntil)
      return this.#restore(call, counting, reply.month);
    if (reply?.kind === 'failed')
      this.#options.log.error({ err: reply.error }, 'redis: the month cannot be counted');
    if (reply?.kind === 'counted') {
      const { month, before, counted } = reply;
      if (counted > 0) this.#options.checkpoints.note(call.scope.project, month, before + counted, before);
      counting.forEach((waiter, i) => {
        waiter.needsCount = false;
        waiter.count =
          i < counted
            ? { kind: 'counted', position: before + i + 1, month }
            : { kind: 'exceeded', current: before + counted, month };
      });
    }
    this.#endCall(call, true);
  }

  /**
   * Counts in a month that has no count. The checkpoint is read, and a second call, which takes no
   * tokens, counts on from it. When the checkpoint cannot be read, none is read for this scope for
   * UNCOUNTABLE_MS.
   */
  #restore(whole: Call, counting: readonly Waiter[], month: string): void {
    const { scope } = whole;
    const { id, quotaCap: quota } = scope.project;
    const call = { ...whole, waiting: counting };
    for (const waiter of whole.waiting) if (!counting.includes(waiter)) this.#tellOrAskAgain(scope, waiter);
    const send = (checkpoint: number | undefined): void => {
      const start = { month, count: checkpoint ?? 0 };
      this.#options.redis.call({
        script: 'admit',
        keys: admitKeys(id),
        args: admitArgs({
          wishes: 'c'.repeat(counting.length),
          quota,
          start,
          now: this.#options.scriptNow?.(),
        }),
        done: (reply) => {
          if (!reply) return this.#endCall(call, false);
          const counted = parseReply(reply).month;
          // Another worker's call may have been first; then that worker has noted the loss.
          if (checkpoint !== undefined && counted?.kind === 'counted' && counted.before === checkpoint)
            this.#noteRestored(id, month, checkpoint);
          this.#takePositions(call, counting, counted);
        },
        lost: () => this.#lost(call),
      });
    };
    within(CHECKPOINT_READ_MS_MAX, this.#options.checkpoints.read(scope.project, month)).then(
      send,
      (error) => {
        this.#options.log.warn({ err: error, project: id, month }, 'quota checkpoint not read');
        call.cache.uncountableUntil = this.#options.clock.monotonic() + UNCOUNTABLE_MS;
        this.#endCall(call, true);
      },
    );
  }

  #noteRestored(project: string, month: string, checkpoint: number): void {
    this.#countersRestored++;
    this.#options.checkpoints.noteLoss();
    this.#options.log.warn(
      { project, month, checkpoint },
      'redis lost the count of a month: it goes on from a checkpoint',
    );
  }

  #endCall({ scope, cache, waiting }: Call, isAnswered: boolean): void {
    cache.isCalling = false;
    for (const waiter of waiting) {
      if (isAnswered) this.#tellOrAskAgain(scope, waiter);
      else this.#tell(scope, waiter);
    }
    if (this.#asked.size > 0) this.#options.redis.schedule();
  }

  /**
   * Tells a waiter its result. A waiter whose token came too late asks for another one instead,
   * once, and before those who came meanwhile.
   */
  #tellOrAskAgain(scope: RateScope, waiter: Waiter): void {
    if (!waiter.needsToken || waiter.isLate || !this.#options.redis.available)
      return this.#tell(scope, waiter);
    waiter.isLate = true;
    const waiting = this.#asked.get(scope) ?? [];
    const behind = waiting.findIndex(({ isLate }) => !isLate);
    waiting.splice(behind < 0 ? waiting.length : behind, 0, waiter);
    this.#asked.set(scope, waiting);
    this.#options.redis.schedule();
  }

  /**
   * Calls a waiter back with what it has. A wish that no call has answered becomes unavailable, and
   * a waiter without a token gives its position back.
   */
  #tell(scope: RateScope, { needsToken, needsCount, rate, count, done }: Waiter): void {
    if (!needsToken && (rate === undefined || rate.kind === 'admitted'))
      return done({ rate, count: needsCount ? UNAVAILABLE : count });
    if (count?.kind === 'counted') this.refund(scope.project, count.month);
    done({ rate: needsToken ? UNAVAILABLE : rate, count: undefined });
  }

  // ---- The timer ----

  #runTimer(): void {
    if (!this.#isClosed) this.#timer ??= setInterval(() => this.#sweep(), RATE_BUCKET_MS).unref();
  }

  #stopTimerIfIdle(): void {
    if (this.#active.size > 0 || this.#leased.length > 0 || this.#refunds.areOwed) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #sweep(): void {
    const now = this.#options.clock.monotonic();
    this.#refunds.sendOwed();
    if (this.#options.redis.available) this.#sendBack(now);
    if (now < this.#evictAt) return;
    this.#evictAt = now + EVICT_EVERY_MS;
    for (const scope of this.#active) {
      const cache = CACHES.find(scope);
      if (cache && (now - cache.usedAt < IDLE_MS || cache.isCalling)) continue;
      CACHES.clear(scope);
      this.#active.delete(scope);
    }
    this.#stopTimerIfIdle();
  }

  #sendBack(now: number): void {
    const ended = this.#leased.filter(({ endsAt }) => endsAt <= now);
    if (ended.length === 0) return;
    this.#leased = this.#leased.filter(({ endsAt }) => endsAt > now);
    for (const lease of ended) {
      const { scope, cache } = lease;
      if (CACHES.find(scope) !== cache || scope.limit === undefined || !cache.hasReturns(now)) continue;
      // A scope has one call at a time. If its next call does not send the tokens back, a later
      // tick of this timer does.
      if (cache.isCalling) this.#leased.push(lease);
      else this.#send(scope, []);
    }
  }
}

/** Whether nothing is left to ask Redis for. */
const needsNothing = ({ needsToken, needsCount, rate }: Waiter): boolean =>
  rate?.kind === 'refused' || !(needsToken || needsCount);

/** Rejects when `promise` is not settled in `ms`; the late result is dropped. */
function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
