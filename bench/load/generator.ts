/**
 * The load generator: sends a workload at planned rates or as fast as answers come, and records the
 * outcome of every request.
 *
 * Closed loop: each connection sends its next request as soon as it has an answer. This finds the
 * highest rate. Its latencies say little, because a slow server slows down the load.
 *
 * Open loop: the plan decides when each request is due (pace/pace.ts), whatever the server does. A
 * latency counts from that moment, so a stall shows in the latencies of all requests that it
 * delayed (no coordinated omission). A request that finds every connection busy waits in line. Its
 * latency includes this wait, which is also reported by itself.
 *
 * A rate counts the answers that came within a time, no matter when their requests were due. So a
 * server that is slower than the plan shows its own rate, and the answers that come after the end
 * are late.
 *
 * The generator watches itself: its CPU per request, its share of a core, and how late it sent
 * requests that had a free connection. When the generator was the bottleneck, the result says so,
 * because its figures then do not describe the server.
 */
import type { Workload } from '../workload.ts';
import { Connection, type Endpoint } from './connection.ts';
import { Pace, type Segment } from './pace/pace.ts';
import type { StopRule } from './pace/stop.ts';
import {
  encodeHistogram,
  isHeadline,
  microseconds,
  NO_ANSWER,
  newHistogram,
  type Place,
  Recording,
  TIMED_OUT,
} from './recording.ts';
import { type GeneratorFigures, type LoadResult, percentilesOf, resultOf, type Second } from './result.ts';
import { SecondCounts } from './second.ts';
import { type Ledger, unstoredReason } from './verify/ledger.ts';

export type GeneratorOptions = {
  endpoints: readonly Endpoint[];
  workload: Workload;
  connections: number;
  /**
   * Rare clients, which have one connection each beside the `connections`. They send this share of
   * the requests, one client after the other.
   */
  rare: { clients: number; share: number };
  keepAlive: boolean;
  /**
   * The plan of an open loop; its times count from the end of the warm-up. Undefined in a closed
   * loop.
   */
  segments: readonly Segment[] | undefined;
  /**
   * Delay of all requests, as a share of the time between two requests. Generators that share a
   * plan have different delays, so that they take turns.
   */
  phase?: number | undefined;
  warmupMs: number;
  durationMs: number;
  /** A request that has no answer after this time is given up. */
  timeoutMs: number;
  /** Statuses of expected answers. An answer with another status is a failure. */
  expected: readonly number[];
  /** First id of this run: two runs against one server must not share ids. */
  firstId: number;
  /** Gets what the server answered for each id. */
  ledger?: Ledger | undefined;
  stop?: StopRule | undefined;
  /** Ends the run early when it is aborted. */
  signal?: AbortSignal | undefined;
  /** The run ends when this many requests were sent in the measured time. */
  requestsMax?: number | undefined;
  /** Whether the result contains the histograms. */
  keepHistograms?: boolean | undefined;
  onSecond?: ((second: Second) => void) | undefined;
};

const TICK_MS = 1;
const CLOSED_TICK_MS = 20;
/**
 * How often the generator looks for requests to give up, so a request is given up at most this
 * late.
 */
const LOOK_MS = 20;
const RECONNECT_MS = 50;
const SETTLE_LOOK_MS = 5;
const SECOND_MS = 1_000;
/** Most moments of a segment at which a second counts the requests that wait for a connection. */
const WAITING_SAMPLES = 1_000;
const NEVER_SENT = 'never sent: every connection was busy until the end';
/**
 * When the generator uses more than this share of a core, or its p99 of lateness is above
 * LATE_MS_MAX, its figures are not those of the server.
 */
const BUSY_MAX = 0.9;
const LATE_MS_MAX = 5;
/** A request that is to be recorded. Without `sentAt` it was never sent. */
type Request = Place & { intendedAt: number; sentAt?: number };
const CLOSED_LOOP = { name: 'closed loop', fromMs: 0, fromRate: 0, toRate: 0 };

