/** What the faults strike: two ingest primaries with two workers each, Redis, a broker or a cluster of three, a processor and its sink. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { nanos } from '@nats-io/transport-node';
import { freePort } from '../../src/dev/servers.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { createLog } from '../../src/lib/log.ts';
import { readUsage } from '../../src/limit/quota-counter.ts';
import { LimitRedis } from '../../src/limit/redis.ts';
import { CounterBucket } from '../../src/registry/counters.ts';
import { type NewProject, ProjectStore } from '../../src/registry/project-store.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { CONSUMER, FRAME_STREAMS, setupTopology, streamName } from '../../src/stream/topology.ts';
import { NatsCluster } from '../support/nats-cluster.ts';
import { TestPostgres } from '../support/postgres.ts';
import { natsServer, redisServer, type TestServer, temporaryFolder } from '../support/servers.ts';
import { REGISTRY_MS_MAX, until } from '../support/system.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import type { ProjectName, ProjectTerms, Stored } from './ledger.ts';
import type { Targets } from './load.ts';
import { readNdjson, readPostgres } from './sink-reader.ts';
import { SmallDisk } from './small-disk.ts';
import { Supervised } from './supervised.ts';
import { Witness } from './witness.ts';

const WORKERS = 2;
const MIB = 1024 * 1024;
/** A killed processor's frames come again after this rather than after twice as long. */
const ACK_WAIT_MS = 5_000;
const START_MS_MAX = 30_000;
const NATS_DISK_MB = 256;
const SINK_DISK_MB = 64;
export const DRAIN_MS_MAX = 90_000;

const log = createLog('silent');

export type StandOptions = {
  cluster?: boolean;
  /** Of each stream. */
  maxBytes?: number;
  /** PostgreSQL, instead of a folder of ndjson files. */
  postgres?: boolean;
  /** The broker's store and the ndjson sink stand on small disks of their own. */
  smallDisks?: boolean;
};

export type Projects = { terms: Readonly<Record<ProjectName, ProjectTerms>>; targets: Targets };

export class Stand {
  readonly dir = temporaryFolder('faults');
  sinkDir = join(this.dir, 'sink');
  /** With `smallDisks`. */
  natsDisk: SmallDisk | undefined;
  sinkDisk: SmallDisk | undefined;
  redis!: TestServer;
  /** Undefined on a cluster. */
  nats: TestServer | undefined;
  cluster: NatsCluster | undefined;
  redisProxy!: TcpProxy;
  /** On the way of the ingest workers; the processor and we go straight. Undefined on a cluster. */
  natsProxy: TcpProxy | undefined;
  /** Between the processor and PostgreSQL; undefined with an ndjson sink. */
  sinkProxy: TcpProxy | undefined;
  #postgres: TestPostgres | undefined;
  link!: NatsLink;
  witness!: Witness;
  ports: number[] = [];
  #adminPorts: number[] = [];
  #env: Record<string, string> = {};
  ingest: Supervised[] = [];
  processor!: Supervised;

  static async start(options: StandOptions = {}): Promise<Stand> {
    const stand = new Stand();
    try {
      await stand.#startServers(options);
      await stand.#startOurs(options);
    } catch (error) {
      await stand.close();
      throw error;
    }
    return stand;
  }

