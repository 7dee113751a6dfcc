/**
 * rate-window.lua once more, in memory, so that minutes of hundreds of workers are simulated in seconds. Takes and gives what the
 * script does, and `test/limit/window-twin.test.ts` holds the two against each other. The lease of a reserve and its share of the
 * limit are parameters, because they are what is simulated.
 */
import { LEASE_SHAPE, type LeaseShape } from '../../src/limit/lease-cache.ts';
import {
  RATE_BUCKET_MS as BUCKET_MS,
  CONTENDED_MS,
  EXACT_LIMIT_MAX,
  LEASE_NEED_MS,
  RATE_WINDOW_MS as WINDOW_MS,
} from '../../src/limits.ts';

/** ARGV of the script by place; '' is none. */
type Arg = string | number;
type Demand = { need: number; wanted: number };
/** What a caller knew of the window; NaN: nothing. */
type Known = { gen: number; seq: number; emptyAt: number };

const MARK_MS = 1_000;
const orNone = (arg: Arg | undefined): number => (arg === '' || arg === undefined ? Number.NaN : Number(arg));

export class WindowTwin {
  readonly #shape: LeaseShape;
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

  constructor(shape: LeaseShape = LEASE_SHAPE) {
    this.#shape = shape;
  }

  /** @returns the script's result */
  call(args: readonly Arg[]): number[] {
    const [now, limit, revision, need, wanted] = args.slice(0, 5).map(Number) as [
      number,
      number,
      number,
      number,
      number,
    ];
    const known: Known = { gen: orNone(args[5]), seq: orNone(args[6]), emptyAt: orNone(args[7]) };
    const needBucket = Math.ceil((now + LEASE_NEED_MS) / BUCKET_MS);
    const excessBucket = Math.ceil((now + this.#shape.excessMs) / BUCKET_MS);
    this.#pullBack(excessBucket);
    this.#drop(Math.floor((now - WINDOW_MS) / BUCKET_MS));
    this.#settle(args.slice(8).map(Number));
    const inForce = this.#inForce(limit, revision);
    const lost = this.#isLost(known, now);
    const { granted, excess, scarce } = this.#grant({ need, wanted }, inForce.limit, now);
    this.#book(needBucket, granted);
    this.#book(excessBucket, excess);
    if (excess > 0) this.#outstanding.set(excessBucket, (this.#outstanding.get(excessBucket) ?? 0) + excess);
    const admitsAt = need > 0 && this.#sum >= inForce.limit ? this.#admitsAt(inForce.limit) : 0;
    const taken = granted + excess > 0;
    if (taken || lost) this.#gen ??= Math.floor(now);
    if (taken) this.#seq++;
    if (this.#gen !== undefined) {
      this.#limit = inForce.limit;
      this.#revision = inForce.revision;
      if (lost) this.#lostAt = now;
      const tight = admitsAt > 0 || scarce;
      if (tight && !this.#tightWithin(MARK_MS, now)) this.#tightAt = now;
    }
    const emptyAt = this.#sum > 0 ? (this.#last as number) * BUCKET_MS + WINDOW_MS : now;
    return [
      granted,
      needBucket,
      excess,
      excessBucket,
      this.#sum,
      inForce.limit,
      inForce.revision,
      Math.floor(now),
      Math.ceil(emptyAt),
      admitsAt,
      this.#gen ?? 0,
      this.#seq,
      lost ? 1 : 0,
      scarce ? 1 : 0,
    ];
  }

  /** The clock stepped back: what ends later than anything granted now is moved there. */
  #pullBack(excessBucket: number): void {
    if (this.#last === undefined || this.#last <= excessBucket) return;
    let moved = 0;
    for (const [bucket, count] of this.#booked)
      if (bucket > excessBucket) {
        moved += count;
        this.#booked.delete(bucket);
        this.#outstanding.delete(bucket);
      }
    this.#booked.set(excessBucket, (this.#booked.get(excessBucket) ?? 0) + moved);
    this.#first = Math.min(this.#first as number, excessBucket);
    this.#last = excessBucket;
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

  #settle(triples: readonly number[]): void {
    for (let i = 0; i < triples.length; i += 3) {
      const [bucket, unused, used] = triples.slice(i, i + 3) as [number, number, number];
      if (this.#first === undefined || bucket < this.#first || bucket > (this.#last as number)) continue;
      const booked = this.#booked.get(bucket) ?? 0;
      const back = Math.min(unused, booked);
      if (back > 0) this.#booked.set(bucket, booked - back);
      this.#sum -= back;
      const outstanding = this.#outstanding.get(bucket) ?? 0;
      if (outstanding > 0) this.#outstanding.set(bucket, Math.max(0, outstanding - unused - used));
    }
  }

  #inForce(limit: number, revision: number): { limit: number; revision: number } {
    if (this.#revision === undefined || revision > this.#revision) return { limit, revision };
    return { limit: this.#limit, revision: this.#revision };
  }

  #grant(
    { need, wanted }: Demand,
    limit: number,
    now: number,
  ): { granted: number; excess: number; scarce: boolean } {
    const room = Math.max(0, limit - this.#sum);
    const granted = Math.min(need, room);
    const contended = this.#tightWithin(CONTENDED_MS, now);
    if (wanted === 0 || granted < need || !(contended || limit > EXACT_LIMIT_MAX))
      return { granted, excess: 0, scarce: false };
    const { excessShare, contendedShare } = this.#shape;
    let reserve = Math.floor(limit * (contended ? contendedShare : excessShare));
    const from = Math.floor(now / BUCKET_MS) + 1;
    for (const [bucket, count] of this.#outstanding) if (bucket >= from) reserve -= count;
    const share = contended ? Math.ceil((room - granted) / 2) : Math.ceil(reserve / 2);
    const excess = Math.max(0, Math.min(wanted, reserve, share, room - granted));
    return { granted, excess, scarce: contended && share < wanted };
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

  #isLost({ gen, seq, emptyAt }: Known, now: number): boolean {
    if (Number.isNaN(gen) || !(emptyAt > now)) return false;
    if (gen === this.#gen && seq <= this.#seq) return false;
    return this.#lostAt === undefined || now - this.#lostAt > WINDOW_MS;
  }
}