export class Generator {
  readonly #options: GeneratorOptions;
  readonly #connections: Connection[];
  /**
   * Free connections. The one that was freed last is used first, so that few are in use at low
   * rates.
   */
  readonly #free: Connection[] = [];
  /** Free rare clients; the one that has rested longest is next. */
  #freeRare: Connection[] = [];
  /**
   * When requests are due; undefined in a closed loop. The warm-up is its first segment, and is not
   * recorded.
   */
  readonly #pace: Pace | undefined;
  readonly #segments: readonly Segment[];
  readonly #warmupSegments: number;
  readonly #recording: Recording;
  readonly #lateness = newHistogram();
  readonly #wait = newHistogram();
  readonly #service = newHistogram();
  /**
   * For each stage: the expected answers that came during the stage. `#lateOf` has, for each stage,
   * the expected answers to requests of the stage that came after its end.
   */
  readonly #answered: number[];
  readonly #lateOf: number[];
  /** Stage in which the newest answer came. */
  #stageNow = 0;
  #late = 0;
  #waited = 0;
  /** How many requests may still be sent in the measured time. */
  #left: number;
  readonly #second: SecondCounts;
  readonly #unanswered = new Map<string, number>();
  readonly #unstored = new Map<string, number>();
  readonly #seconds: Second[] = [];
  /** Number of the next request to send; `#dueAt` is when it is due. */
  #count = 0;
  #dueAt = Number.POSITIVE_INFINITY;
  /**
   * When a request last found no free connection. Requests that were due before then waited for a
   * connection.
   */
  #noneFreeAt = 0;
  #startedAt = 0;
  #secondBeganAt = 0;
  /**
   * Start and end of the measured time. Requests that were due earlier or later are not recorded.
   */
  #measuredFrom = 0;
  #endsAt = 0;
  #sentBytes = 0;
  #expectedInAll = 0;
  #stopped: LoadResult['stopped'];
  readonly #tooLate: string;

  constructor(options: GeneratorOptions) {
    this.#options = options;
    this.#tooLate = `no answer within ${options.timeoutMs / 1000} s`;
    this.#left = options.requestsMax ?? Number.POSITIVE_INFINITY;
    const { segments, warmupMs, durationMs, workload } = options;
    this.#segments = segments ?? [{ ...CLOSED_LOOP, toMs: durationMs }];
    const warmup = segments ? warmupOf(segments, warmupMs) : [];
    this.#warmupSegments = warmup.length;
    const later = (segments ?? []).map((segment) => shifted(segment, warmupMs));
    this.#pace = segments && new Pace([...warmup, ...later], options.phase);
    this.#answered = this.#segments.map(() => 0);
    this.#lateOf = this.#segments.map(() => 0);
    this.#recording = new Recording(workload.kinds);
    this.#second = new SecondCounts(options.expected, options.keepHistograms ?? false);
    this.#connections = this.#makeConnections();
  }

