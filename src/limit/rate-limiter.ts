/**
 * The per-minute limit (spec part 4.1 step 2, contract part 2): a token from the worker's lease cache, or one script call for all
 * requests of this turn that need one for the same project. Where the bodies of some are whole by then, the same call counts those of them
 * that get a token against the quota (admit.lua): a project of few requests, which has no token in hand, asks Redis once and not twice.
 *
 * State: one {@link RateWindow} per project that was active in the last minute. A timer sends back tokens whose lease ended unused,
 * so that a worker that falls silent keeps nothing from the others, and forgets idle projects.
 */
import { assert } from '../lib/assert.ts';
import type { Clock } from '../lib/clock.ts';
import { LEASE_EXCESS_MS, RATE_BUCKET_MS, RATE_WINDOW_MS } from '../limits.ts';
import { type ClockLead, hasStepped } from './clock-watch.ts';
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
  readonly id: string;
  readonly limit: number;
  readonly revision: number;
  /** The limiter's own. */
  window?: RateWindow | undefined;
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

/** All that a limiter knows of one project, in one object. */
class RateWindow extends LeaseCache implements ClockLead {
  /** Undefined once it is forgotten. */
  limiter: RateLimiter | undefined;
  readonly id: string;
  /** The newest record that a request brought. */
  record: RateSubject;
  /** Among those that ask in this turn; means something where this window stands at it. */
  place = 0;
  /** Calls under way for requests that wait. */
  asked = 0;
  /** Those who wait for the reply to the call under way: in a flood. */
  held: TokenWaiter[] | undefined;
  usedAt = 0;
  /** Of the server that has this window. */
  leadMost = Number.POSITIVE_INFINITY;

  constructor(limiter: RateLimiter, record: RateSubject) {
    super();
    this.limiter = limiter;
    this.id = record.id;
    this.record = record;
  }
}

/**
 * Those who wait for this turn's call, in their order. A young list that names the window, not a list of the window's: that would make V8 look
 * through old objects for young ones at each collection.
 */
type Asking = { window: RateWindow; waiting: TokenWaiter[] };

