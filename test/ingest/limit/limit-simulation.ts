/**
 * Workers with real scope caches around the real script, in simulated time: calls take any time to arrive and to return, and may be
 * lost either way; Redis's clock steps back, and Redis is restarted with its memory or without. An oracle keeps the moment of every
 * admission.
 */

import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import {
  type Ask,
  type LimitRecord,
  ScopeCache,
  type WindowReply,
} from '../../../src/ingest/limit/scope-cache.ts';
import { RATE_WINDOW_MS } from '../../../src/limits.ts';
import { callAdmit } from './limit-fixture.ts';

/** How one call travels; `lost`: the request (it never runs) or the reply (it ran). */
export type Journey = { thereMs: number; backMs: number; lost: 'no' | 'request' | 'reply' };
/** `key`: one with a limit of its own; undefined: the project itself. */
export type Demand = { worker: number; requests: number; journey: Journey; key?: number };
/** `order`: of the script call that granted it, or undefined for a token of a reserve. */
type Use = { at: number; limit: number; order: number | undefined; key: number | undefined };
type Event = { at: number; run: () => Promise<void> | void };
/** A call that ran; `limit`: what must have been in force for it. */
type Sent = { ask: Ask; cache: ScopeCache; order: number; limit: number; key: number | undefined };
type Worker = { cache: ScopeCache; keys: ScopeCache[]; record: LimitRecord; clockOffset: number };

export class Simulation {
  readonly uses: Use[] = [];
  calls = 0;
  /** Moments at which Redis lost its memory. */
  readonly losses: number[] = [];
  /** Losses that a call met whose worker knew of bookings, and how often the script said so. */
  readonly lossesMet = new Set<number>();
  lossesSaid = 0;
  #restarts = 0;
  #now = 0;
  #order = 0;
  /** The newest record that a call brought to the script. */
  #newest: LimitRecord;
  readonly #workers: Worker[];
  readonly #events: Event[] = [];
  readonly #redis: LimitRedis;
  readonly #projectId: string;
  readonly #keys: readonly number[];
  /** Redis's clock at simulated 0. */
  #epoch: number;

