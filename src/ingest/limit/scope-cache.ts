/**
 * What one worker holds of one scope's rate windows: leased tokens, the last refusal by any of
 * them, and what it knows of the first.
 *
 * Why. With a token in hand admission does no I/O, and a flood over the limit is refused from
 * memory: one script call per 300 ms at most, whatever the clients do.
 *
 * How. Pure: no timer, no connection, the caller's monotonic clock. All is in one object: with
 * ten thousand active scopes each further one is in no cache of the CPU's. `take` answers from
 * memory or not at all; `ask` describes the script call that is about to be sent; `answer` takes
 * its reply in. It wants a reserve of about a quarter of a second of demand, refused requests
 * included; up to EXACT_LIMIT_MAX the script grants it only while the window is contended
 * (admit.lua).
 *
 * Three states. *Stocked*: there is reserve, and `take` spends it, the earliest end first.
 * *Refusing*: there is none, and the last reply said until when nothing can be admitted. *Asking*:
 * neither, so Redis decides. A reply alone leads to the first two; spending and time lead out of
 * them, and a newer record out of the second. So no field names the state: time would end it
 * unseen. It is read from the reserve and the refusal, at each question.
 *
 * Never too much. A lease counts from the moment at which the call was SENT, which is before the
 * script's own clock read; the script books it at its end by that clock. So no token is used after
 * the moment at which it is booked. A reply that comes later than the lease is void: what it
 * granted goes back with the next call. Tokens that ran out unused are taken out of the cache
 * before they are sent back: if that call is lost they are wasted, never used.
 */
import { assert } from '../../lib/assert.ts';
import {
  CONTENDED_RESERVE_SHARE_MAX,
  LEASE_NEED_MS,
  LEASE_NEED_SLOW_MS,
  LEASE_RESERVE_MS,
  RATE_BUCKET_MS,
} from '../../limits.ts';

/** A lease ends this much early at the worker: clocks tick in milliseconds and drift. */
const LEASE_GUARD_MS = 1;
/** Neither 250 nor 333: workers that take turns should not meet a bucket in the same order. */
const REFUSAL_CACHE_MS_MIN = 300;

/** The limit of a scope as this worker's registry has it. */
export type LimitRecord = { limit: number; revision: number };
/** What a call says of the first window, as the reply before left it. */
type KnownWindow = { emptyAt: number; gen: number; seq: number };
/**
 * Tokens leased together; `endsAt` on the monotonic clock, exclusive. `next`: of those in hand, the
 * one that ends next.
 */
type Lease = { bucket: number; unused: number; used: number; endsAt: number; next: Lease | undefined };

/**
 * A token or a refusal, from memory or out of a reply. `resetSec`: Unix seconds by Redis's clock,
 * rounded up: when the window will be empty again, or when a request can be admitted.
 * `windowNumber`: of the window that refuses, as admit.lua numbers those of a scope, from 1.
 */
export type WindowDecision =
  | { kind: 'admitted'; remaining: number; resetSec: number }
  | { kind: 'refused'; resetSec: number; windowNumber: number };

/** One script call, from before it is sent. */
export type Ask = {
  sentAt: number;
  need: number;
  reserve: number;
  /** How long `need` is leased. */
  needMs: number;
  revision: number;
  /** Reserve that is used up or ran out, and need that came too late. */
  settled: readonly Lease[];
  known: KnownWindow | undefined;
};

/**
 * admit.lua's result for the window by name; `now`, `emptyAt` and `admitsAt` in Unix ms by Redis's
 * clock.
 */
export type WindowReply = {
  granted: number;
  needBucket: number;
  reserve: number;
  reserveBucket: number;
  booked: number;
  limit: number;
  revision: number;
  now: number;
  emptyAt: number;
  admitsAt: number;
  gen: number;
  seq: number;
  scarce: boolean;
  refusingWindow: number;
};

/** Never filled. A list of its own for each call would live on in the old space. */
const NOTHING_SETTLED: Lease[] = [];
/** How much demand is looked at to size the reserve. */
const RATE_SPAN_MS = 100;

/** What one process keeps of a scope that was active in the last minute. */
export class ScopeCache {
  // ---- The lease ----
  /** Reserve, the earliest end first; several only when calls have crossed. */
  #reserve: Lease | undefined;
  /**
   * Used up, run out or come too late, until the next call tells so; mostly
   * {@link NOTHING_SETTLED}.
   */
  #settled = NOTHING_SETTLED;
  /** Holds for records up to `revision`: a newer one may have raised the limit. */
  #refusal: { until: number; resetSec: number; windowNumber: number; revision: number } | undefined;

  /** The last reply came late, or nearly so: the next lease is a long one. */
  #isSlow = false;

