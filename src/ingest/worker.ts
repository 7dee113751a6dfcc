/**
 * Composition root of an ingest worker: constructs all parts, connects them, and closes them at the
 * end. A worker is a child of the primary (primary.ts). It shares nothing with its siblings but the
 * port, Redis and NATS.
 */

import { setImmediate as afterPoll } from 'node:timers/promises';
import { type Config, loadConfig } from '../config.ts';
import { systemClock as clock } from '../lib/clock.ts';
import { createLog, type Log } from '../lib/log.ts';
import { giveBackMemoryOfStart } from '../lib/memory.ts';
import type { MetricsSnapshot } from '../lib/metrics/metrics.ts';
import { ProcessFigures } from '../lib/metrics/process-figures.ts';
import { openTracing } from '../lib/tracing/open.ts';
import type { Tracing } from '../lib/tracing/tracing.ts';
import { SHUTDOWN_LINGER_MS, SHUTDOWN_MS_MAX, SHUTDOWN_PAUSE_MS } from '../limits.ts';
import { Replica } from '../projects/replica.ts';
import { CheckpointBucket } from '../projects/usage/checkpoint-bucket.ts';
import { NatsLink } from '../stream/nats.ts';
import { Publisher } from '../stream/publish/publisher.ts';
import { TailFeed } from '../stream/tail.ts';
import { UploadBudget } from './envelope/upload.ts';
import { SpoolReader } from './filter/pick-fields.ts';
import { unsupportedHintFor } from './http/answers/limit-headers.ts';
import { TrustedProxies } from './http/client-address.ts';
import type { RequestServices } from './http/endpoint-request.ts';
import { itemRoutes } from './http/item-endpoints.ts';
import { exposeMetrics } from './http/metrics/exposition.ts';
import { PageFigures } from './http/metrics/page-figures.ts';
import { RequestLog } from './http/metrics/request-log.ts';
import { RequestMetrics } from './http/metrics/request-metrics.ts';
import { OpenExchanges } from './http/open-exchanges.ts';
import { RequestRecord } from './http/record.ts';
import { IngestRequest } from './http/request.ts';
import { Server } from './http/server.ts';
import { tracedBy } from './http/traced-request.ts';
import { Admission } from './limit/admission.ts';
import { WHILE_AWAY } from './limit/failure-policy.ts';
import { HeartbeatLimiter } from './limit/heartbeat-limiter.ts';
import { LimitRedis } from './limit/redis.ts';
import { Checkpoints } from './usage/checkpoints.ts';
import { KeyUse } from './usage/key-use.ts';
import { OutcomeLedger } from './usage/outcomes.ts';
import type { FromWorker, Readiness, ToWorker } from './worker-pool.ts';

/**
 * Time in ms after which a worker that is not ready listens all the same. Until it is ready, it
 * answers 503 with `Retry-After: 1`.
 */
const UNREADY_MS_MAX = 5_000;
const BEAT_MS = 500;
const POLL_MS = 20;
/**
 * Pause in ms between closing the listener and closing the connections. All workers of a primary
 * stop at about the same time. The pause lets each of them close its listener first. Otherwise a
 * client whose connection was closed could connect to a worker that is about to stop, too.
 */
const SIBLINGS_MS = 250;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Parts that a worker has from its start. */
type Ground = Pick<RequestServices, 'budget' | 'metrics' | 'log'> & {
  config: Config;
  redis: LimitRedis;
  pageFigures: PageFigures;
  requestLog: RequestLog | undefined;
};

/** Parts that serve requests. A worker has them as soon as the registry has loaded. */
class Serving {
  readonly publisher: Publisher;
  readonly admission: Admission;
  readonly services: RequestServices;
  readonly #partsLink: NatsLink;
  /** Parts that write outcomes, key use and monthly counts; at the end they write what is left. */
  readonly #writers: readonly { close(): Promise<void> }[];

  constructor(ground: Ground, broker: { link: NatsLink; partsLink: NatsLink; replica: Replica }) {
    const { config, log, budget, redis, metrics, pageFigures, requestLog } = ground;
    const { link, partsLink, replica } = broker;
    const checkpoints = new Checkpoints({ store: new CheckpointBucket({ link, log }), clock, log });
    const ledger = new OutcomeLedger({ link, log });
    const keyUse = new KeyUse({ link, log });
    const spoolReader = new SpoolReader();
    this.#partsLink = partsLink;
    this.#writers = [ledger, keyUse, checkpoints];
    this.admission = new Admission({ redis, clock, checkpoints, log });
    this.publisher = new Publisher({
      link,
      partsLink,
      shards: config.streamShards,
      workers: config.workers,
      isShared: () => replica.hasSeveralProjects,
      clock,
      log,
    });
    this.services = {
      replica,
      admission: this.admission,
      heartbeatLimiter: new HeartbeatLimiter({ redis, clock }),
      publisher: this.publisher,
      budget,
      metrics,
      clock,
      log,
      whileAway: WHILE_AWAY[config.env],
      unsupportedHint: unsupportedHintFor(budget.storedTypes),
      trustedProxies: config.trustedProxies && new TrustedProxies(config.trustedProxies),
      pickSpooled: (payload) => spoolReader.read(payload),
      record: new RequestRecord({
        clock,
        metrics,
        pageFigures,
        keyUse,
        ledger,
        requestLog,
        tail: new TailFeed({ link, clock, of: 'refused' }),
      }),
    };
  }