  constructor(
    redis: LimitRedis,
    options: {
      projectId: string;
      workers: number;
      record: LimitRecord;
      epoch: number;
      /** Limits of the keys. */
      keys?: readonly number[];
    },
  ) {
    this.#redis = redis;
    this.#projectId = options.projectId;
    this.#epoch = options.epoch;
    this.#newest = options.record;
    this.#keys = options.keys ?? [];
    this.#workers = Array.from({ length: options.workers }, (_, i) => ({
      cache: new ScopeCache(),
      keys: this.#keys.map(() => new ScopeCache()),
      record: options.record,
      clockOffset: i * 12_345.678,
    }));
  }

  /** Lets time pass, and with it everything that is due. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (let event = this.#next(end); event; event = this.#next(end)) {
      this.#now = Math.max(this.#now, event.at);
      await event.run();
    }
    this.#now = end;
  }

  #next(end: number): Event | undefined {
    let earliest = -1;
    this.#events.forEach((event, i) => {
      if (event.at <= end && (earliest < 0 || event.at < (this.#events[earliest] as Event).at)) earliest = i;
    });
    return earliest < 0 ? undefined : this.#events.splice(earliest, 1)[0];
  }

  setRecord(worker: number, record: LimitRecord): void {
    this.#worker(worker).record = record;
  }

  /** A worker forgets everything, as when it dies and another takes its place. */
  restart(worker: number): void {
    const restarted = this.#worker(worker);
    restarted.cache = new ScopeCache();
    restarted.keys = this.#keys.map(() => new ScopeCache());
  }

  /** Redis's clock steps back; time itself does not. */
  stepClockBack(ms: number): void {
    this.#epoch -= ms;
  }

  /** Calls on their way are lost, in whichever direction. */
  restartRedis(memory: 'kept' | 'lost'): void {
    this.#restarts++;
    if (memory === 'lost') this.losses.push(this.#now);
  }

  /** A memory that is lost is another project. */
  get memory(): string {
    return `${this.#projectId}-${this.losses.length}`;
  }

  #worker(index: number): Worker {
    return this.#workers[index % this.#workers.length] as Worker;
  }

  /** Requests that come in together: from memory while it answers, the rest in one call. */
  demand({ worker: index, requests, journey, key }: Demand): void {
    const worker = this.#worker(index);
    const cache = this.#cacheOf(worker, key);
    const local = this.#now + worker.clockOffset;
    let waiting = requests;
    for (; waiting > 0; waiting--) {
      const decision = cache.take(local, worker.record.revision);
      if (!decision) break;
      if (decision.kind === 'admitted') this.#use(worker.record.limit, undefined, key);
    }
    if (waiting > 0 || cache.hasReturns(local)) this.#call(worker, { need: waiting, key }, journey);
  }

  #cacheOf(worker: Worker, key: number | undefined): ScopeCache {
    return key === undefined ? worker.cache : (worker.keys[key] as ScopeCache);
  }

  #call(worker: Worker, { need, key }: { need: number; key: number | undefined }, journey: Journey): void {
    const { record } = worker;
    const cache = this.#cacheOf(worker, key);
    const ownRecord = key === undefined ? record : { ...record, limit: this.#keys[key] as number };
    const ask = cache.ask(this.#now + worker.clockOffset, need, ownRecord);
    if (journey.lost === 'request') return;
    const restarts = this.#restarts;
    this.#events.push({
      at: this.#now + journey.thereMs,
      run: async () => {
        if (this.#restarts !== restarts) return;
        if (record.revision > this.#newest.revision) this.#newest = record;
        const granted = { ask, cache, order: this.#order++, limit: this.#newest.limit, key };
        const reply = await this.#run(ask, record.limit, key);
        if (journey.lost === 'reply') return;
        this.#events.push({
          at: this.#now + journey.backMs,
          run: () => {
            if (this.#restarts === restarts) this.#answer(worker, granted, reply);
          },
        });
      },
    });
  }

  async #run(ask: Ask, limit: number, key: number | undefined): Promise<WindowReply> {
    this.calls++;
    const now = this.#epoch + this.#now;
    const wishes = 't'.repeat(ask.need);
    const ofKey = {
      limit: this.#keys[key ?? 0] as number,
      window: `key${key}`,
      further: [{ name: '', limit }],
    };
    const call = { wishes, ask, now, ...(key === undefined ? { limit } : ofKey) };
    const { window: parsed } = await callAdmit(this.#redis, this.memory, call);
    if (!parsed) throw new Error('there is no window');
    if (ask.known && ask.known.emptyAt > this.#epoch + this.#now && ask.known.gen !== parsed.gen)
      this.lossesMet.add(this.losses.length);
    if (parsed.lost) this.lossesSaid++;
    return parsed;
  }

  #answer(worker: Worker, sent: Sent, reply: WindowReply): void {
    // The process that asked is gone.
    if (sent.cache !== this.#cacheOf(worker, sent.key)) return;
    const decisions = sent.cache.answer(sent.ask, reply, this.#now + worker.clockOffset);
    for (const decision of decisions)
      if (decision?.kind === 'admitted') this.#use(sent.limit, sent.order, sent.key);
  }

  #use(limit: number, order: number | undefined, key: number | undefined): void {
    this.uses.push({ at: this.#now, limit, order, key });
  }

  /** The most admissions in any interval of one window; with a key, of that key alone. */
  busiestWindow(key?: number): number {
    const times = this.uses.filter((use) => key === undefined || use.key === key).map(({ at }) => at);
    let most = 0;
    for (let i = 0, from = 0; i < times.length; i++) {
      while ((times[from] as number) <= (times[i] as number) - RATE_WINDOW_MS) from++;
      most = Math.max(most, i - from + 1);
    }
    return most;
  }

  /** By how much any window exceeds the limit that was in force for the last grant in it; at most 0 is right. */
  worstExcess(): number {
    let worst = Number.NEGATIVE_INFINITY;
    for (let from = 0; from < this.uses.length; from++) {
      let last: Use | undefined;
      for (let i = from; i < this.uses.length && this.#at(i) < this.#at(from) + RATE_WINDOW_MS; i++) {
        const use = this.uses[i] as Use;
        if (!last || (use.order ?? 0) > (last.order ?? 0)) last = use;
        worst = Math.max(worst, i - from + 1 - (last as Use).limit);
      }
    }
    return worst;
  }

  /** By how much any window exceeds one limit, and one more for each loss of memory in it; at most 0 is right. */
  worstExcessWithLosses(limit: number): number {
    let worst = Number.NEGATIVE_INFINITY;
    for (let i = 0, from = 0; i < this.uses.length; i++) {
      while (this.#at(from) <= this.#at(i) - RATE_WINDOW_MS) from++;
      const losses = this.losses.filter((at) => at >= this.#at(from) && at <= this.#at(i)).length;
      worst = Math.max(worst, i - from + 1 - limit * (1 + losses));
    }
    return worst;
  }

  #at(index: number): number {
    return (this.uses[index] as Use).at;
  }
}
