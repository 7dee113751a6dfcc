/**
 * The window part of admit.lua once more, in memory, so that minutes of hundreds of workers are simulated in seconds. It answers an
 * Ask as the script does, and window-twin.test.ts holds the two against each other.
 */
import type { Ask, WindowReply } from '../../../src/ingest/limit/scope-cache.ts';
import {
  RATE_BUCKET_MS as BUCKET_MS,
  CONTENDED_MS,
  CONTENDED_RESERVE_SHARE_MAX,
  EXACT_LIMIT_MAX,
  LEASE_NEED_SLOW_MS,
  LEASE_RESERVE_MS,
  RESERVE_SHARE_MAX,
  RATE_WINDOW_MS as WINDOW_MS,
} from '../../../src/limits.ts';

/** `now`: Unix ms by Redis's clock. With as many waiting requests as the ask needs tokens, also a call of the script. */
export type TwinCall = {
  ask: Ask;
  limit: number;
  now: number;
  /** Windows in which the tokens are booked too. */
  further?: readonly { twin: WindowTwin; limit: number }[];
};

const MARK_MS = 1_000;

/** Of a window behind another one: what is said of it. */
const saidOf = ({ admitsAt, scarce, refusingWindow }: WindowReply) => ({
  admitsAt,
  scarce,
  refusingWindow: refusingWindow + 1,
});

export class WindowTwin {
  /** Bucket → tokens booked in it. */
  readonly #booked = new Map<number, number>();
  /** Bucket → how many of them are reserve that is outstanding. */
  readonly #outstanding = new Map<number, number>();
  #sum = 0;
  #first: number | undefined;
  #last: number | undefined;
  #limit = 0;
  #revision: number | undefined;
  #gen: number | undefined;
  #seq = 0;
  #lostAt: number | undefined;
  #tightAt: number | undefined;

