/**
 * One worker's state of the rate windows of one scope: leased tokens, the last refusal by any of
 * the windows, and the scope's first window as the last reply described it.
 *
 * *Why*: with a token in hand an admission does no I/O, and a flood over the limit is refused from
 * memory. Such a flood costs one script call per 300 ms at most, whatever the clients do.
 *
 * *How*: the cache is pure. It has no timer and no connection, and its caller brings the monotonic
 * clock. `take` answers from memory or not at all; `ask` describes the script call that is about to
 * be sent; `answer` takes in its reply. The cache asks for a reserve that lasts about a quarter of
 * a second at the current demand; refused requests count as demand. For limits up to
 * EXACT_LIMIT_MAX the script grants a reserve only while the window is *contended*: it was full or
 * nearly full a short time ago (admit.lua).
 *
 * *Three states*. *Stocked*: there is reserve, and `take` spends it, the earliest end first.
 * *Refusing*: there is no reserve, and the last reply said until when nothing can be admitted.
 * *Asking*: neither is the case, so Redis decides. Only a reply makes a scope stocked or refusing.
 * These states end when the tokens are spent or the time is over; *refusing* also ends when the
 * project's record is newer than the refusal. No timer runs when a state ends by time. So no field
 * holds the state: each method derives it from the reserve and the refusal.
 *
 * *Never too much*: the worker counts a lease from the moment at which it SENT the call. The script
 * counts it from its own clock, which it reads later, and books the tokens at the end of the lease.
 * So the worker's lease ends first, and no token is used after the moment at which it is booked. A
 * reply that comes later than the end of the lease is void, and the tokens that it granted go back
 * with the next call. Tokens that ran out unused are taken out of the cache before they are sent
 * back: if that call is lost, the tokens are wasted, never used.
 */
import { assert } from '../../lib/assert.ts';
import {
  CONTENDED_RESERVE_SHARE_MAX,
  LEASE_NEED_MS,
  LEASE_NEED_SLOW_MS,
  LEASE_RESERVE_MS,
  RATE_BUCKET_MS,
} from '../../limits.ts';

/**
 * Time in ms by which a lease ends earlier at the worker than in Redis, because clocks tick in
 * milliseconds and drift.
 */
const LEASE_GUARD_MS = 1;
/**
 * Shortest time in ms for which a refusal is kept. Redis frees tokens every 250 ms. With 250 or 333
 * ms the same worker would always be the first to ask for them; with 300 ms workers take turns.
 */
const REFUSAL_CACHE_MS_MIN = 300;

/**
 * The limit of a scope, and the revision of the registry's record from which this worker has the
 * limit.
 */
export type LimitRecord = { limit: number; revision: number };
/**
 * The first window as the last reply described it. The next call passes this on to admit.lua, which
 * explains the fields.
 */
type KnownWindow = { emptyAt: number; gen: number; seq: number };
/**
 * Tokens that were leased together, until `endsAt` (monotonic ms). `next`: the lease in hand that
 * ends next after this one.
 */
type Lease = { bucket: number; unused: number; used: number; endsAt: number; next: Lease | undefined };

/**
 * A token or a refusal, from memory or out of a reply. `resetSec` is a time in Unix seconds by
 * Redis's clock, rounded up: for a token, when the scope's first window will be empty; for a
 * refusal, when a request can be admitted. A scope may have several windows (of the project, a key,
 * categories). `windowNumber` says which of them refuses, from 1 in the order of admit.lua.
 */
export type WindowDecision =
  | { kind: 'admitted'; remaining: number; resetSec: number }
  | { kind: 'refused'; resetSec: number; windowNumber: number };

/**
 * One script call before it is sent: `need` tokens for waiting requests, `reserve` for later ones.
 */
export type Ask = {
  sentAt: number;
  need: number;
  reserve: number;
  /** How long `need` is leased, in ms. */
  needMs: number;
  revision: number;
  /**
   * Leases whose use is reported to admit.lua: reserve that is used up or ran out, and tokens that
   * came too late for their requests.
   */
  settled: readonly Lease[];
  known: KnownWindow | undefined;
};

/**
 * admit.lua's result for the windows, with names. `now`, `emptyAt` and `admitsAt` are in Unix ms by
 * Redis's clock.
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

/**
 * Shared empty list, which is never filled. A new list for each call would live on in V8's old
 * space.
 */
const NOTHING_SETTLED: Lease[] = [];
/** Span in ms over which demand is measured, to size the reserve. */
const RATE_SPAN_MS = 100;

/** The state that one process keeps of a scope that was active in the last minute. */
export class ScopeCache {
  // ---- The lease ----
  /**
   * Leases in reserve, the earliest end first. There are several only when a call was sent before
   * the reply to another call came.
   */
  #reserve: Lease | undefined;
  /**
   * Leases that are used up, have expired or came too late. The next call tells the script of them.
   * Mostly {@link NOTHING_SETTLED}.
   */
  #settled = NOTHING_SETTLED;
  /**
   * The last refusal. It holds for records up to `revision`, because a newer record may have raised
   * the limit.
   */
  #refusal: { until: number; resetSec: number; windowNumber: number; revision: number } | undefined;