  async close(): Promise<void> {
    await Promise.all(this.#writers.map((writer) => writer.close()));
    this.admission.close();
    await this.#partsLink.close();
  }
}

class IngestWorker {
  readonly #config: Config;
  readonly #log: Log;
  readonly #exchanges = new OpenExchanges(clock);
  readonly #metrics = new RequestMetrics();
  readonly #pageFigures = new PageFigures();
  readonly #processFigures = new ProcessFigures();
  readonly #budget: UploadBudget;
  readonly #redis: LimitRedis;
  readonly #requestLog: RequestLog | undefined;
  readonly #server: Server;
  #link: NatsLink | undefined;
  #replica: Replica | undefined;
  #serving: Serving | undefined;
  #state: 'starting' | 'listening' | 'stopping' = 'starting';
  #stopped: Promise<void> | undefined;

  constructor(config: Config, log: Log, tracing: Tracing | undefined) {
    this.#config = config;
    this.#log = log;
    const spoolBytesMax = Math.floor(config.spoolMaxBytes / config.workers);
    this.#budget = new UploadBudget({ ...config, spoolBytesMax });
    const { redisUrls: urls, redisPasswordFile: passwordFile, tlsCaFile: caFile } = config;
    this.#redis = new LimitRedis({ urls, passwordFile, caFile, log, clock });
    if (config.env === 'development')
      this.#requestLog = new RequestLog((lines) => send({ kind: 'requests', ...lines }));
    this.#server = new Server({
      exchanges: this.#exchanges,
      metrics: this.#metrics,
      heartbeatPath: config.heartbeatPath,
      itemRoutes: itemRoutes(config.storeTypes),
      openItems: tracing
        ? tracedBy(tracing)
        : (services, exchange, { endpoint }) => new IngestRequest(services, exchange, endpoint),
      services: () => this.#serving?.services,
      readiness: () => {
        const readiness = this.readiness();
        return { ready: readiness.status === 'ready', body: JSON.stringify(readiness) };
      },
    });
  }

  /**
   * Starts the worker. It listens as soon as the registry has loaded, or at the latest after
   * UNREADY_MS_MAX. Listening earlier would do harm: a client whose connection is refused tries
   * again with its next event, whereas a client that gets a 503 sends nothing for a while.
   */
  async start(): Promise<void> {
    setTimeout(() => void this.#listen(), UNREADY_MS_MAX).unref();
    void this.#budget.disk.removeLeftNames();
    await this.#redis.connect();
    const config = this.#config;
    // Memory is collected before the registry loads: with a million projects in memory the
    // collection would take seconds.
    if (config.env === 'development') giveBackMemoryOfStart();
    const log = this.#log;
    const { natsUrls: urls, natsCredsFile: credsFile, tlsCaFile: caFile, planLimits } = config;
    const access = {
      urls,
      credsFile,
      caFile,
      role: 'ingest',
      log,
      waitForServer: true,
      handsOver: true,
    } as const;
    const link = await NatsLink.connect({ ...access, name: 'sluice ingest' });
    this.#link = link;
    const replica = new Replica({ link, planLimits, log, clock });
    this.#replica = replica;
    const [partsLink] = await Promise.all([
      NatsLink.connect({ ...access, name: 'sluice ingest, parts of large envelopes' }),
      replica.start(),
    ]);
    const ground = {
      config,
      log,
      budget: this.#budget,
      redis: this.#redis,
      metrics: this.#metrics,
      pageFigures: this.#pageFigures,
      requestLog: this.#requestLog,
    };
    this.#serving = new Serving(ground, { link, partsLink, replica });
    await this.#listen();
    this.beat();
  }

  /** Opens the port. Does nothing when the worker listens already or is stopping. */
  async #listen(): Promise<void> {
    if (this.#state !== 'starting') return;
    this.#state = 'listening';
    await this.#server.listen(this.#config.host, this.#config.port);
    send({ kind: 'listening' });
  }

  readiness(): Readiness {
    const loaded = this.#serving !== undefined;
    const isMissing = this.#replica?.bucketIsMissing ?? false;
    return {
      status: loaded && this.#state !== 'stopping' ? 'ready' : 'not ready',
      checks: {
        redis: this.#redis.available ? 'ok' : 'away',
        nats: this.#link?.connected && this.#replica?.brokerAnswers ? 'ok' : 'away',
        registry: isMissing ? 'missing' : loaded ? 'ok' : 'loading',
      },
    };
  }

  /**
   * Sends the message `beat` for which the primary asked, with the metrics of this process and,
   * when `projects` is true, the counts of its busiest projects.
   */
  async answer(projects: boolean, name: string): Promise<void> {
    const process = await this.#processFigures.snapshot(name);
    this.beat({ process, ...(projects && { projects: this.#pageFigures.busiest() }) });
  }

  /**
   * Tells the primary that this process's event loop runs, and sends it readiness. The metrics are
   * sent, too, when the primary asked for them, or when a request has ended since they were last
   * sent, so that they outlive this worker. At rest they would be most of the work of a beat.
   */
  beat(asked?: Pick<Extract<FromWorker, { kind: 'beat' }>, 'process' | 'projects'>): void {
    const hasNews = this.#metrics.takeNews();
    const snapshot = hasNews || asked ? this.#snapshot() : undefined;
    send({ kind: 'beat', readiness: this.readiness(), ...(snapshot && { snapshot }), ...asked });
  }

  #snapshot(): MetricsSnapshot {
    const { admission, publisher } = this.#serving ?? {};
    return exposeMetrics({
      requests: this.#metrics,
      inFlight: this.#exchanges.inFlight,
      budget: this.#budget,
      redis: this.#redis,
      stateLost: admission?.stateLost ?? 0,
      countersRestored: admission?.countersRestored ?? 0,
      publisher,
    });
  }

  /**
   * Stops the worker. In this order, the worker
   *
   * 1. reports that it is not ready, and waits until the load balancer has noticed;
   * 2. closes its listener, and waits until its siblings have closed theirs;
   * 3. answers the requests on open connections, and closes each connection with its answer;
   * 4. waits for the last acknowledgements, and closes everything else.
   */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#state = 'stopping';
    this.beat();
    await sleep(this.#config.env === 'production' ? SHUTDOWN_PAUSE_MS : 0);
    await this.#server.closeListener();
    const closed = clock.monotonic();
    await sleep(SIBLINGS_MS);
    this.#server.closeWithAnswers();
    let quietSince = closed;
    while (clock.monotonic() - closed < SHUTDOWN_MS_MAX) {
      if (this.#exchanges.inFlight > 0) quietSince = clock.monotonic();
      else if (this.#server.connections === 0 || clock.monotonic() - quietSince > SHUTDOWN_LINGER_MS) break;
      await sleep(POLL_MS);
      await afterPoll();
    }
    // Without a request in flight all connections are closed now. Otherwise a request that arrived
    // during the waits below would be cut off half done.
    if (this.#exchanges.inFlight === 0) this.#server.close();
    await this.#serving?.publisher.drain();
    // An answer that closes its connection goes out one turn after the acknowledgement.
    await afterPoll();
    await this.#serving?.close();
    this.#server.close();
    this.#requestLog?.flush();
    await this.#replica?.stop();
    await this.#redis.close();
    await this.#link?.close();
    this.beat();
  }
}

function send(message: FromWorker): void {
  // The callback ignores the error: a send fails when the primary has just died.
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

async function main(): Promise<void> {
  const { config } = loadConfig();
  const log = createLog(config.logLevel, { process: 'worker' });
  const tracing = await openTracing(config, { service: 'sluice-ingest', log });
  const worker = new IngestWorker(config, log, tracing);
  const leave = async (): Promise<void> => {
    await worker.stop();
    await tracing?.close();
    process.exit(0);
  };
  const fatal = (error: unknown): void => {
    log.fatal({ err: error }, 'worker ends');
    process.exit(1);
  };
  process.on('uncaughtException', fatal);
  process.on('unhandledRejection', fatal);
  process.on('SIGTERM', () => void leave());
  // A terminal sends SIGINT to the whole process group. The worker ignores it, because the primary
  // decides when to stop.
  process.on('SIGINT', () => undefined);
  process.on('disconnect', () => void leave()); // the primary died
  // Leaves when the primary died while this program was loading: its `disconnect` event came before
  // the handler above was set.
  if (!process.connected) void leave();
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'stop') void leave();
    else void worker.answer(message.projects, message.name);
  });
  setInterval(() => worker.beat(), BEAT_MS).unref();
  await worker.start();
}

await main();