  call({ ask, limit, now, further = [] }: TwinCall, waits = ask.need > 0): WindowReply & { lost: boolean } {
    const needBucket = Math.ceil((now + ask.needMs) / BUCKET_MS);
    const reserveBucket = Math.ceil((now + LEASE_RESERVE_MS) / BUCKET_MS);
    this.#pullBack(Math.ceil((now + LEASE_NEED_SLOW_MS) / BUCKET_MS));
    this.#drop(Math.floor((now - WINDOW_MS) / BUCKET_MS));
    for (const lease of ask.settled) this.#settle(lease);
    const inForce = this.#inForce(limit, ask.revision);
    const lost = this.#isLost(ask.known, now);
    const decided = this.#grant(ask, inForce.limit, now);
    const [next, ...rest] = further;
    const taken = { ...ask, need: decided.granted, reserve: decided.reserve, known: undefined };
    const behind = next?.twin.call({ ask: taken, limit: next.limit, now, further: rest }, waits);
    const { granted, reserve } = behind ?? decided;
    const { scarce } = decided;
    this.#book(needBucket, granted);
    this.#book(reserveBucket, reserve);
    if (reserve > 0)
      this.#outstanding.set(reserveBucket, (this.#outstanding.get(reserveBucket) ?? 0) + reserve);
    const admitsAt = waits && this.#sum >= inForce.limit ? this.#admitsAt(inForce.limit) : 0;
    const isBooked = granted + reserve > 0;
    if (isBooked || lost) this.#gen ??= Math.floor(now);
    if (isBooked) this.#seq++;
    if (this.#gen !== undefined) {
      this.#limit = inForce.limit;
      this.#revision = inForce.revision;
      if (lost) this.#lostAt = now;
      const tight = admitsAt > 0 || scarce;
      if (tight && !this.#tightWithin(MARK_MS, now)) this.#tightAt = now;
    }
    const emptyAt = this.#sum > 0 ? (this.#last as number) * BUCKET_MS + WINDOW_MS : now;
    const own = { admitsAt, scarce, refusingWindow: admitsAt > 0 || scarce ? 1 : 0 };
    return {
      granted,
      needBucket,
      reserve,
      reserveBucket,
      booked: this.#sum,
      limit: inForce.limit,
      revision: inForce.revision,
      now: Math.floor(now),
      emptyAt: Math.ceil(emptyAt),
      gen: this.#gen ?? 0,
      seq: this.#seq,
      lost,
      ...(behind && behind.refusingWindow > 0 && admitsAt === 0 ? saidOf(behind) : own),
    };
  }

  /** The clock stepped back: what ends later than anything granted now is moved there. */
  #pullBack(latestBucket: number): void {
    if (this.#last === undefined || this.#last <= latestBucket) return;
    let moved = 0;
    for (const [bucket, count] of this.#booked)
      if (bucket > latestBucket) {
        moved += count;
        this.#booked.delete(bucket);
        this.#outstanding.delete(bucket);
      }
    this.#booked.set(latestBucket, (this.#booked.get(latestBucket) ?? 0) + moved);
    this.#first = Math.min(this.#first as number, latestBucket);
    this.#last = latestBucket;
  }

  #drop(deadBucket: number): void {
    if (this.#first === undefined || this.#first > deadBucket) return;
    const to = Math.min(deadBucket, this.#last as number);
    for (let bucket = this.#first; bucket <= to; bucket++) {
      this.#sum -= this.#booked.get(bucket) ?? 0;
      this.#booked.delete(bucket);
      this.#outstanding.delete(bucket);
    }
    this.#first = to + 1;
  }

  #settle({ bucket, unused, used }: Ask['settled'][number]): void {
    if (this.#first === undefined || bucket < this.#first || bucket > (this.#last as number)) return;
    const booked = this.#booked.get(bucket) ?? 0;
    const back = Math.min(unused, booked);
    this.#sum -= back;
    if (booked > back) this.#booked.set(bucket, booked - back);
    else this.#booked.delete(bucket);
    const outstanding = (this.#outstanding.get(bucket) ?? 0) - unused - used;
    if (outstanding > 0 && booked > back) this.#outstanding.set(bucket, Math.min(outstanding, booked - back));
    else this.#outstanding.delete(bucket);
  }

  #inForce(limit: number, revision: number): { limit: number; revision: number } {
    if (this.#revision === undefined || revision > this.#revision) return { limit, revision };
    return { limit: this.#limit, revision: this.#revision };
  }

  #grant(
    { need, reserve: wanted }: Ask,
    limit: number,
    now: number,
  ): { granted: number; reserve: number; scarce: boolean } {
    const room = Math.max(0, limit - this.#sum);
    const granted = Math.min(need, room);
    const contended = this.#tightWithin(CONTENDED_MS, now);
    if (wanted === 0 || granted < need || !(contended || limit > EXACT_LIMIT_MAX))
      return { granted, reserve: 0, scarce: false };
    let grantable = Math.floor(limit * (contended ? CONTENDED_RESERVE_SHARE_MAX : RESERVE_SHARE_MAX));
    const from = Math.floor(now / BUCKET_MS) + 1;
    // After a small step of the clock backwards, reserve may end later still; it is not looked at.
    const to = Math.ceil((now + LEASE_RESERVE_MS) / BUCKET_MS);
    for (const [bucket, count] of this.#outstanding) if (bucket >= from && bucket <= to) grantable -= count;
    const share = contended ? Math.ceil((room - granted) / 2) : Math.ceil(grantable / 2);
    const reserve = Math.max(0, Math.min(wanted, grantable, share, room - granted));
    return { granted, reserve, scarce: contended && share < wanted };
  }

  #tightWithin(ms: number, now: number): boolean {
    return this.#tightAt !== undefined && Math.abs(now - this.#tightAt) < ms;
  }

  #book(bucket: number, count: number): void {
    if (count === 0) return;
    this.#booked.set(bucket, (this.#booked.get(bucket) ?? 0) + count);
    this.#sum += count;
    this.#first = Math.min(this.#first ?? bucket, bucket);
    this.#last = Math.max(this.#last ?? bucket, bucket);
  }

  #admitsAt(limit: number): number {
    let left = this.#sum;
    for (let bucket = this.#first as number; bucket <= (this.#last as number); bucket++) {
      left -= this.#booked.get(bucket) ?? 0;
      if (left < limit) return bucket * BUCKET_MS + WINDOW_MS;
    }
    return 0;
  }

  #isLost(known: Ask['known'], now: number): boolean {
    if (!known || known.emptyAt <= now) return false;
    if (known.gen === this.#gen && known.seq <= this.#seq) return false;
    return this.#lostAt === undefined || now - this.#lostAt > 2 * WINDOW_MS;
  }
}
