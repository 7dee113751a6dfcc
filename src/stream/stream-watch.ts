import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import type { Clock } from '../lib/clock.ts';
import { orLate } from '../lib/late.ts';
import { gauge, type MetricsSnapshot, type Sample } from '../lib/metrics/metrics.ts';
import { hasLeader, type NatsLink } from './nats.ts';
import { orMissing } from './setup/setup-error.ts';

type StreamWatchOptions = {
  /** Rejects while NATS is away. */
  nats: () => Promise<NatsLink>;
  clock: Clock;
  /** Names of the streams to watch. The metrics show the fill of each. */
  streams: readonly string[];
  /** Names of buckets. The stream behind each bucket is watched too, without its fill. */
  buckets: readonly string[];
};

/** Number of up-to-date copies of a stream, including the leader's; 0 while it has no leader. */
export function currentReplicas({ cluster, config }: StreamInfo): number {
  if (cluster?.name === undefined) return config.num_replicas;
  if (!cluster.leader) return 0;
  return 1 + (cluster.replicas ?? []).filter(({ current, offline }) => current && !offline).length;
}

/**
 * Watches the streams and buckets of sluice: their fill (bytes and age), replicas and leaders, and
 * which are missing.
 *
 * The broker is asked for each stream by its name. A cluster's list of streams takes four seconds,
 * and silently omits the streams whose leader does not answer.
 */
export class StreamWatch {
  readonly #options: StreamWatchOptions;
  /** The request under way, which all callers share, so that a broker that hangs is asked once. */
  #asking: Promise<readonly StreamInfo[]> | undefined;
  #available = false;
  /** The newest information on each stream, even if the stream no longer answers. */
  readonly #known = new Map<string, StreamInfo>();
  /** Streams that had a leader in the last look. */
  #answering: readonly StreamInfo[] = [];
  #missing: ReadonlySet<string> = new Set();

  constructor(options: StreamWatchOptions) {
    this.#options = options;
  }

  /**
   * Whether JetStream answered the last look. An answer in which no stream has a leader does not
   * count.
   */
  get available(): boolean {
    return this.#available;
  }

  /** Streams and buckets that did not exist according to the broker's last answer. */
  get missing(): ReadonlySet<string> {
    return this.#missing;
  }

  /**
   * Asks the broker.
   * @returns the streams that have a leader
   * @throws when JetStream does not answer, or no stream has a leader
   */
  look(): Promise<readonly StreamInfo[]> {
    this.#asking ??= this.#ask()
      .then(
        (infos) => this.#keep(infos, true),
        (error: unknown) => {
          this.#keep([], false);
          throw error;
        },
      )
      .finally(() => {
        this.#asking = undefined;
      });
    return this.#asking;
  }

  /**
   * Asks the broker and returns metrics. When the broker does not answer within `waitMs`, the fill
   * of the streams is omitted, and the rest is from the last look that has ended.
   */
  async snapshot(waitMs: number): Promise<MetricsSnapshot> {
    const look = this.look().catch(() => undefined);
    const infos = await orLate(look, waitMs, undefined);
    return [...this.health(), ...(infos ? this.#exposeFill(infos) : [])];
  }

  get #names(): string[] {
    return [...this.#options.streams, ...this.#options.buckets.map((bucket) => `KV_${bucket}`)];
  }

  async #ask(): Promise<StreamInfo[]> {
    const { streams } = await (await this.#options.nats()).manager();
    const missing = new Set<string>();
    const asked = this.#names.map(async (name) => {
      const info = await orMissing(streams.info(name));
      if (!info) missing.add(name);
      return info;
    });
    const answers = await Promise.allSettled(asked);
    const refusal = answers.find((answer) => answer.status === 'rejected');
    if (refusal && answers.every(({ status }) => status === 'rejected')) throw refusal.reason;
    this.#missing = missing;
    const infos = answers.flatMap((answer) => (answer.status === 'fulfilled' ? (answer.value ?? []) : []));
    const led = infos.filter(hasLeader);
    if (infos.length > 0 && led.length === 0) throw new Error('no stream has a leader');
    return led;
  }

  #keep(infos: readonly StreamInfo[], available: boolean): readonly StreamInfo[] {
    this.#available = available;
    this.#answering = infos;
    for (const info of infos) this.#known.set(info.config.name, info);
    for (const name of this.#missing) this.#known.delete(name);
    return infos;
  }

  /** Metrics of the last look, without the fill. */
  health(): MetricsSnapshot {
    const answering = new Map(this.#answering.map((info) => [info.config.name, info]));
    const known = [...this.#known.values()];
    const leaders = this.#answering.flatMap(({ cluster, config }): Sample[] =>
      cluster?.name && cluster.leader ? [[{ stream: config.name, server: cluster.leader }, 1]] : [],
    );
    return [
      gauge('sluice_jetstream_available', 'Whether JetStream answers this process', [
        [{}, Number(this.#available)],
      ]),
      gauge(
        'sluice_jetstream_missing',
        'Streams and buckets that do not exist: 1',
        this.#names.map((name): Sample => [{ name }, Number(this.#missing.has(name))]),
      ),
      gauge(
        'sluice_stream_replicas',
        'Copies that a stream should have',
        known.map(({ config }): Sample => [{ stream: config.name }, config.num_replicas]),
      ),
      gauge(
        'sluice_stream_replicas_current',
        'Copies that have all of a stream; 0 while it has no leader',
        known.map(({ config: { name } }): Sample => {
          const info = answering.get(name);
          return [{ stream: name }, info ? currentReplicas(info) : 0];
        }),
      ),
      gauge('sluice_stream_leader', 'The server that leads a stream: 1', leaders),
    ];
  }

  #exposeFill(all: readonly StreamInfo[]): MetricsSnapshot {
    const infos = all.filter(({ config }) => this.#options.streams.includes(config.name));
    const samples = (figure: (info: StreamInfo) => number): Sample[] =>
      infos.map((info) => [{ stream: info.config.name }, figure(info)]);
    const now = this.#options.clock.now();
    const age = ({ state }: StreamInfo): number =>
      state.messages === 0 ? 0 : Math.max(0, now - Date.parse(state.first_ts)) / 1000;
    return [
      gauge(
        'sluice_stream_bytes',
        'Bytes that a stream holds',
        samples(({ state }) => state.bytes),
      ),
      gauge(
        'sluice_stream_max_bytes',
        'Bytes that a stream may hold; -1: no bound',
        samples(({ config }) => config.max_bytes),
      ),
      gauge(
        'sluice_stream_oldest_message_age_seconds',
        'Age of the oldest message in a stream, 0 when it is empty',
        samples(age),
      ),
    ];
  }
}

/**
 * Names of the wanted streams that exist. In a cluster the list includes streams whose leader does
 * not answer.
 */
export async function streamNames(
  { streams }: JetStreamManager,
  isWanted: (name: string) => boolean,
): Promise<string[]> {
  const names: string[] = [];
  for await (const name of streams.names()) if (isWanted(name)) names.push(name);
  return names;
}

/**
 * The broker's information on each wanted stream that exists.
 * @throws when one of the streams does not answer
 */
export async function streamInfos(
  manager: JetStreamManager,
  isWanted: (name: string) => boolean,
): Promise<StreamInfo[]> {
  const names = await streamNames(manager, isWanted);
  return Promise.all(names.map((name) => manager.streams.info(name)));
}