  #makeConnections(): Connection[] {
    const { endpoints, keepAlive, workload, connections, rare } = this.#options;
    const events = {
      onAnswer: (connection: Connection, status: number, answer: Buffer) =>
        this.#onAnswer(connection, status, answer),
      onFailure: (connection: Connection, reason: string) => this.#onFailure(connection, reason),
    };
    return Array.from({ length: connections + rare.clients }, (_, n) => {
      const isRare = n >= connections;
      const requestBytes = isRare ? 0 : workload.requestBytesMax;
      const host = n % endpoints.length;
      const endpoint = endpoints[host] as Endpoint;
      return new Connection({ endpoint, host, keepAlive, events, requestBytes, isRare });
    });
  }

  async run(): Promise<LoadResult> {
    const { signal } = this.#options;
    const onAbort = (): void => this.#stop('interrupted', true);
    signal?.addEventListener('abort', onAbort);
    this.#startedAt = performance.now();
    this.#measuredFrom = this.#startedAt + this.#options.warmupMs;
    this.#endsAt = this.#measuredFrom + this.#options.durationMs;
    for (const connection of this.#connections) this.#release(connection);
    this.#advance();
    const stopTicking = this.#tick();
    await this.#sleepUntil(this.#measuredFrom);
    const startedAt = new Date(Date.now() - (performance.now() - this.#measuredFrom)).toISOString();
    const before = process.cpuUsage();
    const sentBefore = this.#count;
    this.#secondBeganAt = this.#measuredFrom;
    while (performance.now() < this.#endsAt) {
      await this.#sleepUntil(
        Math.min(this.#endsAt, this.#measuredFrom + (this.#seconds.length + 1) * SECOND_MS),
      );
      this.#closeSecond();
    }
    const elapsedMs = performance.now() - this.#measuredFrom;
    const used = process.cpuUsage(before);
    const requests = this.#count - sentBefore;
    await this.#settle();
    stopTicking();
    signal?.removeEventListener('abort', onAbort);
    for (const connection of this.#connections) connection.close();
    if (!this.#second.isEmpty) this.#closeSecond();
    return this.#result(startedAt, { elapsedMs, cpuUs: used.user + used.system, requests });
  }

  /** Number of ids that were used. */
  get count(): number {
    return this.#count;
  }

  /** Ends the measured time now. Answers to requests under way are awaited. */
  #stop(reason: string, failed: boolean): void {
    if (this.#stopped) return;
    this.#stopped = { reason, failed };
    this.#endsAt = Math.min(this.#endsAt, performance.now());
  }

  // ---- Sending ----

  /**
   * Starts sending. In a closed loop the timer matters only at the start and after failures,
   * because each answer leads to the next request.
   * @returns a function that stops the timer
   */
  #tick(): () => void {
    this.#sendDue();
    const timer = setInterval(() => this.#sendDue(), this.#pace ? TICK_MS : CLOSED_TICK_MS);
    return () => clearInterval(timer);
  }

  #advance(): void {
    const isMore = this.#left > 0;
    if (this.#pace) this.#dueAt = isMore ? this.#startedAt + this.#pace.next() : Number.POSITIVE_INFINITY;
  }

  /** Takes a free connection. Rare clients get their share of the requests. */
  #take(): Connection | undefined {
    const { rare } = this.#options;
    if (rare.clients > 0 && Math.random() < rare.share) {
      const connection = this.#freeRare.shift();
      if (connection) return connection;
    }
    return this.#free.pop();
  }

  #release(connection: Connection): void {
    if (connection.isRare) this.#freeRare.push(connection);
    else this.#free.push(connection);
  }

  /**
   * Sends requests that are due, while there are free connections. Requests that were due before
   * the end are sent even after it.
   */
  #sendDue(): void {
    const now = performance.now();
    if (!this.#pace) return this.#sendClosed(now);
    const isOnTime = now < this.#endsAt;
    while (this.#dueAt <= now && this.#dueAt < this.#endsAt) {
      const connection = this.#take();
      if (!connection) {
        this.#noneFreeAt = now;
        return;
      }
      // A request that waited for a connection, as every request after the end did, was not late
      // because of the generator.
      if (isOnTime && this.#dueAt >= this.#measuredFrom && this.#dueAt > this.#noneFreeAt)
        this.#lateness.recordValue(microseconds(performance.now() - this.#dueAt));
      this.#send(connection, this.#dueAt);
    }
  }

  #sendClosed(now: number): void {
    if (now >= this.#endsAt) return;
    while (this.#left > 0) {
      const connection = this.#take();
      if (!connection) return;
      this.#send(connection, performance.now());
    }
  }

  #send(connection: Connection, intendedAt: number): void {
    connection.intendedAt = intendedAt;
    connection.sentAt = performance.now();
    connection.stage = this.#stageOf(intendedAt);
    if (this.#counts(connection)) this.#noteSent(intendedAt);
    const id = (this.#options.firstId + this.#count++) >>> 0;
    this.#sentBytes += connection.send(this.#options.workload.draw(connection.host), id);
    this.#advance();
  }

  #noteSent(intendedAt: number): void {
    this.#second.sent++;
    if (intendedAt <= this.#noneFreeAt) this.#waited++;
    if (--this.#left === 0) this.#stop(`${this.#options.requestsMax} requests were sent (--until)`, false);
  }

  /**
   * Stage of a request; below 0 in the warm-up. The plan decides, not the clock, because a plan's
   * last request may be due exactly at the end.
   */
  #stageOf(intendedAt: number): number {
    if (this.#pace) return this.#pace.segment - this.#warmupSegments;
    return intendedAt >= this.#measuredFrom ? 0 : -1;
  }

  // ---- Answers ----

  #onAnswer(connection: Connection, status: number, answer: Buffer): void {
    const now = performance.now();
    if (this.#options.expected.includes(status)) {
      this.#expectedInAll++;
      this.#countAnswer(connection, now);
    }
    if (status === 200 && this.#saysWhatIsStored && this.#counts(connection)) this.#countUnstored(answer);
    this.#options.ledger?.answered(connection, status, answer);
    this.#record(connection, status, now);
    this.#next(connection, now);
  }

  #countAnswer(connection: Connection, now: number): void {
    if (now < this.#measuredFrom) return;
    const at = now - this.#measuredFrom;
    while ((this.#segments[this.#stageNow]?.toMs ?? Number.POSITIVE_INFINITY) <= at) this.#stageNow++;
    if (now < this.#endsAt && this.#stageNow < this.#segments.length)
      this.#answered[this.#stageNow] = (this.#answered[this.#stageNow] as number) + 1;
    if (!this.#counts(connection)) return;
    if (now >= this.#endsAt) this.#late++;
    const { stage } = connection;
    if (now >= this.#endsAt || stage < this.#stageNow)
      this.#lateOf[stage] = (this.#lateOf[stage] as number) + 1;
  }

  /**
   * Whether the headers of a 200 say that something is stored. Only sluice has such headers; other
   * servers are asked after the run.
   */
  get #saysWhatIsStored(): boolean {
    return this.#options.ledger?.isAnyServer !== true;
  }

  #countUnstored(answer: Buffer): void {
    const reason = unstoredReason(answer);
    if (reason !== undefined) this.#unstored.set(reason, (this.#unstored.get(reason) ?? 0) + 1);
  }

  #next(connection: Connection, now: number): void {
    if (!this.#pace && now < this.#endsAt && this.#left > 0) return this.#send(connection, now);
    // The due request waited for this connection, so its delay does not count as lateness of the
    // generator.
    const isDue = this.#dueAt <= now && this.#dueAt < this.#endsAt;
    if (isDue && !connection.isRare) return this.#send(connection, this.#dueAt);
    this.#release(connection);
  }

  #onFailure(connection: Connection, reason: string): void {
    this.#options.ledger?.unanswered(connection);
    this.#lost(connection, reason);
    // The connection is used again only after a pause, so that a server that refuses connections is
    // not flooded with new ones.
    setTimeout(() => this.#release(connection), RECONNECT_MS);
  }

  #lost(request: Request, reason: string): void {
    const isLate = reason === this.#tooLate || reason === NEVER_SENT;
    this.#record(request, isLate ? TIMED_OUT : NO_ANSWER, performance.now());
    if (this.#counts(request)) this.#unanswered.set(reason, (this.#unanswered.get(reason) ?? 0) + 1);
  }

  #record(request: Request, status: number, now: number): void {
    const { intendedAt, sentAt } = request;
    const latency = microseconds(now - intendedAt);
    if (now >= this.#measuredFrom) this.#second.record(status, latency);
    if (!this.#counts(request)) return;
    this.#recording.record(request, status, latency);
    if (!isHeadline(status)) return;
    this.#wait.recordValue(microseconds((sentAt ?? now) - intendedAt));
    if (sentAt !== undefined) this.#service.recordValue(microseconds(now - sentAt));
  }

  #counts({ stage, intendedAt }: Request): boolean {
    return stage >= 0 && intendedAt <= this.#endsAt;
  }

  // ---- Time ----

  async #sleepUntil(at: number): Promise<void> {
    for (;;) {
      const left = Math.min(at, this.#endsAt) - performance.now();
      if (left <= 0) return;
      await new Promise((resolve) => setTimeout(resolve, Math.min(LOOK_MS, left)));
      this.#abandonLate();
    }
  }

  #abandonLate(): void {
    const oldest = performance.now() - this.#options.timeoutMs;
    for (const connection of this.#connections)
      if (connection.underWay && connection.sentAt < oldest) connection.abandon(this.#tooLate);
  }

  /**
   * Waits for outstanding answers after the end. A request that finds no free connection within the
   * time-out counts as never sent.
   */
  async #settle(): Promise<void> {
    const givesUpAt = this.#endsAt + this.#options.timeoutMs;
    for (;;) {
      if (performance.now() >= givesUpAt) this.#giveUp();
      if (performance.now() >= this.#secondBeganAt + SECOND_MS) this.#closeSecond();
      this.#sendDue();
      const isDue = this.#pace !== undefined && this.#dueAt < this.#endsAt;
      if (!isDue && !this.#connections.some(({ underWay }) => underWay)) return;
      await new Promise((resolve) => setTimeout(resolve, SETTLE_LOOK_MS));
      this.#abandonLate();
    }
  }

  #giveUp(): void {
    for (; this.#pace && this.#dueAt < this.#endsAt; this.#advance()) {
      const request = {
        intendedAt: this.#dueAt,
        stage: this.#pace.segment - this.#warmupSegments,
        kind: this.#options.workload.draw().kind,
      };
      if (request.stage < 0) continue;
      this.#waited++;
      this.#lost(request, NEVER_SENT);
    }
  }

  /**
   * Ends a second, and keeps its figures. There are also seconds after the end of the measured
   * time, until the last answer.
   */
  #closeSecond(): void {
    const now = performance.now();
    const isLate = this.#secondBeganAt >= this.#endsAt;
    const from = this.#measuredFrom;
    const stage = this.#segments.findIndex(({ toMs }) => toMs > this.#secondBeganAt - from);
    this.#noteOpen(now);
    const entry = this.#second.close({
      second: this.#seconds.length + 1,
      ms: now - this.#secondBeganAt,
      ...(isLate && { late: true }),
      stage: stage < 0 ? this.#segments.length - 1 : stage,
    });
    this.#secondBeganAt = now;
    this.#seconds.push(entry);
    this.#options.onSecond?.(entry);
    const found = isLate ? undefined : this.#options.stop?.(entry);
    if (found) this.#stop(found.reason, found.failed);
  }

  #noteOpen(now: number): void {
    for (const { underWay, intendedAt } of this.#connections)
      if (underWay) this.#second.noteOpen(microseconds(now - intendedAt));
    const until = Math.min(now, this.#endsAt);
    if (!this.#pace || this.#dueAt >= until) return;
    this.#second.noteOpen(microseconds(now - this.#dueAt));
    for (const [ms, count] of this.#pace.waiting(until - this.#startedAt, WAITING_SAMPLES))
      this.#second.noteOpen(microseconds(now - this.#startedAt - ms), count);
  }

  // ---- Result ----

  #result(startedAt: string, measured: { elapsedMs: number; cpuUs: number; requests: number }): LoadResult {
    const { connections, rare, workload, expected, keepHistograms } = this.#options;
    const seconds = Math.max(0, this.#endsAt - this.#measuredFrom) / 1000;
    const result = resultOf(this.#recording, {
      loop: this.#pace ? 'open' : 'closed',
      targetRate:
        this.#pace && Math.max(...this.#segments.map(({ fromRate, toRate }) => Math.max(fromRate, toRate))),
      connections: connections + rare.clients,
      startedAt,
      seconds,
      expectedStatuses: expected,
      segments: this.#segments.map((segment, stage) => ({
        ...segment,
        seconds: Math.max(0, Math.min(segment.toMs / 1000, seconds) - segment.fromMs / 1000),
        answered: this.#answered[stage] as number,
        late: this.#lateOf[stage] as number,
      })),
      late: this.#late,
      waited: this.#waited,
      wait: this.#wait,
      service: this.#service,
      expectedInAll: this.#expectedInAll,
      unanswered: Object.fromEntries(this.#unanswered),
      unstored: Object.fromEntries(this.#unstored),
      sentBytes: this.#sentBytes,
      perSecond: this.#seconds,
      workload: workload.checksum,
      stopped: this.#stopped,
      generator: this.#figures(measured),
    });
    if (!keepHistograms) return result;
    const parts = { wait: encodeHistogram(this.#wait), service: encodeHistogram(this.#service) };
    return { ...result, histograms: this.#recording.toRecorded(), parts };
  }

  #figures(measured: { elapsedMs: number; cpuUs: number; requests: number }): GeneratorFigures {
    const busy = measured.cpuUs / 1000 / Math.max(1, measured.elapsedMs);
    // The histogram is empty when every request waited for a connection; then the lateness is 0.
    const { p50, p99 } = percentilesOf(this.#lateness);
    const late = { lateP50Ms: p50 ?? 0, lateP99Ms: p99 ?? 0 };
    const bottleneck: string[] = [];
    if (busy > BUSY_MAX) bottleneck.push(`the generator's core was ${Math.round(busy * 100)} % busy`);
    if (late.lateP99Ms > LATE_MS_MAX)
      bottleneck.push(`the generator sent ${late.lateP99Ms.toFixed(1)} ms late (p99)`);
    return {
      cpuUsPerRequest: measured.requests === 0 ? 0 : measured.cpuUs / measured.requests,
      busy,
      ...late,
      bottleneck,
    };
  }
}

const shifted = (segment: Segment, ms: number): Segment => ({
  ...segment,
  fromMs: segment.fromMs + ms,
  toMs: segment.toMs + ms,
});

/** The warm-up runs at the rate with which the plan begins. */
function warmupOf([first]: readonly Segment[], warmupMs: number): Segment[] {
  const rate = first?.fromRate ?? 0;
  return warmupMs > 0 ? [{ name: 'warm-up', fromMs: 0, toMs: warmupMs, fromRate: rate, toRate: rate }] : [];
}
