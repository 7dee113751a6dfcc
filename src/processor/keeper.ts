import { setTimeout as pause } from 'node:timers/promises';
import type { StreamInfo } from '@nats-io/jetstream';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { counter, gauge, type MetricsSnapshot } from '../lib/metrics/metrics.ts';
import { KEEP_LOOK_MS, LOPSIDED_MS_MAX } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { balanceLeaders, isLopsided } from '../stream/setup/leaders.ts';
import { orMissing } from '../stream/setup/setup-error.ts';
import type { WantedStream } from '../stream/setup/setup-run.ts';
import type { StreamWatch } from '../stream/stream-watch.ts';

type KeeperOptions = {
  link: NatsLink;
  watch: StreamWatch;
  wanted: readonly WantedStream[];
  clock: Clock;
  log: Log;
  lookMs?: number;
};

/**
 * Creates streams and consumers again that somebody deleted while the processor runs.
 *
 * A missing consumer is always created again. It begins with the first frame of its stream. No
 * frame is lost, because a stream keeps each frame until it is acknowledged. The sink recognises
 * frames that it has.
 *
 * A missing stream is created again only if this process saw it before; its frames are lost. A
 * stream that was never there is left to setup, which may give it other bounds. Buckets are never
 * created: an empty bucket would make workers refuse every key.
 *
 * When one server of a cluster has led more than half of the streams for LOPSIDED_MS_MAX, some of
 * its leaders are asked to step down. Processors wait for different times, so that one of them
 * begins before the others.
 */
export class Keeper {
  readonly #options: KeeperOptions;
  readonly #lookMs: number;
  readonly #seen = new Set<string>();
  readonly #missingConsumers = new Set<string>();
  /** Streams and consumers that could not be created. Each of these failures is logged once. */
  readonly #failing = new Set<string>();
  /** How often each stream and consumer was created again. */
  readonly #made: Map<string, number>;
  /**
   * When one server began to lead more than half of the streams, plus a random time, monotonic ms;
   * undefined when none does.
   */
  #lopsidedSince: number | undefined;
  readonly #stopping = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor(options: KeeperOptions) {
    this.#options = options;
    this.#lookMs = options.lookMs ?? KEEP_LOOK_MS;
    const names = options.wanted.flatMap((wanted) => [wanted.config.name, ...consumerNames(wanted)]);
    this.#made = new Map(names.map((name) => [name, 0]));
  }

  /** Looks for the first time, and then every `lookMs`. Resolves after the first look. */
  async start(): Promise<void> {
    await this.#look();
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  /** Whether a stream or a consumer that the processor needs is missing. */
  get isMissing(): boolean {
    const { wanted, watch } = this.#options;
    return this.#missingConsumers.size > 0 || wanted.some(({ config }) => watch.missing.has(config.name));
  }

  expose(): MetricsSnapshot {
    const consumers = this.#options.wanted.flatMap(consumerNames);
    return [
      gauge(
        'sluice_consumer_missing',
        'Consumers that do not exist: 1',
        consumers.map((name) => [{ name }, Number(this.#missingConsumers.has(name))] as const),
      ),
      counter(
        'sluice_jetstream_restored_total',
        'Streams and consumers that were deleted and made again',
        [...this.#made].map(([name, count]) => [{ name }, count] as const),
      ),
    ];
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      await pause(this.#lookMs, undefined, { signal, ref: false }).catch(() => undefined);
      if (!signal.aborted && this.#options.link.connected) await this.#look();
    }
  }

  /**
   * Looks for missing streams and consumers. Never rejects: the watch tells when JetStream does not
   * answer.
   */
  async #look(): Promise<void> {
    const { watch, wanted } = this.#options;
    const infos = await watch.look().catch(() => undefined);
    if (!infos) return;
    for (const { config } of infos) {
      this.#seen.add(config.name);
      this.#failing.delete(config.name);
    }
    const gone = wanted.filter(({ config }) => watch.missing.has(config.name));
    for (const one of gone) await this.#keepStream(one);
    const present = new Set(infos.map(({ config }) => config.name));
    await Promise.all(
      wanted.filter(({ config }) => present.has(config.name)).map((one) => this.#keepConsumer(one)),
    );
    if (gone.length > 0) await watch.look().catch(() => undefined);
    await this.#spreadLeaders(infos);
  }

  async #spreadLeaders(infos: readonly StreamInfo[]): Promise<void> {
    const { link, wanted, clock, log } = this.#options;
    const replicated = infos.filter(({ config, cluster }) => config.num_replicas > 1 && cluster?.leader);
    if (!isLopsided(replicated.map(({ cluster }) => `${cluster?.leader}`))) {
      this.#lopsidedSince = undefined;
      return;
    }
    const now = clock.monotonic();
    this.#lopsidedSince ??= now + (Math.random() * LOPSIDED_MS_MAX) / 4;
    if (now - this.#lopsidedSince < LOPSIDED_MS_MAX) return;
    this.#lopsidedSince = undefined;
    try {
      const moved = await balanceLeaders(link, wanted, this.#stopping.signal);
      if (moved.length > 0)
        log.info({ moved }, 'processor: asked a leader to step down, so that servers share the streams');
    } catch (err) {
      log.warn({ err }, 'processor: leaders cannot be moved: run sluice setup --balance');
    }
  }

  async #keepStream(wanted: WantedStream): Promise<void> {
    const { name } = wanted.config;
    if (!this.#seen.has(name)) return this.#fails(name, new Error('it was never there'));
    const isMade = await this.#make(name, async () => {
      await (await this.#options.link.manager()).streams.add(wanted.config);
    });
    if (isMade) await this.#keepConsumer(wanted);
  }

  async #keepConsumer(wanted: WantedStream): Promise<void> {
    const { config, consumer } = wanted;
    const [name] = consumerNames(wanted);
    if (!consumer || !name) return;
    try {
      const { consumers } = await this.#options.link.manager();
      if (await orMissing(consumers.info(config.name, consumer.durable_name))) {
        this.#missingConsumers.delete(name);
        this.#failing.delete(name);
        return;
      }
    } catch {
      return; // no answer: the consumer may exist
    }
    this.#missingConsumers.add(name);
    const isMade = await this.#make(name, async () => {
      await (await this.#options.link.manager()).consumers.add(config.name, consumer);
    });
    if (isMade) this.#missingConsumers.delete(name);
  }

  async #make(name: string, work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
    } catch (error) {
      this.#fails(name, error);
      return false;
    }
    this.#failing.delete(name);
    this.#made.set(name, (this.#made.get(name) ?? 0) + 1);
    this.#options.log.warn({ name }, 'processor: made again what somebody deleted');
    return true;
  }

  #fails(name: string, err: unknown): void {
    if (this.#failing.has(name)) return;
    this.#failing.add(name);
    this.#options.log.error({ name, err }, 'processor: missing, and cannot be made: run sluice setup');
  }
}

/**
 * The consumer's name in logs and metrics, `SLUICE_EVENTS/processor`; none for a stream that the
 * processor does not read.
 */
const consumerNames = ({ config, consumer }: WantedStream): string[] =>
  consumer ? [`${config.name}/${consumer.durable_name}`] : [];
