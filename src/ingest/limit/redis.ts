/**
 * The connection to Redis: script calls that are gathered into batches, a deadline, and a breaker.
 * ioredis itself is behind redis-client.ts.
 *
 * *Batches*: `call` queues one script call. All calls that one callback of the event loop queues
 * are sent together, as one batch, in the nextTick that follows. Requests that arrived together
 * thus cost one write and one read for every 64 calls. While a batch is unanswered, further calls
 * wait for its reply, 5 ms at most. Just before a batch is sent, the functions that `beforeFlush`
 * registered make one call of all requests that wait for the same scope or heartbeat token.
 *
 * *Once*: no call is ever sent twice, because a call without a reply may have run. So a lost reply
 * wastes tokens or positions. The only repetition is after NOSCRIPT, when nothing has run.
 *
 * *Cut*: when the connection breaks, calls wait for a new one, up to `replyMs` from the first cut.
 * Calls that were sent and not answered are lost, and their callers may make new calls. On a single
 * server, all waiting ends at the latest `replyMs` + CUT_MS_MORE after the oldest unanswered call
 * was sent. A server that is read-only counts as cut, too, because another server may be the
 * primary by now. In a cluster each key has a cut of its own, and the caller of a lost call is told
 * some 25 ms later.
 *
 * *Away*: the breaker opens when a call has no reply after `replyMs` (700 ms; 2 s for management
 * commands), when a connection is not made again in that time, or when an error says that Redis
 * cannot work (failure-policy.ts). Then all calls in flight are called back as unanswered. The
 * connection is dropped, because Redis would still run the calls that are queued on it. Later calls
 * are refused at once, and one PING per jittered 250 ms is sent until one is answered. In a cluster
 * one node's fault must not stop the others: each call is sent alone, and after a fault only calls
 * of the same key are refused, for some 250 ms.
 */
import type { Clock } from '../../lib/clock.ts';
import { remove } from '../../lib/in-flight.ts';
import { orLate } from '../../lib/late.ts';
import type { Log } from '../../lib/log.ts';
import { Distribution, SECONDS_BOUNDS } from '../../lib/metrics/distribution.ts';
import { REDIS_CONNECT_MS_MAX, REDIS_REPLY_MS_MAX } from '../../limits.ts';
import { isCut, isScriptFault } from './failure-policy.ts';
import type { CallResult, ScriptArg, ScriptCall } from './redis-batch.ts';
import { type RedisAccess, RedisClient } from './redis-client.ts';
import type { ScriptName } from './scripts.ts';

/**
 * Time in ms between a worker's PINGs, and between its attempts to connect, while Redis is away;
 * jittered by a fifth.
 */
const REDIS_PROBE_MS = 250;
/**
 * Time in ms between a worker's PINGs, and between its attempts to connect, after a cut; jittered
 * by a fifth.
 */
const REDIS_RECONNECT_MS = 25;
/**
 * Time in ms by which a cut may delay a decision beyond `replyMs`. With the usual 700 ms, a request
 * on a single server that meets a cut is decided at most 1 s after its first call was sent.
 */
const CUT_MS_MORE = REDIS_CONNECT_MS_MAX - REDIS_REPLY_MS_MAX;

/**
 * The script's result; undefined when the call was not sent, was not answered or failed. The caller
 * cannot tell which, so the script may have run.
 */
export type ScriptReply = readonly unknown[] | undefined;

/**
 * A queued call and its callbacks, of which exactly one is called, once. `unsent`, if given, is
 * called when the call was not sent because Redis is away: the script has certainly not run.
 * `lost`, if given, is called when the connection broke under the call: the script may have run,
 * and the caller may ask anew by another call. `done` is called in all other cases.
 */
type GatheredCall = ScriptCall & {
  done: (reply: ScriptReply) => void;
  unsent?: () => void;
  lost?: () => void;
};
function notSent({ done, unsent }: GatheredCall): void {
  if (unsent) unsent();
  else done(undefined);
}
/** Calls that were written together, with the time of writing (monotonic ms) and their deadline. */
type Batch = { calls: GatheredCall[]; sentAt: number; timer: NodeJS.Timeout };

