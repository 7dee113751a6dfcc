/**
 * Many workers with real scope caches around the twin of the script, in steps of a millisecond: requests come at random, calls take
 * their time there and back, a worker has one under way at most, and tokens that ran out are sent back a quarter of a second later,
 * all as the admission does it.
 */
import type { Random } from '../../../bench/random.ts';
import { type Ask, ScopeCache, type WindowReply } from '../../../src/ingest/limit/scope-cache.ts';
import { RATE_BUCKET_MS, RATE_WINDOW_MS } from '../../../src/limits.ts';
import { WindowTwin } from './window-twin.ts';

export type WorldOptions = {
  workers: number;
  /** Share of the load that each worker has; any positive numbers. */
  weights: readonly number[];
  limit: number;
  /** Requests per minute. */
  demand: number;
  /**
   * How it begins. `flood`: with the whole demand, so that the first limit goes in one burst, and comes back in one each minute.
   * `steady`: a minute just below the limit, so that afterwards tokens come back one by one.
   */
  begin: 'flood' | 'steady';
  /** A call's way there, and as long back. */
  wayMs: number;
  random: Random;
};
export type WorldResult = {
  /** Requests of the measured time. */
  requests: number;
  admitted: number;
  calls: number;
  /** The most admissions in any 60 seconds. */
  busiestWindow: number;
  measuredMs: number;
};
type Reply = { worker: number; ask: Ask; reply: WindowReply };

/** Steady demand as a share of the limit. */
const BELOW = 0.95;
const WARM_UP_MS = 2 * RATE_WINDOW_MS;
const EPOCH = 1_790_000_000_000;

export class World {
  readonly #options: WorldOptions;
  readonly #twin: WindowTwin;
  readonly #caches: ScopeCache[];
  /** Cumulated weights. */
  readonly #upTo: number[] = [];
  /** By the millisecond at which they are due. */
  readonly #arriving = new Map<number, (() => void)[]>();
  /** Workers that have a call under way, and how many requests wait for the next one. */
  readonly #calling = new Map<number, number>();
  readonly #admittedAt: number[] = [];
  #now = 0;
  #calls = 0;

  constructor(options: WorldOptions) {
    this.#options = options;
    this.#twin = new WindowTwin();
    this.#caches = Array.from({ length: options.workers }, () => new ScopeCache());
    let sum = 0;
    for (const weight of options.weights) {
      sum += weight;
      this.#upTo.push(sum);
    }
  }

  /** The first two minutes are not measured. */
  run(measuredMs: number): WorldResult {
    const { demand, begin, limit } = this.#options;
    const calm = begin === 'steady' ? Math.min(demand, BELOW * limit) : demand;
    let requests = 0;
    let callsBefore = 0;
    for (; this.#now < WARM_UP_MS + measuredMs; this.#now++) {
      if (this.#now === WARM_UP_MS) callsBefore = this.#calls;
      for (const arrive of this.#arriving.get(this.#now) ?? []) arrive();
      this.#arriving.delete(this.#now);
      if (this.#now % RATE_BUCKET_MS === 0) this.#sendBack();
      const perMinute = this.#now < RATE_WINDOW_MS ? calm : demand;
      const came = poisson(perMinute / RATE_WINDOW_MS, this.#options.random);
      if (this.#now >= WARM_UP_MS) requests += came;
      this.#come(came);
    }
    return {
      requests,
      admitted: this.#admittedAt.filter((at) => at >= WARM_UP_MS).length,
      calls: this.#calls - callsBefore,
      busiestWindow: this.#busiestWindow(),
      measuredMs,
    };
  }

  /** Requests of one millisecond and worker join one call. */
  #come(count: number): void {
    const came = new Map<number, number>();
    for (let i = 0; i < count; i++) {
      const worker = this.#drawWorker();
      came.set(worker, (came.get(worker) ?? 0) + 1);
    }
    for (const [worker, requests] of came) this.#serve(worker, requests);
  }

  #serve(worker: number, requests: number): void {
    const cache = this.#caches[worker] as ScopeCache;
    let waiting = requests;
    for (; waiting > 0; waiting--) {
      const decision = cache.take(this.#now, 1);
      if (!decision) break;
      if (decision?.kind === 'admitted') this.#admittedAt.push(this.#now);
    }
    if (waiting === 0) return;
    const joined = this.#calling.get(worker);
    if (joined === undefined) this.#call(worker, waiting);
    else this.#calling.set(worker, joined + waiting);
  }

  #sendBack(): void {
    this.#caches.forEach((cache, worker) => {
      if (cache.hasReturns(this.#now) && !this.#calling.has(worker)) this.#call(worker, 0);
    });
  }

  #call(worker: number, need: number): void {
    const { limit, wayMs } = this.#options;
    const ask = (this.#caches[worker] as ScopeCache).ask(this.#now, need, { limit, revision: 1 });
    this.#calls++;
    this.#calling.set(worker, 0);
    this.#at(this.#now + wayMs, () => {
      const reply = this.#twin.call({ ask, limit, now: EPOCH + this.#now });
      this.#at(this.#now + wayMs, () => this.#answer({ worker, ask, reply }));
    });
  }

  #answer({ worker, ask, reply }: Reply): void {
    const decisions = (this.#caches[worker] as ScopeCache).answer(ask, reply, this.#now);
    for (const decision of decisions) if (decision?.kind === 'admitted') this.#admittedAt.push(this.#now);
    const joined = this.#calling.get(worker) ?? 0;
    this.#calling.delete(worker);
    if (joined > 0) this.#serve(worker, joined);
  }

  #at(ms: number, run: () => void): void {
    const due = this.#arriving.get(ms);
    if (due) due.push(run);
    else this.#arriving.set(ms, [run]);
  }

  #drawWorker(): number {
    const upTo = this.#upTo;
    const wanted = this.#options.random() * (upTo[upTo.length - 1] as number);
    let [low, high] = [0, upTo.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((upTo[middle] as number) > wanted) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  #busiestWindow(): number {
    const at = this.#admittedAt;
    let most = 0;
    for (let i = 0, from = 0; i < at.length; i++) {
      while ((at[from] as number) <= (at[i] as number) - RATE_WINDOW_MS) from++;
      most = Math.max(most, i - from + 1);
    }
    return most;
  }
}

/** Knuth's product of uniforms, in steps that keep the exponential representable. */
function poisson(mean: number, random: Random): number {
  let count = 0;
  for (let rest = mean; rest > 0; rest -= 16) {
    const bound = Math.exp(-Math.min(rest, 16));
    for (let product = random(); product > bound; product *= random()) count++;
  }
  return count;
}