  async #startServers({ cluster, maxBytes = 64 * MIB, smallDisks }: StandOptions): Promise<void> {
    if (smallDisks) {
      this.natsDisk = new SmallDisk(NATS_DISK_MB);
      this.sinkDisk = new SmallDisk(SINK_DISK_MB);
      this.sinkDir = join(this.sinkDisk.dir, 'sink');
    }
    const natsDir = this.natsDisk && join(this.natsDisk.dir, 'store');
    this.redis = await redisServer();
    this.redisProxy = await TcpProxy.start(this.redis.port);
    if (cluster) this.cluster = await NatsCluster.start();
    else {
      const again = natsDir === undefined ? undefined : { dir: natsDir, port: await freePort() };
      this.nats = await natsServer(again);
      this.natsProxy = await TcpProxy.start(this.nats.port);
    }
    this.link = await NatsLink.connect({ urls: this.#natsUrls, name: 'faults', log });
    const topology = { replicas: cluster ? 3 : 1, shards: 1, maxBytes };
    this.witness = new Witness(this.link);
    // A cluster that has just started has no leader yet.
    await until(() => setupTopology(this.link, topology).then(Boolean, () => false), START_MS_MAX);
    const manager = await this.link.manager();
    for (const stream of this.#streams)
      await manager.consumers.update(stream, CONSUMER, { ack_wait: nanos(ACK_WAIT_MS) });
  }

  get #natsUrls(): string[] {
    return this.cluster?.urls ?? [this.nats?.url ?? ''];
  }

  get #streams(): string[] {
    return FRAME_STREAMS.map((stream) => streamName(stream, 0, 1));
  }

  /** @returns the setting */
  async #startSink(postgres: boolean): Promise<string> {
    mkdirSync(this.sinkDir, { recursive: true });
    if (!postgres) return `ndjson:${this.sinkDir}`;
    this.#postgres = await TestPostgres.start();
    this.sinkProxy = await TcpProxy.start(this.#postgres.port);
    return `postgres://postgres@127.0.0.1:${this.sinkProxy.port}/postgres`;
  }

  /** What stands in the sink, by event id. */
  stored(): Promise<Map<string, Stored>> {
    return this.#postgres ? readPostgres(this.#postgres.url) : readNdjson(this.sinkDir);
  }