type LimitRedisOptions = RedisAccess & {
  clock: Clock;
  /**
   * Time in ms for which a call waits for its reply; REDIS_REPLY_MS_MAX by default. `connect` waits
   * for the first connection for this time or REDIS_CONNECT_MS_MAX, whichever is longer.
   */
  replyMs?: number;
};

/** Shortest time in ms between two log lines about faults of a cluster's nodes. */
const FAULT_LOG_MS = 10_000;
/** Longest time in ms for which calls wait for the reply to the batch before theirs. */
const FLUSH_WAIT_MS_MAX = 5;
/**
 * Most keys that each map of {@link KeyBreakers} remembers. A full map is emptied; each key that is
 * still away then costs one more failed call.
 */
const AWAY_KEYS_MAX = 10_000;

/**
 * The breaker of a cluster, which works key by key. A node that is away must not stop the projects
 * of the other nodes, and a failover may change which node has a key. After a call of a key failed,
 * further calls of the key are refused unsent for some 250 ms. The next call after that is sent.
 */
class KeyBreakers {
  /** Keys whose calls are refused, each with the end of the refusal (monotonic ms). */
  readonly #awayUntil = new Map<string, number>();
  /**
   * Keys whose connection broke and of which no call has been answered since, each with the times
   * of its first and its last cut (monotonic ms).
   */
  readonly #cuts = new Map<string, { since: number; last: number }>();
  #quietUntil = Number.NEGATIVE_INFINITY;

  isAway(key: string, now: number): boolean {
    const until = this.#awayUntil.get(key);
    if (until === undefined) return false;
    if (now < until) return true;
    this.#awayUntil.delete(key);
    return false;
  }

