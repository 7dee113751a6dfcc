/**
 * The per-minute limit (spec part 4.1 step 2, contract part 2): a token from the worker's lease cache, or one script call for all
 * requests of this turn that need one for the same project. Where the bodies of some are whole by then, the same call counts those of them
 * that get a token against the quota (admit.lua): a project of few requests, which has no token in hand, asks Redis once and not twice.
 *
 * State: one {@link LeaseCache} per project that was active in the last minute. A timer sends back tokens whose lease ended unused,
 * so that a worker that falls silent keeps nothing from the others, and forgets idle projects.
 */
import type { Clock } from '../lib/clock.ts';
import { RATE_BUCKET_MS, RATE_WINDOW_MS } from '../limits.ts';
import { ClockWatch } from './clock-watch.ts';
import { type Ask, LeaseCache, type LocalDecision } from './lease-cache.ts';
import {
  type CountWaiter,
  capOf,
  NOT_COUNTED,
  type QuotaCounter,
  type QuotaSubject,
} from './quota-counter.ts';
import { parseReply, scriptArgs } from './rate-window-call.ts';
import type { LimitRedis, ScriptReply } from './redis.ts';
import { quotaKey, rateKey } from './scripts.ts';

/** `revision`: of the registry record that says so. The newest revision that any worker brings is in force everywhere. */
export type RateSubject = {
  readonly projectId: string;
  readonly limit: number;
  readonly revision: number;
  /** The limiter's own. */
  state?: ProjectState | undefined;
};

/** `resetSec`: Unix seconds, rounded up: when the window will be empty again, or when a request can be admitted. */
export type RateDecision = LocalDecision | { kind: 'unavailable' };

/** Who waits for a token. */
export interface TokenWaiter extends CountWaiter {
  /**
   * Asked as the call leaves: the quota that this request is to be counted against when it gets a token; undefined: not yet. Who names one
   * may have been counted from then on, and is told by `counted`, after `decided` and unless that refused it.
   */
  counts(): QuotaSubject | undefined;
  decided(decision: RateDecision): void;
}
type ProjectState = {
  /** Undefined once it is forgotten. */
  limiter: RateLimiter | undefined;
  readonly projectId: string;
  readonly cache: LeaseCache;
  /** Of the server that has this project's window. */
  readonly redisClock: ClockWatch;
  /** The newest record that a request brought. */
  record: RateSubject;
  /** {@link NOBODY} most of the time. */
  waiting: TokenWaiter[];
  /** Calls under way for requests that wait. */
  asked: number;
  usedAt: number;
};

/** `counting.who`: those of `waiting` that are counted by the same call, '1' or '0' for each; undefined: none. */
type Sent = {
  ask: Ask;
  sentAt: number;
  waiting: readonly TokenWaiter[];
  counting: { subject: QuotaSubject; who: string } | undefined;
};

export type RateLimiterOptions = {
  redis: LimitRedis;
  clock: Clock;
  quota: QuotaCounter;
  /** Unix ms that the script shall take for now, in tests; without it, it reads Redis's own clock. */
  scriptNow?: () => number;
};

/**
 * Never filled. An empty list of its own for each project would be made in the old space, where V8 puts what lives as long, and hold the
 * requests that once waited in it until a full collection (DECISIONS.md 70).
 */
const NOBODY: TokenWaiter[] = [];
const UNAVAILABLE: RateDecision = { kind: 'unavailable' };
/** Idle for longer than any window that this worker may know of. */
const IDLE_MS = RATE_WINDOW_MS + 5_000;
const EVICT_EVERY_MS = 10_000;

export class RateLimiter {
  readonly #redis: LimitRedis;
  readonly #clock: Clock;
  readonly #quota: QuotaCounter;
  readonly #scriptNow: (() => number) | undefined;
  readonly #projects = new Map<string, ProjectState>();
  /** Projects with requests that wait for this turn's call. */
  #asking: ProjectState[] = [];
  /** Projects that hold reserve tokens. */
  readonly #leasing = new Set<ProjectState>();
  readonly #timer: NodeJS.Timeout;
  #evictAt: number;
  #stateLost = 0;

  constructor(options: RateLimiterOptions) {
    this.#redis = options.redis;
    this.#clock = options.clock;
    this.#quota = options.quota;
    this.#scriptNow = options.scriptNow;
    this.#redis.beforeFlush(() => this.#sendAsked());
    this.#evictAt = this.#clock.monotonic() + EVICT_EVERY_MS;
    this.#timer = setInterval(() => this.#sweep(), RATE_BUCKET_MS);
    this.#timer.unref();
  }

