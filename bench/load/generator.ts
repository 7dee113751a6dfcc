/**
 * The load generator: sends a workload at a fixed rate or as fast as answers come, and records what became of every request.
 *
 * Closed loop: each connection sends again as soon as it has its answer. Finds saturation; its latencies say little, since a slow
 * server slows the load. Open loop: request number n is due at start + n / rate whatever the server does, and its latency counts
 * from that moment, so that a stall shows in all requests that it delayed (no coordinated omission). Requests that find every
 * connection busy wait in line; the clock of their latency runs.
 *
 * It watches itself: CPU per request, share of a core, and how late it was where a connection was free. Figures of a generator that
 * was itself the bottleneck are figures of the generator, and it says so.
 */
import { build, type Histogram } from 'hdr-histogram-js';
import type { Workload } from '../workload.ts';
import { Connection, type Endpoint } from './connection.ts';
import { type Latency, type LoadResult, latencyOf, type Second } from './result.ts';
import { Ticker } from './ticker.ts';

export type GeneratorOptions = {
  endpoint: Endpoint;
  workload: Workload;
  connections: number;
  keepAlive: boolean;
  /** Requests per second; undefined: closed loop. */
  rate: number | undefined;
  warmupMs: number;
  durationMs: number;
  /** Statuses that are as they should be; anything else is a failure. */
  expected: readonly number[];
  /** First id of this run: two runs against one server must not share ids. */
  firstId: number;
  onSecond?: ((second: Second) => void) | undefined;
};

const TICK_MS = 1;
const CLOSED_TICK_MS = 20;
const ANSWER_MS_MAX = 10_000;
/** Above this share of a core, or this lateness, the generator is part of what it measures. */
const BUSY_MAX = 0.9;
const LATE_MS_MAX = 5;

const newHistogram = (): Histogram =>
  build({
    bitBucketSize: 32,
    lowestDiscernibleValue: 1,
    highestTrackableValue: 60_000_000,
    numberOfSignificantValueDigits: 3,
  });
const microseconds = (ms: number): number => Math.max(0, Math.round(ms * 1000));

export class Generator {
  readonly #options: GeneratorOptions;
  readonly #connections: Connection[];
  /** Free connections; the one that was freed last is used first, so that few stay warm at low rates. */
  readonly #free: Connection[] = [];
  readonly #latency = newHistogram();
  readonly #lateness = newHistogram();
  readonly #secondLatency = newHistogram();
  readonly #statuses = new Map<number, number>();
  readonly #failures = new Map<string, number>();
  readonly #seconds: Second[] = [];
  /** Of the next request to send. */
  #count = 0;
  #startedAt = 0;
  /** Requests that were intended before it are not recorded, so are those intended after `#endsAt`. */
  #measuredFrom = 0;
  #endsAt = 0;
  #sentBytes = 0;
  #recorded = 0;
  #expectedCount = 0;
  /** Expected answers of the whole run, warm-up included: what the server must have counted. */
  #expectedInAll = 0;
  #secondExpected = 0;
  #secondFailed = 0;

