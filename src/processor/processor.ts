/**
 * COMPOSITION ROOT of `sluice processor`: takes frames from the streams and writes records into the
 * sink.
 */
import type { Config } from '../config.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { credsExpiry } from '../lib/files/setting-files.ts';
import { orLate } from '../lib/late.ts';
import type { Log } from '../lib/log.ts';
import { giveBackMemoryOfStart } from '../lib/memory.ts';
import { ProcessFigures } from '../lib/metrics/process-figures.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { Slices } from '../lib/slices.ts';
import { openTracing } from '../lib/tracing/open.ts';
import type { Tracing } from '../lib/tracing/tracing.ts';
import { PREFETCH_BYTES_MAX, PREFETCH_TOTAL_BYTES_MAX, SHUTDOWN_MS_MAX } from '../limits.ts';
import { startAdminServer } from '../management/api/server.ts';
import { AdminTokens } from '../management/api/tokens.ts';
import { Connections } from '../management/connections.ts';
import { LostCounts } from '../management/lost-counts.ts';
import { brokerNow } from '../projects/bucket.ts';
import { openSinks } from '../sink/open-sinks.ts';
import { tallyReader } from '../sink/read-tally.ts';
import { Retention } from '../sink/retention.ts';
import { SeveralSinks } from '../sink/several.ts';
import type { Sink } from '../sink/sink.ts';
import { NatsLink } from '../stream/nats.ts';
import { StreamWatch } from '../stream/stream-watch.ts';
import { BUCKETS, FRAME_STREAMS, streamName, streamNamesOf, wantedStreams } from '../stream/topology.ts';
import { StreamConsumer } from './consumer.ts';
import { CrashCounts } from './crash-counts.ts';
import { DeadLetters } from './dead-letters/dead-letters.ts';
import { InflationBudgets } from './decode/inflation-budgets.ts';
import { FrameWriter } from './frame-writer.ts';
import { Gate } from './gate.ts';
import { HeavyFrames } from './heavy-frames.ts';
import { HeavyProjects } from './heavy-projects.ts';
import { Keeper } from './keeper.ts';
import { type ProcessorGauges, ProcessorMetrics, pendingMessages } from './metrics.ts';
import { OldDays } from './old-days.ts';
import { PartSweeper } from './part-sweeper.ts';
import { PullQueue } from './pull-queue.ts';
import { TracedFrameWriter } from './traced-writer.ts';

const ADMIN_PORT = 8082;
/**
 * At least this many bytes may be in hand for one stream, however many streams there are: room for
 * a pull of 1 MiB while 1 MiB is in hand.
 */
const PREFETCH_BYTES_MIN = 2 * 1024 * 1024;

export type RunningProcessor = {
  /**
   * Stores the frames in hand, or gives them back when storing takes long, and closes everything.
   */
  stop(): Promise<void>;
};

export type ProcessorOptions = {
  clock?: Clock;
  /** A sink to use in place of the one that the settings name. */
  sink?: Sink;
  /** Takes a bug. By default the error ends the process, and its supervisor starts another. */
  onBug?: (error: unknown) => void;
};

/**
 * Throws the error outside of all handlers, so that the runtime reports it and ends the process.
 */
function endProcess(error: unknown): void {
  setImmediate(() => {
    throw error;
  });
}

const frameStreamNames = ({ streamShards }: Config): string[] =>
  FRAME_STREAMS.flatMap((stream) =>
    Array.from({ length: streamShards }, (_, shard) => streamName(stream, shard, streamShards)),
  );

const asSeveral = (sink: Sink, options: { log: Log; clock: Clock }): SeveralSinks =>
  sink instanceof SeveralSinks ? sink : new SeveralSinks([{ name: 'given', sink }], options);

type StreamPipe = { queue: PullQueue; consumer: StreamConsumer };
type ConsumerParts = { link: NatsLink; sink: Sink; tracing: Tracing | undefined };

class Processor implements RunningProcessor {
  readonly #config: Config;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #onBug: (error: unknown) => void;
  readonly #tokens: AdminTokens;
  readonly #metrics = new ProcessorMetrics();
  readonly #processFigures = new ProcessFigures();
  readonly #pipes: StreamPipe[] = [];
  /** Functions that close what was opened, in the order of opening. */
  readonly #closers: (() => Promise<void>)[] = [];
  #sink: SeveralSinks | undefined;
  #link: NatsLink | undefined;
  #deadLetters: DeadLetters | undefined;
  #watch: StreamWatch | undefined;
  #keeper: Keeper | undefined;
  #lostCounts: LostCounts | undefined;
  #ready = false;