  /**
   * Windows that Redis forgot while this worker knew of bookings in them, and those whose bookings left early because Redis's clock
   * stepped forward, which each worker sees for itself (sluice_limiter_state_lost_total).
   */
  get stateLost(): number {
    return this.#stateLost;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** The decision at once, or undefined and the waiter is told, once, within 250 ms of the call to Redis. */
  take(subject: RateSubject, waiter: TokenWaiter): RateDecision | undefined {
    const now = this.#clock.monotonic();
    const state = this.#stateOf(subject);
    state.usedAt = now;
    if (subject.revision > state.record.revision) state.record = subject;
    const local = state.cache.take(now, subject.revision);
    if (local) return local;
    if (!this.#redis.available) return UNAVAILABLE;
    if (state.waiting === NOBODY) {
      state.waiting = [waiter];
      this.#asking.push(state);
    } else state.waiting.push(waiter);
    this.#redis.schedule();
    return undefined;
  }

  #stateOf(subject: RateSubject): ProjectState {
    if (subject.state?.limiter === this) return subject.state;
    const { projectId } = subject;
    let state = this.#projects.get(projectId);
    if (!state) {
      state = {
        limiter: this,
        projectId,
        cache: new LeaseCache(),
        redisClock: new ClockWatch(),
        record: subject,
        waiting: NOBODY,
        asked: 0,
        usedAt: 0,
      };
      this.#projects.set(projectId, state);
    }
    subject.state = state;
    return state;
  }

  // ---- The call ----

  #sendAsked(): void {
    const asking = this.#asking;
    if (asking.length === 0) return;
    this.#asking = [];
    for (const state of asking) {
      // In a flood one call at a time: its reply decides for these too.
      if (state.asked > 0 && state.cache.pressed) continue;
      const waiting = this.#serveLocally(state);
      if (waiting.length > 0) this.#send(state, waiting);
    }
  }

  /** A reply that came after these began to wait may have brought tokens, or a refusal. */
  #serveLocally(state: ProjectState): TokenWaiter[] {
    const waiting = state.waiting;
    state.waiting = NOBODY;
    const now = this.#clock.monotonic();
    let served = 0;
    for (; served < waiting.length; served++) {
      const decision = state.cache.take(now, state.record.revision);
      if (!decision) break;
      waiting[served]?.decided(decision);
    }
    return served === 0 ? waiting : waiting.slice(served);
  }

  #send(state: ProjectState, waiting: readonly TokenWaiter[]): void {
    const { projectId } = state;
    const sentAt = this.#clock.monotonic();
    const ask = state.cache.ask(sentAt, waiting.length, state.record);
    const counting = this.#countingOf(projectId, waiting);
    const sent: Sent = { ask, sentAt, waiting, counting };
    if (waiting.length > 0) state.asked++;
    const own = scriptArgs(ask, state.record.limit, this.#scriptNow?.());
    if (counting)
      this.#redis.call({
        script: 'admit',
        keys: [rateKey(projectId), quotaKey(projectId)],
        args: [counting.who, capOf(counting.subject), ...own],
        done: (reply) => this.#done(state, sent, reply?.[0] as ScriptReply, reply?.[1] as ScriptReply),
      });
    else
      this.#redis.call({
        script: 'rateWindow',
        keys: [rateKey(projectId)],
        args: own,
        done: (reply) => this.#done(state, sent, reply, undefined),
      });
  }

  #done(state: ProjectState, sent: Sent, window: ScriptReply, counted: ScriptReply): void {
    if (sent.waiting.length > 0) state.asked--;
    const isDecided = this.#answered(state, sent, window);
    this.#counted(sent, isDecided, window, counted);
    this.#resume(state);
  }

  /** Undefined: nobody can be counted yet. */
  #countingOf(projectId: string, waiting: readonly TokenWaiter[]): Sent['counting'] {
    if (waiting.length === 0 || this.#quota.isRestoring(projectId)) return undefined;
    let subject: QuotaSubject | undefined;
    let who = '';
    for (const waiter of waiting) {
      const own = waiter.counts();
      subject = own ?? subject;
      who += own ? '1' : '0';
    }
    return subject && { subject, who };
  }

  /** @returns false when the call was not answered, or too late for its tokens to be used */
  #answered(state: ProjectState, sent: Sent, reply: ScriptReply): boolean {
    const window = reply && parseReply(reply);
    const now = this.#clock.monotonic();
    const stepped = window !== undefined && state.redisClock.stepped(window.now, sent.sentAt, now);
    if (window?.lost || stepped) this.#stateLost++;
    const decisions = window && state.cache.answer(sent.ask, window, now);
    if (window && window.excess > 0) this.#leasing.add(state);
    sent.waiting.forEach((waiter, i) => {
      waiter.decided(decisions?.[i] ?? UNAVAILABLE);
    });
    return decisions !== undefined;
  }

  /** Tells those that named a quota, but for whom a decision has refused. */
  #counted({ waiting, counting }: Sent, isDecided: boolean, window: ScriptReply, counted: ScriptReply): void {
    if (!counting) return;
    const those: TokenWaiter[] = [];
    waiting.forEach((waiter, i) => {
      if (counting.who[i] === '0') return;
      if (!window || i < (window[0] as number)) those.push(waiter);
      else if (!isDecided) waiter.counted(NOT_COUNTED);
    });
    if (those.length > 0) this.#quota.answered({ subject: counting.subject, waiting: those }, counted);
  }

  /** Those who came while the call was under way. */
  #resume(state: ProjectState): void {
    if (state.waiting.length === 0 || this.#asking.includes(state)) return;
    this.#asking.push(state);
    this.#redis.schedule();
  }

  // ---- The timer ----

  #sweep(): void {
    const now = this.#clock.monotonic();
    for (const state of this.#leasing) {
      if (this.#redis.available && state.cache.hasReturns(now)) this.#send(state, []);
      if (state.cache.unused === 0) this.#leasing.delete(state);
    }
    if (now < this.#evictAt) return;
    this.#evictAt = now + EVICT_EVERY_MS;
    for (const state of this.#projects.values()) {
      if (now - state.usedAt < IDLE_MS || state.waiting.length > 0) continue;
      this.#projects.delete(state.projectId);
      state.limiter = undefined;
      if (state.record.state === state) state.record.state = undefined;
      this.#leasing.delete(state);
    }
  }
}