  // ---- The first window as the last reply left it; nothing before the first one ----
  #isKnown = false;
  #limit = 0;
  #booked = 0;
  #emptyAt = 0;
  #gen = 0;
  #seq = 0;

  // ---- Redis's clock ----
  /**
   * Most by which it was ahead of ours in the last reply, ms; infinite before the first one, which
   * cannot have stepped.
   */
  #leadMost = Number.POSITIVE_INFINITY;

  // ---- Demand ----
  #spanStart = Number.NEGATIVE_INFINITY;
  #spanTaken = 0;
  #perMs = 0;

  /** Tokens that are booked and not used; those that ran out count until they are sent back. */
  get unused(): number {
    let sum = 0;
    for (let lease = this.#reserve; lease; lease = lease.next) sum += lease.unused;
    if (this.#settled !== NOTHING_SETTLED) for (const lease of this.#settled) sum += lease.unused;
    return sum;
  }

  /** True when tokens ran out that a call should send back. */
  hasReturns(now: number): boolean {
    this.#expire(now);
    return this.#settled.some((lease) => lease.unused > 0);
  }

  /**
   * A token or a refusal from memory; undefined: Redis must be asked. `now` is monotonic, in ms, as
   * everywhere here.
   */
  take(now: number, revision: number): WindowDecision | undefined {
    if (this.#reserve) {
      this.#expire(now);
      if (this.#reserve) return this.#spendToken(this.#reserve, now);
    }
    return this.refusal(now, revision);
  }

  /** True when {@link take} would find a token. */
  hasToken(now: number): boolean {
    if (this.#reserve) this.#expire(now);
    return this.#reserve !== undefined;
  }

  /** The refusal that is in force while no token is in hand. */
  refusal(now: number, revision: number): WindowDecision | undefined {
    const refusal = this.#refusal;
    if (!refusal) return undefined;
    if (now < refusal.until && revision <= refusal.revision) {
      // Demand is what is asked for, not what is had.
      this.#measure(now, 1);
      return { kind: 'refused', resetSec: refusal.resetSec, windowNumber: refusal.windowNumber };
    }
    this.#refusal = undefined;
    return undefined;
  }

  #spendToken(lease: Lease, now: number): WindowDecision {
    assert(lease.unused > 0 && now < lease.endsAt, 'a token is used within its lease');
    lease.unused--;
    lease.used++;
    if (lease.unused === 0) this.#settle(lease);
    this.#measure(now, 1);
    return this.#admitted(0);
  }

  /** An admission that leaves `promised` tokens of the same call to those who wait behind it. */
  #admitted(promised: number): WindowDecision {
    const remaining = Math.max(0, this.#limit - this.#booked + this.unused + promised);
    return { kind: 'admitted', remaining, resetSec: Math.ceil(this.#emptyAt / 1000) };
  }

  /**
   * The call for `need` waiting requests (0: only to send tokens back). Takes what is sent back out
   * of the cache.
   */
  ask(now: number, need: number, record: LimitRecord): Ask {
    this.#expire(now);
    assert(need === 0 || !this.#reserve, 'no request waits while a token is in hand');
    const reserve = need > 0 ? this.#reserveWanted(now, record.limit) : 0;
    this.#measure(now, need);
    return {
      sentAt: now,
      need,
      reserve,
      needMs: this.#isSlow ? LEASE_NEED_SLOW_MS : LEASE_NEED_MS,
      revision: record.revision,
      settled: this.#takeSettled(now),
      known: this.#isKnown ? { emptyAt: this.#emptyAt, gen: this.#gen, seq: this.#seq } : undefined,
    };
  }

  /**
   * Takes the leases that admit.lua must be told of. A lease that was used up and has ended is left
   * out: the script has stopped counting its bucket as outstanding.
   */
  #takeSettled(now: number): readonly Lease[] {
    const settled = this.#settled;
    if (settled === NOTHING_SETTLED) return settled;
    this.#settled = NOTHING_SETTLED;
    return settled.filter((lease) => lease.unused > 0 || lease.endsAt > now);
  }

  /** As much as half a lease of the demand so far; nothing for the first request after a lull. */
  #reserveWanted(now: number, limit: number): number {
    this.#measure(now, 0);
    const perMs = Math.max(this.#perMs, this.#spanTaken / RATE_SPAN_MS);
    const most = Math.floor(limit * CONTENDED_RESERVE_SHARE_MAX);
    return Math.min(most, Math.round((perMs * LEASE_RESERVE_MS) / 2));
  }

  /**
   * One decision for each that waited, in their order; undefined: a token was granted, but the
   * reply came too late for it to be used. A refusal is sound however late it comes.
   */
  answer(ask: Ask, reply: WindowReply, now: number): (WindowDecision | undefined)[] {
    assert(
      reply.granted <= ask.need && reply.reserve <= ask.reserve,
      'no more is granted than was asked for',
    );
    this.#learn(reply);
    this.#keep(ask.sentAt + LEASE_RESERVE_MS - LEASE_GUARD_MS, reply.reserveBucket, reply.reserve);
    const endsAt = ask.sentAt + ask.needMs - LEASE_GUARD_MS;
    const isLate = now >= endsAt;
    this.#isSlow = now - ask.sentAt >= LEASE_NEED_MS / 2;
    const decisions: (WindowDecision | undefined)[] = [];
    for (let i = 1; i <= reply.granted; i++)
      decisions.push(isLate ? undefined : this.#admitted(reply.granted - i));
    if (ask.need === 0) return decisions;
    if (isLate && reply.granted > 0) this.#giveBack(reply, endsAt);
    else this.#refusal = undefined;
    if (reply.granted < ask.need || reply.admitsAt > 0 || reply.scarce) {
      const refused = this.#refuse(ask, reply, now);
      while (decisions.length < ask.need) decisions.push(refused);
      // The next call brings back what is void: it is not to be refused from memory.
      if (isLate && reply.granted > 0) this.#refusal = undefined;
    }
    return decisions;
  }

  /**
   * Gives back need, which never counted as outstanding reserve. The script subtracts `unused +
   * used` from that: with `used` below 0 it subtracts nothing.
   */
  #giveBack({ needBucket: bucket, granted }: WindowReply, endsAt: number): void {
    this.#addSettled({ bucket, unused: granted, used: -granted, endsAt, next: undefined });
  }

  #learn({ limit, booked, emptyAt, gen, seq }: WindowReply): void {
    this.#isKnown = true;
    this.#limit = limit;
    this.#booked = booked;
    this.#emptyAt = emptyAt;
    this.#gen = gen;
    this.#seq = seq;
  }

  /**
   * The decision for requests that no token in hand serves. Kept until the window can admit, from
   * the reply: the next call shall not come a moment too early.
   */
  #refuse(ask: Ask, reply: WindowReply, now: number): WindowDecision {
    const holdMs = Math.max(REFUSAL_CACHE_MS_MIN, reply.admitsAt - reply.now);
    const resetSec = Math.ceil((reply.now + holdMs) / 1000);
    const windowNumber = reply.refusingWindow;
    const revision = Math.max(ask.revision, reply.revision);
    this.#refusal = { until: now + holdMs, resetSec, windowNumber, revision };
    return { kind: 'refused', resetSec, windowNumber };
  }

  #keep(endsAt: number, bucket: number, count: number): void {
    if (count === 0) return;
    let before: Lease | undefined;
    for (let lease = this.#reserve; lease && lease.endsAt <= endsAt; lease = lease.next) before = lease;
    const next = before ? before.next : this.#reserve;
    const kept = { bucket, unused: count, used: 0, endsAt, next };
    if (before) before.next = kept;
    else this.#reserve = kept;
  }

  #expire(now: number): void {
    while (this.#reserve && this.#reserve.endsAt <= now) this.#settle(this.#reserve);
  }

  /** The first lease is done with. */
  #settle(lease: Lease): void {
    this.#reserve = lease.next;
    lease.next = undefined;
    this.#addSettled(lease);
  }

  #addSettled(lease: Lease): void {
    const same = this.#settled.find((other) => other.bucket === lease.bucket);
    if (this.#settled === NOTHING_SETTLED) this.#settled = [lease];
    else if (!same) this.#settled.push(lease);
    else {
      same.unused += lease.unused;
      same.used += lease.used;
    }
  }

  /**
   * Redis read its clock between the sending of a call and its reply. So its lead over our own
   * clock, which never steps, lies between two values. When the lower one is more than 250 ms above
   * the upper one of the reply before, the clock has stepped, and bookings left their window early.
   * What a reply takes (at most 700 ms) hides smaller steps, and a clock that is slewed drifts by
   * less than that from one reply to the next.
   * @param redisNow Unix ms that Redis said
   * @returns whether it has stepped forward since the reply before
   */
  noteClock({
    redisNow,
    sentAt,
    repliedAt,
  }: {
    redisNow: number;
    sentAt: number;
    repliedAt: number;
  }): boolean {
    const before = this.#leadMost;
    this.#leadMost = redisNow - sentAt;
    return redisNow - repliedAt > before + RATE_BUCKET_MS;
  }

  #measure(now: number, taken: number): void {
    const span = now - this.#spanStart;
    if (span >= RATE_SPAN_MS) {
      this.#perMs = this.#spanTaken / span;
      this.#spanStart = now;
      this.#spanTaken = 0;
    }
    this.#spanTaken += taken;
  }
}