  constructor(config: Config, log: Log, { clock = systemClock, onBug = endProcess }: ProcessorOptions) {
    this.#config = config;
    this.#log = log;
    this.#clock = clock;
    this.#onBug = onBug;
    const { adminTokens: entries, viewerTokens: viewers, adminTokenFile: file } = config;
    this.#tokens = new AdminTokens({ entries, viewers, file, log });
  }

  async start(given: Sink | undefined): Promise<void> {
    const { retentionDays } = this.#config;
    const tracing = await openTracing(this.#config, { service: 'sluice-processor', log: this.#log });
    if (tracing) this.#closers.push(() => tracing.close());
    const options = { clock: this.#clock, log: this.#log, retentionDays };
    const sink = given ? asSeveral(given, options) : await openSinks(this.#config.sinks, options);
    this.#sink = sink;
    this.#closers.push(() => sink.close());
    this.#closers.push(async () => this.#processFigures.stop());
    await this.#startAdmin();
    const link = await NatsLink.connect({
      urls: this.#config.natsUrls,
      credsFile: this.#config.natsCredsFile,
      caFile: this.#config.tlsCaFile,
      name: 'sluice processor',
      role: 'processor',
      log: this.#log,
      waitForServer: true,
    });
    this.#link = link;
    this.#closers.push(() => link.close());
    await this.#startConsumers({ link, sink, tracing });
    const sweeper = new PartSweeper({ link, clock: this.#clock, log: this.#log });
    sweeper.start();
    this.#closers.push(() => sweeper.stop());
    const oldDays = new OldDays({ link, log: this.#log, clock: this.#clock });
    this.#closers.push(async () => oldDays.stop());
    this.#startRetention(link, sink);
    this.#startLostCounts(link);
    await this.#startKeeper(link);
    this.#ready = true;
  }

  async #startKeeper(link: NatsLink): Promise<void> {
    const { streamReplicas: replicas, streamShards: shards, streamMaxBytes: maxBytes } = this.#config;
    const watch = new StreamWatch({
      nats: async () => link,
      clock: this.#clock,
      streams: streamNamesOf(shards),
      buckets: BUCKETS,
    });
    const wanted = wantedStreams({ replicas, shards, maxBytes });
    const keeper = new Keeper({ link, watch, wanted, clock: this.#clock, log: this.#log });
    this.#watch = watch;
    this.#keeper = keeper;
    this.#closers.push(() => keeper.stop());
    await keeper.start();
  }

  /**
   * Starts the repair of counts that Redis has lost: each is raised to the sink's tally. Does
   * nothing if no sink keeps a tally.
   */
  #startLostCounts(link: NatsLink): void {
    const reader = tallyReader(this.#config.sinks);
    if (!reader) return;
    const lostCounts = new LostCounts({
      link,
      connect: () =>
        new Connections({ ...this.#config, name: 'sluice processor', role: 'processor', log: this.#log }),
      tallies: reader.ofMonth,
      streams: frameStreamNames(this.#config),
      log: this.#log,
    });
    this.#lostCounts = lostCounts;
    this.#closers.push(() => lostCounts.stop());
  }

  #startRetention(link: NatsLink, sink: Sink): void {
    const { retentionDays: days } = this.#config;
    if (days === undefined) return;
    // The earlier of this machine's and the broker's time is used, which removes less: a machine
    // may start with its clock far ahead.
    const now = async (): Promise<number> => Math.min(this.#clock.now(), await brokerNow(link));
    const retention = new Retention({ sink, days, now, log: this.#log });
    retention.start();
    this.#closers.push(() => retention.stop());
  }

  async #startConsumers({ link, sink, tracing }: ConsumerParts): Promise<void> {
    const [log, clock] = [this.#log, this.#clock];
    const names = frameStreamNames(this.#config);
    const share = Math.floor(PREFETCH_TOTAL_BYTES_MAX / names.length);
    const bytesMax = Math.max(PREFETCH_BYTES_MIN, Math.min(PREFETCH_BYTES_MAX, share));
    const deadLetters = new DeadLetters({ link, log, clock });
    this.#deadLetters = deadLetters;
    this.#closers.push(() => deadLetters.close());
    const heavyProjects = new HeavyProjects({ link, clock, log });
    const heavyFrames = new HeavyFrames({ clock, onTooMany: (projectId) => heavyProjects.name(projectId) });
    const shared = {
      link,
      deadLetters,
      metrics: this.#metrics,
      largeGate: new Gate(),
      slices: new Slices(),
      budgets: new InflationBudgets(() => clock.monotonic()),
      heavyProjects,
      heavyFrames,
      log,
    };
    const crashCounts = new CrashCounts(link);
    const gate = new Gate();
    const outage = new OutageLog({ log, clock });
    for (const stream of names) {
      const options = { ...shared, sink: await sink.open(stream) };
      const writer = tracing ? new TracedFrameWriter(options, tracing) : new FrameWriter(options);
      const queue = new PullQueue({ link, stream, bytesMax, log });
      this.#pipes.push({
        queue,
        consumer: new StreamConsumer({ queue, writer, heavyFrames, crashCounts, gate, clock, outage, log }),
      });
    }
    for (const { consumer } of this.#pipes) consumer.start(this.#onBug);
    this.#closers.push(async () => {
      await Promise.all(this.#pipes.map(({ consumer }) => consumer.stop()));
    });
  }

  // ---- Admin port ----

  async #startAdmin(): Promise<void> {
    const { adminHost, adminNames, adminPort = ADMIN_PORT } = this.#config;
    const log = this.#log;
    const admin = await startAdminServer({
      host: adminHost,
      port: adminPort,
      names: adminNames,
      tokens: this.#tokens,
      log,
      pages: {
        ready: () => {
          const readiness = this.#readiness();
          return { ready: readiness.status === 'ready', body: JSON.stringify(readiness) };
        },
        metrics: async () => this.#metrics.render(await this.#gauges()),
        stats: async () => ({
          role: 'processor',
          readiness: this.#readiness(),
          metrics: await this.#metrics.snapshot(await this.#gauges()),
        }),
      },
    });
    this.#closers.push(() => admin.stop());
  }

  #readiness(): { status: string; checks: Record<string, string> } {
    const isMissing = this.#keeper?.isMissing ?? false;
    const checks = {
      nats: this.#link?.connected && this.#watch?.available ? 'ok' : 'away',
      streams: isMissing ? 'missing' : 'ok',
      sink: this.#isSinkFailing ? 'failing' : 'ok',
      dead_letters: this.#deadLetters?.failing ? 'failing' : 'ok',
      ...this.#sink?.states(),
    };
    return { status: this.#ready && !isMissing ? 'ready' : 'not ready', checks };
  }

  get #isSinkFailing(): boolean {
    return this.#sink?.isFailing || this.#pipes.some(({ consumer }) => consumer.failing);
  }

  async #gauges(): Promise<ProcessorGauges> {
    // Frames that the sink holds count as lag only if the sink cannot store them.
    const isFailing = this.#sink?.isFailing ?? false;
    const oldest = Math.min(
      ...this.#pipes.map(({ queue: { frames } }) =>
        Math.min(frames.oldest, isFailing ? frames.oldestHeld : Infinity),
      ),
    );
    const lagSeconds = Number.isFinite(oldest) ? Math.max(0, this.#clock.now() - oldest) / 1000 : 0;
    const pending = this.#link?.connected
      ? await pendingMessages(this.#link, frameStreamNames(this.#config))
      : {};
    const droppedDeadLetters = this.#deadLetters?.dropped ?? 0;
    const { natsCredsFile: file } = this.#config;
    const expiry = file === undefined ? undefined : credsExpiry(file);
    const broker = [...(this.#watch?.health() ?? []), ...(this.#keeper?.expose() ?? [])];
    const counts = this.#lostCounts?.expose() ?? [];
    const sinks = this.#sink?.health ?? [];
    const ofProcess = await this.#processFigures.snapshot('processor');
    return {
      lagSeconds,
      pendingMessages: pending,
      droppedDeadLetters,
      refusedTokens: this.#tokens.refused,
      credsExpiry: expiry,
      sinks,
      ofProcess,
      broker: [...broker, ...counts],
    };
  }

  async stop(): Promise<void> {
    this.#ready = false;
    const closed = (async () => {
      for (const close of this.#closers.splice(0).reverse()) await close();
    })();
    if ((await orLate(closed, SHUTDOWN_MS_MAX, 'late')) === 'late')
      this.#log.warn('processor did not finish in time; what is unfinished will be delivered again');
  }
}

/**
 * Starts the processor. Waits for NATS as long as necessary.
 * @throws SinkSettingError, FolderTakenError, JournalError; PortError when the admin port is taken
 */
export async function runProcessor(
  config: Config,
  log: Log,
  options: ProcessorOptions = {},
): Promise<RunningProcessor> {
  const processor = new Processor(config, log, options);
  try {
    await processor.start(options.sink);
  } catch (error) {
    await processor.stop();
    throw error;
  }
  if (config.env === 'development') giveBackMemoryOfStart();
  log.info({ streams: frameStreamNames(config).length }, 'processor started');
  return processor;
}