/** `counting.who`: those of `waiting` that are counted by the same call, '1' or '0' for each; undefined: none. */
type Sent = {
  ask: Ask;
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

const UNAVAILABLE: RateDecision = { kind: 'unavailable' };
/** Idle for longer than any window that this worker may know of. */
const IDLE_MS = RATE_WINDOW_MS + 5_000;
const EVICT_EVERY_MS = 10_000;

export class RateLimiter {
  readonly #redis: LimitRedis;
  readonly #clock: Clock;
  readonly #quota: QuotaCounter;
  readonly #scriptNow: (() => number) | undefined;
  readonly #windows = new Map<string, RateWindow>();
  #asking: Asking[] = [];
  /** Reserve that was granted and may be in hand, in the order of the replies: nearly that in which it ends. */
  #leased: { window: RateWindow; endsAt: number }[] = [];
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
    const window = this.#windowOf(subject);
    window.usedAt = now;
    if (subject.revision > window.record.revision) window.record = subject;
    const local = window.take(now, subject.revision);
    if (local) return local;
    if (!this.#redis.available) return UNAVAILABLE;
    const asking = this.#asking[window.place];
    if (asking?.window === window) asking.waiting.push(waiter);
    else if (window.held) window.held.push(waiter);
    else this.#ask(window, [waiter]);
    return undefined;
  }

  #windowOf(subject: RateSubject): RateWindow {
    if (subject.window?.limiter === this) return subject.window;
    const { id } = subject;
    let window = this.#windows.get(id);
    if (!window) {
      window = new RateWindow(this, subject);
      this.#windows.set(id, window);
    }
    subject.window = window;
    return window;
  }

  // ---- The call ----

  #ask(window: RateWindow, waiting: TokenWaiter[]): void {
    window.place = this.#asking.length;
    this.#asking.push({ window, waiting });
    this.#redis.schedule();
  }

  #sendAsked(): void {
    const asking = this.#asking;
    if (asking.length === 0) return;
    this.#asking = [];
    for (const { window, waiting } of asking) {
      // In a flood one call at a time: its reply decides for these too.
      if (window.asked > 0 && window.pressed) {
        assert(!window.held, 'whoever comes while others are held joins them');
        window.held = waiting;
        continue;
      }
      const left = this.#serveLocally(window, waiting);
      if (left.length > 0) this.#send(window, left);
    }
  }

  /** A reply that came after these began to wait may have brought tokens, or a refusal. */
  #serveLocally(window: RateWindow, waiting: readonly TokenWaiter[]): readonly TokenWaiter[] {
    const now = this.#clock.monotonic();
    let served = 0;
    for (; served < waiting.length; served++) {
      const decision = window.take(now, window.record.revision);
      if (!decision) break;
      waiting[served]?.decided(decision);
    }
    return served === 0 ? waiting : waiting.slice(served);
  }

  #send(window: RateWindow, waiting: readonly TokenWaiter[]): void {
    const { id } = window;
    const ask = window.ask(this.#clock.monotonic(), waiting.length, window.record);
    const counting = this.#countingOf(id, waiting);
    const sent: Sent = { ask, waiting, counting };
    if (waiting.length > 0) window.asked++;
    const own = scriptArgs(ask, window.record.limit, this.#scriptNow?.());
    if (counting)
      this.#redis.call({
        script: 'admit',
        keys: [rateKey(id), quotaKey(id)],
        args: [counting.who, capOf(counting.subject), ...own],
        done: (reply) => this.#done(window, sent, reply?.[0] as ScriptReply, reply?.[1] as ScriptReply),
      });
    else
      this.#redis.call({
        script: 'rateWindow',
        keys: [rateKey(id)],
        args: own,
        done: (reply) => this.#done(window, sent, reply, undefined),
      });
  }

  #done(window: RateWindow, sent: Sent, booked: ScriptReply, counted: ScriptReply): void {
    if (sent.waiting.length > 0) window.asked--;
    const isDecided = this.#answered(window, sent, booked);
    this.#counted(sent, isDecided, booked, counted);
    this.#resume(window);
  }

  /** Undefined: nobody can be counted yet. */
  #countingOf(id: string, waiting: readonly TokenWaiter[]): Sent['counting'] {
    if (waiting.length === 0 || this.#quota.isRestoring(id)) return undefined;
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
  #answered(window: RateWindow, { ask, waiting }: Sent, booked: ScriptReply): boolean {
    const reply = booked && parseReply(booked);
    const now = this.#clock.monotonic();
    const stepped =
      reply !== undefined && hasStepped(window, { redisNow: reply.now, sentAt: ask.sentAt, repliedAt: now });
    if (reply?.lost || stepped) this.#stateLost++;
    const decisions = reply && window.answer(ask, reply, now);
    if (reply && reply.excess > 0) this.#leased.push({ window, endsAt: ask.sentAt + LEASE_EXCESS_MS });
    for (let i = 0; i < waiting.length; i++) waiting[i]?.decided(decisions?.[i] ?? UNAVAILABLE);
    return decisions !== undefined;
  }

  /** Tells those that named a quota, but for whom a decision has refused. */
  #counted({ waiting, counting }: Sent, isDecided: boolean, booked: ScriptReply, counted: ScriptReply): void {
    if (!counting) return;
    const those: TokenWaiter[] = [];
    waiting.forEach((waiter, i) => {
      if (counting.who[i] === '0') return;
      if (!booked || i < (booked[0] as number)) those.push(waiter);
      else if (!isDecided) waiter.counted(NOT_COUNTED);
    });
    if (those.length > 0) this.#quota.answered({ subject: counting.subject, waiting: those }, counted);
  }

  /** Those who came while the call was under way. */
  #resume(window: RateWindow): void {
    const { held } = window;
    if (!held) return;
    window.held = undefined;
    this.#ask(window, held);
  }

  // ---- The timer ----

  #sweep(): void {
    const now = this.#clock.monotonic();
    if (this.#redis.available) this.#sendBack(now);
    if (now < this.#evictAt) return;
    this.#evictAt = now + EVICT_EVERY_MS;
    for (const window of this.#windows.values()) {
      if (now - window.usedAt < IDLE_MS || window.asked > 0 || window.held) continue;
      this.#windows.delete(window.id);
      window.limiter = undefined;
      if (window.record.window === window) window.record.window = undefined;
    }
  }

  #sendBack(now: number): void {
    const leased = this.#leased;
    let ended = 0;
    for (; ended < leased.length; ended++) {
      const { window, endsAt } = leased[ended] as (typeof leased)[number];
      if (endsAt > now) break;
      if (window.limiter === this && window.hasReturns(now)) this.#send(window, []);
    }
    leased.splice(0, ended);
  }
}