  /**
   * Whether the last reply took at least half of LEASE_NEED_MS. The next call then leases its need
   * for LEASE_NEED_SLOW_MS.
   */
  #isSlow = false;

  // ---- The first window as the last reply described it ----
  #isKnown = false;
  #limit = 0;
  #booked = 0;
  #emptyAt = 0;
  #gen = 0;
  #seq = 0;

  // ---- Redis's clock ----
  /**
   * The most by which Redis's clock can have been ahead of ours at the last reply, in ms. Infinite
   * before the first reply, so that this reply never counts as a step of the clock.
   */
  #leadMost = Number.POSITIVE_INFINITY;

  // ---- Demand ----
  #spanStart = Number.NEGATIVE_INFINITY;
  #spanTaken = 0;
  #perMs = 0;

  /**
   * Tokens that are booked and not used. Unused tokens of ended leases count until they are sent
   * back.
   */
  get unused(): number {
    let sum = 0;
    for (let lease = this.#reserve; lease; lease = lease.next) sum += lease.unused;
    if (this.#settled !== NOTHING_SETTLED) for (const lease of this.#settled) sum += lease.unused;
    return sum;
  }

  /** Whether a call should send back tokens: unused ones of leases that have ended. */
  hasReturns(now: number): boolean {
    this.#expire(now);
    return this.#settled.some((lease) => lease.unused > 0);
  }

  /**
   * Takes a token, or returns the refusal in force; undefined: Redis must be asked.
   * @param now monotonic ms, as in all methods here
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

  /**
   * Returns the refusal in force; undefined: there is none. Call it only when no token is in hand.
   */
  refusal(now: number, revision: number): WindowDecision | undefined {
    const refusal = this.#refusal;
    if (!refusal) return undefined;
    if (now < refusal.until && revision <= refusal.revision) {
      // A refused request is measured, too: demand is what clients ask for, not what they get.
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

  /**
   * Describes an admission.
   * @param promised tokens of the same call that go to requests behind this one
   */
  #admitted(promised: number): WindowDecision {
    const remaining = Math.max(0, this.#limit - this.#booked + this.unused + promised);
    return { kind: 'admitted', remaining, resetSec: Math.ceil(this.#emptyAt / 1000) };
  }

  /**
   * Describes the call for `need` waiting requests (0: the call only sends tokens back). Tokens
   * that the call sends back are taken out of the cache.
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
   * out: the script counts a lease's tokens as outstanding only until the lease ends.
   */
  #takeSettled(now: number): readonly Lease[] {
    const settled = this.#settled;
    if (settled === NOTHING_SETTLED) return settled;
    this.#settled = NOTHING_SETTLED;
    return settled.filter((lease) => lease.unused > 0 || lease.endsAt > now);
  }

  /**
   * Returns how many tokens of reserve to ask for: as many as the measured demand uses in half of
   * LEASE_RESERVE_MS, but at most CONTENDED_RESERVE_SHARE_MAX of the limit. The first request after
   * a lull asks for none.
   */
  #reserveWanted(now: number, limit: number): number {
    this.#measure(now, 0);
    const perMs = Math.max(this.#perMs, this.#spanTaken / RATE_SPAN_MS);
    const most = Math.floor(limit * CONTENDED_RESERVE_SHARE_MAX);
    return Math.min(most, Math.round((perMs * LEASE_RESERVE_MS) / 2));
  }

  /**
   * Takes in a reply. Returns one decision for each request that waited, in order; undefined for a
   * request whose token came too late to be used. A refusal is valid however late it comes.
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
      // The void tokens go back with the next call, so no refusal in memory may keep the next call
      // from being made.
      if (isLate && reply.granted > 0) this.#refusal = undefined;
    }
    return decisions;
  }

  /**
   * Gives back tokens that came too late for their requests. The script subtracts `unused + used`
   * from the outstanding reserve, in which these tokens were never counted. So `used` is set to
   * `-granted`, which makes this sum 0.
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
   * Makes the decision for requests that get no token, and keeps it until the window can admit, but
   * at least for REFUSAL_CACHE_MS_MIN. The time counts from the arrival of the reply, not from the
   * sending of the call, so that the next call does not come a moment too early.
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

  /**
   * Moves the first lease of the reserve to the leases that the next call of admit.lua settles.
   */
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
   * Notes Redis's clock, and returns whether it has stepped forward since the reply before. Such a
   * step makes tokens expire early in their window. Redis read its clock between the sending of a
   * call and its reply. So its lead over our own clock, which never steps, lies between two values.
   * When the lower value is more than 250 ms above the upper value of the reply before, the clock
   * has stepped. The time that a reply takes (at most 700 ms) hides smaller steps.
   * @param redisNow Unix ms by Redis's clock
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