  constructor(options: GeneratorOptions) {
    this.#options = options;
    const events = {
      onAnswer: (connection: Connection, status: number) => this.#onAnswer(connection, status),
      onFailure: (connection: Connection, reason: string) => this.#onFailure(connection, reason),
    };
    const { endpoint, keepAlive, workload } = options;
    this.#connections = Array.from(
      { length: options.connections },
      () => new Connection({ endpoint, keepAlive, events, requestBytes: workload.requestBytesMax }),
    );
  }

  async run(): Promise<LoadResult> {
    this.#startedAt = performance.now();
    this.#measuredFrom = this.#startedAt + this.#options.warmupMs;
    this.#endsAt = this.#measuredFrom + this.#options.durationMs;
    this.#free.push(...this.#connections);
    const stopTicking = this.#tick();
    await this.#sleepUntil(this.#measuredFrom);
    const before = process.cpuUsage();
    const sentBefore = this.#count;
    for (let second = 1; performance.now() < this.#endsAt; second++) {
      await this.#sleepUntil(Math.min(this.#endsAt, this.#measuredFrom + second * 1000));
      this.#closeSecond(second);
    }
    const elapsedMs = performance.now() - this.#measuredFrom;
    const used = process.cpuUsage(before);
    const requests = this.#count - sentBefore;
    await this.#settle();
    stopTicking();
    for (const connection of this.#connections) connection.close();
    return this.#result({ elapsedMs, cpuUs: used.user + used.system, requests });
  }

  // ---- Sending ----

  /** A closed loop drives itself; it only has to be started, and again after a failure. */
  #tick(): () => void {
    if (this.#options.rate !== undefined) {
      const ticker = new Ticker(TICK_MS, () => this.#sendDue());
      return () => ticker.stop();
    }
    this.#sendDue();
    const timer = setInterval(() => this.#sendDue(), CLOSED_TICK_MS);
    return () => clearInterval(timer);
  }

  /** Everything that is due and finds a free connection. */
  #sendDue(): void {
    const now = performance.now();
    if (now >= this.#endsAt) return this.#flushBacklog();
    if (this.#options.rate === undefined) {
      while (this.#free.length > 0) this.#send(this.#free.pop() as Connection, performance.now());
      return;
    }
    while (this.#free.length > 0) {
      const due = this.#dueAt(this.#count);
      if (due > now) return;
      this.#lateness.recordValue(microseconds(performance.now() - due));
      this.#send(this.#free.pop() as Connection, due);
    }
  }

  #dueAt(count: number): number {
    return this.#startedAt + (count * 1000) / (this.#options.rate as number);
  }

  /** After the end: what was due before it is still sent, or the worst delays would be left out. */
  #flushBacklog(): void {
    if (this.#options.rate === undefined) return;
    while (this.#free.length > 0 && this.#dueAt(this.#count) < this.#endsAt)
      this.#send(this.#free.pop() as Connection, this.#dueAt(this.#count));
  }

  #send(connection: Connection, intendedAt: number): void {
    connection.intendedAt = intendedAt;
    connection.sentAt = performance.now();
    const id = (this.#options.firstId + this.#count++) >>> 0;
    this.#sentBytes += connection.send(this.#options.workload.draw(), id);
  }

  // ---- Answers ----

  #onAnswer(connection: Connection, status: number): void {
    const now = performance.now();
    const expected = this.#options.expected.includes(status);
    if (expected) this.#expectedInAll++;
    if (this.#counts(connection)) {
      const latency = microseconds(now - connection.intendedAt);
      this.#latency.recordValue(latency);
      this.#secondLatency.recordValue(latency);
      this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
      this.#recorded++;
      if (expected) {
        this.#expectedCount++;
        this.#secondExpected++;
      } else this.#fail(`status ${status}`);
    }
    this.#next(connection, now);
  }

  #next(connection: Connection, now: number): void {
    const { rate } = this.#options;
    if (rate === undefined && now < this.#endsAt) return this.#send(connection, now);
    if (rate !== undefined) {
      const due = this.#dueAt(this.#count);
      // It waited for a connection, not for us: no lateness of the generator.
      if (due <= now && due < this.#endsAt) return this.#send(connection, due);
    }
    this.#free.push(connection);
  }

  #onFailure(connection: Connection, reason: string): void {
    if (this.#counts(connection)) this.#fail(reason);
    // Not at once: a server that refuses connections is not helped by a loop that makes them.
    setTimeout(() => this.#free.push(connection), 50);
  }

  #fail(reason: string): void {
    this.#secondFailed++;
    this.#failures.set(reason, (this.#failures.get(reason) ?? 0) + 1);
  }

  #counts(connection: Connection): boolean {
    return connection.intendedAt >= this.#measuredFrom && connection.intendedAt < this.#endsAt;
  }

  // ---- Time ----

  async #sleepUntil(at: number): Promise<void> {
    while (performance.now() < at) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(1000, at - performance.now())));
      this.#abandonLate();
    }
  }

  #abandonLate(): void {
    const oldest = performance.now() - ANSWER_MS_MAX;
    for (const connection of this.#connections)
      if (connection.underWay && connection.sentAt < oldest) connection.abandon('no answer within 10 s');
  }

  /** Waits for the answers that are still due. The last tick before the end may still be on its way. */
  async #settle(): Promise<void> {
    this.#flushBacklog();
    while (this.#connections.some((connection) => connection.underWay)) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      this.#abandonLate();
    }
  }

  #closeSecond(second: number): void {
    const histogram = this.#secondLatency;
    const entry: Second = {
      second,
      ok: this.#secondExpected,
      failed: this.#secondFailed,
      p50Ms: histogram.getValueAtPercentile(50) / 1000,
      p99Ms: histogram.getValueAtPercentile(99) / 1000,
    };
    this.#seconds.push(entry);
    this.#secondExpected = 0;
    this.#secondFailed = 0;
    histogram.reset();
    this.#options.onSecond?.(entry);
  }

  // ---- Result ----

  #result(measured: { elapsedMs: number; cpuUs: number; requests: number }): LoadResult {
    const { rate, connections, workload, durationMs } = this.#options;
    const busy = measured.cpuUs / 1000 / measured.elapsedMs;
    const late: Latency = latencyOf(this.#lateness);
    const bottleneck: string[] = [];
    if (busy > BUSY_MAX) bottleneck.push(`the generator's core was ${Math.round(busy * 100)} % busy`);
    if (late.p99 > LATE_MS_MAX) bottleneck.push(`the generator sent ${late.p99.toFixed(1)} ms late (p99)`);
    const failed = [...this.#failures.values()].reduce((sum, count) => sum + count, 0);
    return {
      loop: rate === undefined ? 'closed' : 'open',
      targetRate: rate,
      connections,
      seconds: durationMs / 1000,
      requests: this.#recorded,
      expected: this.#expectedCount,
      expectedInAll: this.#expectedInAll,
      failed,
      failures: Object.fromEntries(this.#failures),
      statuses: Object.fromEntries(this.#statuses),
      ratePerSec: (this.#expectedCount / durationMs) * 1000,
      sentBytes: this.#sentBytes,
      latencyMs: latencyOf(this.#latency),
      perSecond: this.#seconds,
      workload: workload.checksum,
      generator: {
        cpuUsPerRequest: measured.requests === 0 ? 0 : measured.cpuUs / measured.requests,
        busy,
        lateP50Ms: late.p50,
        lateP99Ms: late.p99,
        bottleneck,
      },
    };
  }
}