  answered(key: string): void {
    if (this.#cuts.size > 0) this.#cuts.delete(key);
  }

  /**
   * Notes that the connection of a key broke.
   * @returns the ms since the key's first cut. A cut counts as the first one when the cut before it
   * is at least `replyMs` old
   */
  cut(key: string, now: number, replyMs: number): number {
    if (this.#cuts.size >= AWAY_KEYS_MAX) this.#cuts.clear();
    const before = this.#cuts.get(key);
    const since = before !== undefined && now - before.last < replyMs ? before.since : now;
    this.#cuts.set(key, { since, last: now });
    return now - since;
  }

  /**
   * Notes that the key is away.
   * @returns whether to log the fault, which is true at most once in FAULT_LOG_MS
   */
  open(key: string, now: number): boolean {
    if (this.#awayUntil.size >= AWAY_KEYS_MAX) this.#awayUntil.clear();
    this.#awayUntil.set(key, now + jittered(REDIS_PROBE_MS));
    if (now < this.#quietUntil) return false;
    this.#quietUntil = now + FAULT_LOG_MS;
    return true;
  }
}

const jittered = (ms: number): number => ms * (0.8 + 0.4 * Math.random());

type State =
  /**
   * Calls are refused at once, and PINGs are sent until one is answered. Also the state at the
   * start.
   */
  | { readonly is: 'away' }
  /** Calls are sent. `since`: when this state began (monotonic ms). */
  | { readonly is: 'serving'; readonly since: number }
  /** Calls wait for a new connection. When the timer ends, Redis is away. */
  | { readonly is: 'cut'; readonly timer: NodeJS.Timeout }
  | { readonly is: 'closed' };

export class LimitRedis {
  readonly stats: { readonly calls: Readonly<Record<ScriptName, number>>; readonly duration: Distribution };
  readonly #options: { readonly log: Log; readonly clock: Clock; readonly replyMs: number };
  readonly #client: RedisClient;
  readonly #gatherers: (() => void)[] = [];

  // ---- The queue ----
  #queue: GatheredCall[] = [];
  #flushDue = false;
  /** Runs while a flush waits for the reply to the batch before. */
  #flushTimer: NodeJS.Timeout | undefined;
  readonly #inFlight: Batch[] = [];

  // ---- The breaker ----
  #state: State = { is: 'away' };
  #probing = false;
  #probeTimer: NodeJS.Timeout | undefined;
  /**
   * The first cut since Redis last answered a call, or since a connection last held for `replyMs`.
   * `at` is when it happened, `decideBy` is when all waiting calls must be decided (monotonic ms).
   * In a cluster each key has a cut of its own ({@link KeyBreakers}).
   */
  #firstCut: { readonly at: number; readonly decideBy: number } | undefined;
  /**
   * Whether Redis has answered a call since it was last away; true at the start, too. While it is
   * false, further faults are not logged.
   */
  #proven = true;
  readonly #keys = new KeyBreakers(); // of a cluster only
  #firstAvailable: (() => void) | undefined;
  #lastError = 'never connected';

  constructor(options: LimitRedisOptions) {
    const { log, clock, replyMs = REDIS_REPLY_MS_MAX } = options;
    this.#options = { log, clock, replyMs };
    this.#client = new RedisClient({ ...options, replyMs, retryMs: () => this.#jitteredMs() });
    this.stats = { calls: this.#client.sent, duration: new Distribution(SECONDS_BOUNDS) };
    this.#client.on({
      error: (error) => {
        this.#lastError = error.message;
      },
      ready: () => void this.#probe(),
      close: () => this.#cutOff('the connection was lost'),
    });
  }

  /** False while the breaker is open: a call would be refused at once. */
  get available(): boolean {
    const { is } = this.#state;
    return is === 'serving' || is === 'cut';
  }

  /** Sets the state; no other method does. A closed connection stays closed. */
  #become(next: State): void {
    if (this.#state.is === 'cut') clearTimeout(this.#state.timer);
    if (this.#state.is !== 'closed') this.#state = next;
  }

  /**
   * Starts connecting. Resolves when Redis answers, or without an answer after a second or
   * `replyMs`, whichever is longer. Connecting goes on after that. Never rejects.
   */
  async connect(): Promise<void> {
    const answered = new Promise<void>((resolve) => {
      this.#firstAvailable = resolve;
    });
    this.#client.connect();
    this.#probeLater();
    await orLate(answered, Math.max(REDIS_CONNECT_MS_MAX, this.#options.replyMs), undefined);
    if (this.#state.is === 'away') {
      this.#proven = false;
      this.#options.log.warn({ reason: this.#lastError }, 'redis: not there yet');
    }
  }

  /**
   * Closes the connection for good. Calls that were sent are called back as unanswered. Calls that
   * wait are called back as not sent.
   */
  async close(): Promise<void> {
    this.#become({ is: 'closed' });
    clearTimeout(this.#probeTimer);
    this.#client.close();
    for (const batch of [...this.#inFlight]) this.#callBack(batch, undefined);
    this.#flush();
  }

  // ---- The queue ----

  /**
   * Registers `gather`, which runs at every flush, just before the calls are sent, and may queue
   * calls for this flush.
   */
  beforeFlush(gather: () => void): void {
    this.#gatherers.push(gather);
  }

  /**
   * Makes sure that a flush follows after the caller's current callback and its microtasks. While a
   * batch is unanswered, the flush waits for its reply and for the events that the same poll of the
   * event loop brings, but not longer than FLUSH_WAIT_MS_MAX. In a cluster it does not wait.
   */
  schedule(): void {
    if (this.#flushDue) return;
    this.#flushDue = true;
    process.nextTick(() => {
      if (this.#inFlight.length === 0 || this.#client.isCluster) this.#flush();
      else this.#flushTimer = setTimeout(() => this.#flush(), FLUSH_WAIT_MS_MAX);
    });
  }

  #release(): void {
    if (this.#flushTimer === undefined) return;
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    setImmediate(() => this.#flush());
  }

  /**
   * Queues one call for the next flush; a call that a function of {@link beforeFlush} makes joins
   * the flush under way. The object itself is queued, not a copy, because V8 copies by spread in
   * its slow path.
   */
  call(call: GatheredCall): void {
    this.#queue.push(call);
    this.schedule();
  }

  /** Makes one call and returns its reply as a promise, for callers that are not in a hurry. */
  request(script: ScriptName, keys: ScriptCall['keys'], args: readonly ScriptArg[]): Promise<ScriptReply> {
    return new Promise((resolve) => this.call({ script, keys, args, done: resolve }));
  }

  #flush(): void {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    if (this.#state.is === 'cut') {
      this.#flushDue = false;
      return;
    }
    for (const gather of this.#gatherers) gather();
    this.#flushDue = false;
    if (this.#queue.length === 0) return;
    const calls = this.#queue;
    this.#queue = [];
    if (!this.available) for (const call of calls) notSent(call);
    else if (this.#client.isCluster) for (const call of calls) this.#sendAlone(call);
    else this.#send(calls);
  }

  /**
   * Sends one call of a cluster. Each call has its own deadline, so that no node waits for another.
   */
  #sendAlone(call: GatheredCall): void {
    if (this.#keys.isAway(call.keys[0], this.#options.clock.monotonic())) notSent(call);
    else this.#send([call]);
  }

  #send(calls: GatheredCall[]): void {
    const { clock, replyMs } = this.#options;
    const sentAt = clock.monotonic();
    if (this.#hasStood(sentAt)) this.#firstCut = undefined;
    const msLeft = (this.#firstCut?.decideBy ?? Infinity) - sentAt;
    const timer = setTimeout(() => this.#deadline(batch), Math.max(0, Math.min(replyMs, msLeft)));
    const batch: Batch = { calls, sentAt, timer };
    this.#inFlight.push(batch);
    this.#client.send(calls).then(
      (results) => this.#callBack(batch, results),
      (error: Error) => this.#failed(batch, error.message),
    );
  }

  /**
   * Ends a batch whose reply is late. After a stall of this process the reply may be waiting in the
   * socket. So this turn's poll phase may still read the reply before Redis counts as away.
   */
  #deadline(batch: Batch): void {
    setImmediate(() => {
      if (this.#inFlight.includes(batch)) this.#failed(batch, `no reply within ${this.#options.replyMs} ms`);
    });
  }

  #failed(batch: Batch, reason: string): void {
    // The fault is noted first: a caller that is called back must see that Redis is away.
    for (const call of batch.calls) this.#fault(call.keys[0], reason);
    this.#callBack(batch, undefined);
  }

  /** Calls back for each call of the batch, once. `results` undefined: no call was answered. */
  #callBack(batch: Batch, results: readonly CallResult[] | undefined): void {
    if (!remove(this.#inFlight, batch)) return;
    clearTimeout(batch.timer);
    if (results) this.#observe(batch, results);
    batch.calls.forEach((call, i) => {
      const result = results?.[i];
      if (result instanceof Error && isCut(result)) this.#lost(call);
      else call.done(result instanceof Error ? undefined : result);
    });
    this.#release();
  }

  #lost({ keys: [key], lost, done }: GatheredCall): void {
    const isAway = !this.available || this.#keys.isAway(key, this.#options.clock.monotonic());
    if (isAway || !lost) done(undefined);
    else if (this.#client.isCluster) setTimeout(lost, this.#jitteredMs());
    else lost();
  }

  #observe({ calls, sentAt }: Batch, results: readonly CallResult[]): void {
    const { clock, log } = this.#options;
    this.stats.duration.observe((clock.monotonic() - sentAt) / 1000, calls.length);
    calls.forEach((call, i) => {
      const result = results[i];
      if (!(result instanceof Error)) this.#answered(call.keys[0]);
      else if (isCut(result)) this.#cutOff(result.message, call.keys[0]);
      else if (isScriptFault(result)) log.error({ err: result, script: call.script }, 'redis: script failed');
      else this.#fault(call.keys[0], result.message);
    });
  }

  // ---- The breaker ----

  #jitteredMs(): number {
    return jittered(this.available ? REDIS_RECONNECT_MS : REDIS_PROBE_MS);
  }

  /**
   * Notes that a call was answered. An answered call proves more than an answered PING, because a
   * server that is out of memory answers PINGs.
   */
  #answered(key: string): void {
    if (!this.#proven && !this.#client.isCluster) this.#options.log.info('redis: answers again');
    this.#proven = true;
    this.#firstCut = undefined;
    this.#keys.answered(key);
  }

  /**
   * Handles the loss of a connection: lets calls wait for a new one, or opens the breaker when
   * calls have waited long enough.
   * @param key key of the call that was cut; undefined when all connections broke
   */
  #cutOff(reason: string, key?: string): void {
    if (!this.available) return;
    const { clock, replyMs } = this.#options;
    const now = clock.monotonic();
    if (this.#client.isCluster && key !== undefined) {
      if (this.#keys.cut(key, now, replyMs) >= replyMs) this.#fault(key, reason);
      return;
    }
    const state = this.#state;
    // Connections that break one after another, each within `replyMs` and without an answered call,
    // share one first cut, so that the waiting ends. A connection that held for `replyMs` begins a
    // new first cut: it may have had no call to answer.
    const hasStood = key === undefined && this.#hasStood(now);
    if (hasStood || !this.#firstCut) {
      const oldest = this.#inFlight[0]?.sentAt ?? now;
      const decideBy = oldest + (this.#client.isCluster ? Infinity : replyMs + CUT_MS_MORE);
      this.#firstCut = { at: now, decideBy };
    }
    const msLeft = Math.min(this.#firstCut.at + replyMs, this.#firstCut.decideBy) - now;
    if (!(this.#proven || hasStood) || msLeft <= 0) return this.#openBreaker(reason);
    if (state.is === 'serving')
      this.#become({ is: 'cut', timer: setTimeout(() => this.#openBreaker(reason), msLeft) });
    this.#client.drop();
    this.#probeLater();
    for (const batch of [...this.#inFlight])
      this.#callBack(
        batch,
        batch.calls.map(() => new Error(reason)),
      );
  }

  /** Whether calls have been sent for `replyMs` without a break. */
  #hasStood(now: number): boolean {
    return this.#state.is === 'serving' && now - this.#state.since >= this.#options.replyMs;
  }

  #fault(key: string, reason: string): void {
    if (!this.#client.isCluster) return this.#openBreaker(reason);
    const { clock, log } = this.#options;
    if (this.#keys.open(key, clock.monotonic()))
      log.warn({ reason, key }, 'redis: a node of the cluster is away');
  }

  #openBreaker(reason: string): void {
    if (!this.available) return;
    this.#become({ is: 'away' });
    this.#firstCut = undefined;
    if (this.#proven) this.#options.log.warn({ reason }, 'redis: away');
    this.#proven = false;
    this.#client.drop();
    this.#probeLater();
    for (const batch of [...this.#inFlight]) this.#callBack(batch, undefined);
    this.schedule(); // this flush refuses the calls that waited for a connection
  }

  #probeLater(): void {
    if (this.#state.is === 'closed') return;
    clearTimeout(this.#probeTimer);
    this.#probeTimer = setTimeout(() => void this.#probe(), this.#jitteredMs());
    this.#probeTimer.unref();
  }

  get #isSought(): boolean {
    return this.#state.is === 'away' || this.#state.is === 'cut';
  }

  /** Sends one PING. When it is answered, calls go out again. */
  async #probe(): Promise<void> {
    if (!this.#isSought || this.#probing) return;
    this.#probing = true;
    try {
      if (this.#client.ready) {
        await this.#client.ping();
        this.#serve();
      }
    } catch (error) {
      const { name, message } = error as Error;
      this.#lastError = message;
      // An error in reply to PING means that Redis is connected but cannot work, so waiting for a
      // connection is useless.
      if (name === 'ReplyError') this.#openBreaker(message);
      this.#client.drop();
    }
    this.#probing = false;
    if (this.#isSought) this.#probeLater();
  }

  #serve(): void {
    if (this.#state.is === 'closed') return;
    this.#become({ is: 'serving', since: this.#options.clock.monotonic() });
    this.#firstAvailable?.();
    this.schedule();
  }
}