  async #startOurs({ cluster, postgres }: StandOptions): Promise<void> {
    this.ports = [await freePort(), await freePort()];
    this.#adminPorts = [await freePort(), await freePort(), await freePort()];
    this.#env = {
      SLUICE_ENV: 'production',
      SLUICE_WORKERS: `${WORKERS}`,
      SLUICE_PLAN_LIMITS: 'free-only',
      SLUICE_REDIS_URL: `redis://127.0.0.1:${this.redisProxy.port}`,
      SLUICE_NATS_URL: this.natsProxy ? `nats://127.0.0.1:${this.natsProxy.port}` : this.#natsUrls.join(','),
      SLUICE_STREAM_REPLICAS: cluster ? '3' : '1',
      SLUICE_SINK: await this.#startSink(postgres ?? false),
      SLUICE_LOG_LEVEL: 'warn',
    };
    this.ingest = this.ports.map((port, n) => {
      const own = { SLUICE_PORT: `${port}`, SLUICE_ADMIN_PORT: `${this.#adminPorts[n]}` };
      return new Supervised(['ingest'], { ...this.#env, ...own });
    });
    this.processor = new Supervised(['processor'], {
      ...this.#env,
      SLUICE_NATS_URL: this.#natsUrls.join(','),
      SLUICE_ADMIN_PORT: `${this.#adminPorts[2]}`,
    });
    await this.ready();
  }

  /** Resolves when everything says that it is ready. */
  async ready(): Promise<void> {
    const isReady = (port: number): Promise<boolean> =>
      fetch(`http://127.0.0.1:${port}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    const all = [...this.#adminPorts, ...this.ports];
    await until(async () => (await Promise.all(all.map(isReady))).every(Boolean), START_MS_MAX);
  }

  /** Fresh ones, known to every worker. */
  async createProjects(capped: number): Promise<Projects> {
    const store = await ProjectStore.open(this.link);
    const base: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
    const wanted = {
      open: {},
      limited: { rateLimit: 240 },
      leased: { rateLimit: 2_000 },
      capped: { quota: capped },
    };
    const terms: Partial<Record<ProjectName, ProjectTerms>> = {};
    const targets: Partial<Record<ProjectName, string>> = {};
    for (const [name, own] of Object.entries(wanted) as [
      ProjectName,
      { rateLimit?: number; quota?: number },
    ][]) {
      const { id, key } = await store.create({ ...base, ...own });
      terms[name] = {
        id,
        ...(own.rateLimit !== undefined && { ratePerMinute: own.rateLimit }),
        ...(own.quota !== undefined && { quota: own.quota }),
      };
      targets[name] = `/api/${id}/envelope/?compat_key=${key}`;
    }
    await pause(REGISTRY_MS_MAX);
    return { terms, targets } as Projects;
  }

  /** This month's usage as it stands in Redis; where that has none, the checkpoint from which counting would resume. */
  async usage(terms: Projects['terms']): Promise<Record<ProjectName, number>> {
    const redis = new LimitRedis({ urls: [this.redis.url], log, clock: systemClock });
    await redis.connect();
    try {
      const names = Object.keys(terms) as ProjectName[];
      const checkpoints = new CounterBucket({ link: this.link, log });
      const usageOf = async (id: string): Promise<number> => {
        const { month, count } = await readUsage(redis, id);
        return count ?? (await checkpoints.read(id, month)) ?? 0;
      };
      const counts = await Promise.all(names.map((name) => usageOf(terms[name].id)));
      return Object.fromEntries(names.map((name, n) => [name, counts[n]])) as Record<ProjectName, number>;
    } finally {
      await redis.close();
    }
  }

  /**
   * Resolves when the processor has acknowledged every frame. That the streams are empty then is not asked: a broker that was killed may
   * keep messages that are acknowledged ({@link leftovers}).
   * @returns seconds that it took; undefined: not within DRAIN_MS_MAX
   */
  async drained(): Promise<number | undefined> {
    const from = performance.now();
    const manager = await this.link.manager();
    const isDone = async (stream: string): Promise<boolean> => {
      const { num_pending, num_ack_pending } = await manager.consumers.info(stream, CONSUMER);
      return num_pending === 0 && num_ack_pending === 0;
    };
    const allDone = async (): Promise<boolean> =>
      (await Promise.all(this.#streams.map(isDone))).every(Boolean);
    const done = until(() => allDone().catch(() => false), DRAIN_MS_MAX);
    return done.then(
      () => (performance.now() - from) / 1000,
      () => undefined,
    );
  }

  /** Of every stream that is not empty, what the broker says of it and of its consumer. */
  async leftovers(): Promise<{ messages: number; text: string }[]> {
    const manager = await this.link.manager();
    const found = await Promise.all(
      this.#streams.map(async (stream) => {
        const { state, cluster } = await manager.streams.info(stream);
        const { ts: _ts, config: _config, ...consumer } = await manager.consumers.info(stream, CONSUMER);
        return {
          messages: state.messages,
          text: `${stream} ${JSON.stringify({ state, cluster, consumer })}`,
        };
      }),
    );
    return found.filter(({ messages }) => messages > 0);
  }

  async deadLetters(): Promise<number> {
    const { state } = await (await this.link.manager()).streams.info('SLUICE_DEAD_LETTERS');
    return state.messages;
  }

  /** A counter, summed over both primaries. */
  async metric(name: string): Promise<number> {
    const texts = await Promise.all(
      this.#adminPorts
        .slice(0, 2)
        .map(async (port) => (await fetch(`http://127.0.0.1:${port}/metrics`)).text()),
    );
    return texts
      .flatMap((text) => text.split('\n'))
      .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }

  /** Settings of a command that is run against this stand. */
  get env(): Record<string, string> {
    return { ...this.#env, SLUICE_REDIS_URL: this.redis.url, SLUICE_NATS_URL: this.#natsUrls.join(',') };
  }

  async close(): Promise<void> {
    await Promise.all([...this.ingest, this.processor].map((part) => part?.stop()));
    await this.link?.close();
    await Promise.all([this.redisProxy?.close(), this.natsProxy?.close(), this.sinkProxy?.close()]);
    await this.#postgres?.close();
    await Promise.all([this.redis?.close(), this.nats?.close(), this.cluster?.close()]);
    this.natsDisk?.close();
    this.sinkDisk?.close();
    rmSync(this.dir, { recursive: true, force: true });
  }
}
