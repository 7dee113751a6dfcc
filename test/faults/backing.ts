/** What our processes stand on, and may lose: Redis, a broker or a cluster of three, the sink's store, the ways to them, disks and clocks. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { NatsCluster } from '../support/nats-cluster.ts';
import { lastingPort, natsServer, redisServer, type TestServer } from '../support/servers.ts';
import { SmallDisk } from '../support/small-disk.ts';
import { StepClock } from '../support/step-clock.ts';
import { TcpProxy, type Weather } from '../support/tcp-proxy.ts';
import { STORES, type Store, type StoreName } from './stores.ts';

/** Megabytes; large enough for what a run of ten minutes under attacks leaves there. */
const DISK_MB = { nats: 256, sink: 2_048, redis: 128, spool: 24 } as const;
export type DiskName = keyof typeof DISK_MB;
export type ClockName = 'redis' | 'ingest' | 'processor';
/** Which way's weather is spoiled. `nats` is the way of the ingest workers; on a cluster the processors go there too. */
export type Way = 'redis' | 'nats' | 'processor to nats' | 'sink';

export type BackingOptions = {
  cluster?: boolean;
  /** Of the sink, in place of a folder of ndjson files. */
  store?: StoreName;
  /** Names what is on a small disk of its own: the broker's store, the sink, Redis's files, the spool. */
  smallDisks?: readonly DiskName[];
  /** Clocks of Redis, of the first primary with its workers, and of the processors, that can be stepped. */
  clocks?: boolean;
};

export class Backing {
  readonly #dir: string;
  redis!: TestServer;
  /** Undefined on a cluster. */
  nats: TestServer | undefined;
  cluster: NatsCluster | undefined;
  /** Undefined where the sink is ndjson. */
  store: Store | undefined;
  readonly #proxies = new Map<Way, readonly TcpProxy[]>();
  readonly #disks = new Map<DiskName, SmallDisk>();
  readonly #clocks = new Map<ClockName, StepClock>();

  private constructor(dir: string) {
    this.#dir = dir;
  }

  /** @param dir for what needs no disk of its own; the caller removes it */
  static async start(dir: string, options: BackingOptions): Promise<Backing> {
    const backing = new Backing(dir);
    try {
      await backing.#start(options);
    } catch (error) {
      await backing.close();
      throw error;
    }
    return backing;
  }

  async #start({ cluster, store, smallDisks, clocks }: BackingOptions): Promise<void> {
    for (const name of smallDisks ?? []) this.#disks.set(name, new SmallDisk(DISK_MB[name]));
    if (clocks)
      for (const name of ['redis', 'ingest', 'processor'] as const) this.#clocks.set(name, new StepClock());
    this.redis = await this.#startRedis({ port: await lastingPort(), dir: this.#folder('redis') });
    this.#proxies.set('redis', [await TcpProxy.start(this.redis.port)]);
    if (cluster) {
      this.cluster = await NatsCluster.start();
      this.#proxies.set('nats', this.cluster.clientProxies);
    } else {
      this.nats = await natsServer({ port: await lastingPort(), dir: this.#folder('nats') });
      this.#proxies.set('nats', [await TcpProxy.start(this.nats.port)]);
      this.#proxies.set('processor to nats', [await TcpProxy.start(this.nats.port)]);
    }
    if (!store) return;
    this.store = await STORES[store](this.#disks.get('sink')?.dir);
    this.#proxies.set('sink', [await TcpProxy.start(this.store.server.port)]);
  }

  /** On the small disk of this name where there is one. */
  #folder(name: DiskName): string {
    const folder = join(this.#disks.get(name)?.dir ?? this.#dir, name);
    mkdirSync(folder, { recursive: true });
    return folder;
  }

  // ---- Where they are ----

  /** Straight to the broker. */
  get natsUrls(): string[] {
    return this.cluster?.urls ?? [this.nats?.url ?? ''];
  }

  get sinkDir(): string {
    return this.#folder('sink');
  }

  get spoolDir(): string {
    return this.#folder('spool');
  }

  #proxied(way: Way, scheme: string): string {
    const proxies = this.#proxies.get(way) ?? [];
    return proxies.map(({ port }) => `${scheme}://127.0.0.1:${port}`).join(',');
  }

  /** Settings that lead through the proxies. */
  settings(who: 'ingest' | 'processor'): Record<string, string> {
    const way = who === 'processor' && !this.cluster ? 'processor to nats' : 'nats';
    const [sink] = this.#proxies.get('sink') ?? [];
    return {
      SLUICE_REDIS_URL: this.#proxied('redis', 'redis'),
      SLUICE_NATS_URL: this.#proxied(way, 'nats'),
      SLUICE_SINK: (sink && this.store?.setting(sink.port)) ?? `ndjson:${this.sinkDir}`,
      SLUICE_SPOOL_DIR: this.spoolDir,
    };
  }

  // ---- What can be spoiled ----

  hasDisk(name: DiskName): boolean {
    return this.#disks.has(name);
  }

  get hasClocks(): boolean {
    return this.#clocks.size > 0;
  }

  weather(way: Way, weather: Weather): void {
    for (const proxy of this.#proxies.get(way) ?? []) proxy.weather = weather;
  }

  /** Every connection of this way is reset. */
  cut(way: Way): void {
    for (const proxy of this.#proxies.get(way) ?? []) proxy.reset();
  }

  disk(name: DiskName): SmallDisk {
    const disk = this.#disks.get(name);
    if (!disk) throw new Error(`no small disk for ${name} on this stand`);
    return disk;
  }

  /** Undefined where clocks cannot be stepped. */
  clock(name: ClockName): StepClock | undefined {
    return this.#clocks.get(name);
  }

  // ---- After a death ----

  async restartRedis(): Promise<void> {
    this.redis = await this.#startRedis(this.redis);
  }

  #startRedis({ port, dir }: { port: number; dir: string }): Promise<TestServer> {
    return redisServer({ port, dir }, (bin) => this.clock('redis')?.wrapped(bin) ?? bin);
  }

  async restartNats(): Promise<void> {
    const { port, dir } = this.singleBroker;
    this.nats = await natsServer({ port, dir });
  }

  /** @throws on a cluster */
  get singleBroker(): TestServer {
    if (!this.nats) throw new Error('no single broker on this stand');
    return this.nats;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#proxies.values()].flat().map((proxy) => proxy.close()));
    await this.store?.server.close();
    await Promise.all([this.redis?.close(), this.nats?.close(), this.cluster?.close()]);
    for (const part of [...this.#disks.values(), ...this.#clocks.values()]) part.close();
  }
}
