/**
 * The system under test as it runs in production: Redis, nats-server, `sluice ingest` and `sluice processor` as processes of their
 * own on free loopback ports, with fresh data, and what each of them used.
 *
 * The code under test is a build folder (`dist`), so that the same harness can run another version (compare.ts). Streams and projects are
 * made with that version's own modules.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { freePort, type RunningServer, startRedis } from '../src/commands/dev/servers.ts';
import { childEnvironment } from '../src/config.ts';
import type { NewProject } from '../src/projects/project-store.ts';
import {
  type BrokerOptions,
  type BrokerPlace,
  brokerPlaces,
  startBrokerAt,
  withLastWords,
} from './broker.ts';
import { childrenOf, cpuUs, peakRssBytes } from './processes.ts';
import { type Samples, scrape, total } from './scrape.ts';
import type { Target } from './workload.ts';

const MIB = 1024 * 1024;
/** Per stream: nothing that a bench sends may meet a full one. The broker reserves it, so a smoke run asks for less. */
export const STREAM_BYTES_FULL = 2048 * MIB;
export const STREAM_BYTES_SMOKE = 128 * MIB;
const READY_MS_MAX = 20_000;
/** A worker has seen a new project after this. */
const REGISTRY_MS = 1_000;
const CREATES_IN_FLIGHT = 64;

export type HarnessOptions = {
  /** Build folder of the version under test. */
  dist: string;
  bins: { redis: string; nats: string };
  workers?: number | undefined;
  broker?: BrokerOptions | undefined;
  /** Of each stream; default {@link STREAM_BYTES_FULL}. */
  streamMaxBytes?: number | undefined;
  /** A value of SLUICE_SINK; default: files in a folder of the harness. */
  sink?: string | undefined;
};

/** CPU in microseconds and peak memory in bytes, by part. */
export type Part = 'worker' | 'redis' | 'broker' | 'processor';
export type Usage = Record<Part, number>;

export class Harness {
  readonly #options: HarnessOptions;
  readonly #dir = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  #redis: RunningServer | undefined;
  #brokerPlaces: BrokerPlace[] = [];
  #brokers: RunningServer[] = [];
  #ingest: ChildProcess | undefined;
  #processor: ChildProcess | undefined;
  #ports = { http: 0, admin: 0, processor: 0 };

  private constructor(options: HarnessOptions) {
    this.#options = options;
  }

  /** Everything but the processor. @throws when a part does not come up */
  static async start(options: HarnessOptions): Promise<Harness> {
    const harness = new Harness(options);
    try {
      await harness.#start();
      return harness;
    } catch (error) {
      await harness.stop();
      throw await withLastWords(error, harness.#brokers[0]);
    }
  }

  get url(): string {
    return `http://127.0.0.1:${this.#ports.http}`;
  }
  /** Of all servers, as SLUICE_NATS_URL has them. */
  get natsUrl(): string {
    return this.#brokers.map(({ url }) => url).join(',');
  }
  get redisUrl(): string {
    return this.#redis?.url ?? '';
  }

  async #start(): Promise<void> {
    const { bins, broker = {}, streamMaxBytes: maxBytes = STREAM_BYTES_FULL } = this.#options;
    this.#redis = await startRedis(bins.redis, join(this.#dir, 'redis'));
    this.#brokerPlaces = await brokerPlaces(this.#dir, broker);
    await this.startBrokers();
    this.#ports = { http: await freePort(), admin: await freePort(), processor: await freePort() };
    const link = await this.#connect();
    const { setupTopology } = await this.#module<typeof import('../src/stream/setup/setup.ts')>(
      'stream/setup/setup.js',
      'stream/topology.js',
    );
    const topology = { replicas: this.#brokers.length, shards: 1, maxBytes };
    const setup = () => setupTopology(link, topology, { emptyBuckets: true });
    // A cluster answers before it has a leader.
    if (this.#brokers.length > 1) await until(() => setup().then(Boolean, () => false));
    else await setup();
    await link.close();
    this.#ingest = this.#command('ingest', this.#ports.admin);
    await ready(this.#ingest, `${this.url}/readyz`);
  }

  /** @param count the first ones; again, once they have ended. Default: all */
  async startBrokers(count = this.#brokerPlaces.length): Promise<void> {
    const { bins, broker = {} } = this.#options;
    const places = this.#brokerPlaces.slice(0, count);
    const started = await Promise.all(places.map((place) => startBrokerAt(bins.nats, place, broker)));
    this.#brokers = [...started, ...this.#brokers.slice(count)];
  }

  /** @param before where builds up to 0.2.0 have it */
  #module<T>(path: string, before = path): Promise<T> {
    const { dist } = this.#options;
    const found = existsSync(join(dist, path)) ? path : before;
    return import(pathToFileURL(join(dist, found)).href) as Promise<T>;
  }

  async #connect(): Promise<import('../src/stream/nats.ts').NatsLink> {
    const { NatsLink } = await this.#module<typeof import('../src/stream/nats.ts')>('stream/nats.js');
    const { createLog } = await this.#module<typeof import('../src/lib/log.ts')>('lib/log.js');
    return NatsLink.connect({ urls: this.natsUrl.split(','), name: 'bench', log: createLog('silent') });
  }

  #command(name: 'ingest' | 'processor', adminPort: number): ChildProcess {
    const env = childEnvironment({
      SLUICE_ENV: 'production',
      SLUICE_HOST: '127.0.0.1',
      SLUICE_PORT: `${this.#ports.http}`,
      SLUICE_ADMIN_PORT: `${adminPort}`,
      SLUICE_WORKERS: `${this.#options.workers ?? 1}`,
      SLUICE_REDIS_URL: this.redisUrl,
      SLUICE_NATS_URL: this.natsUrl,
      SLUICE_PLAN_LIMITS: 'free-only',
      SLUICE_STREAM_MAX_BYTES: `${this.#options.streamMaxBytes ?? STREAM_BYTES_FULL}`,
      SLUICE_SINK: this.#options.sink ?? `ndjson:${join(this.#dir, 'sink')}`,
      SLUICE_SPOOL_DIR: this.#dir,
      SLUICE_LOG_LEVEL: 'error',
    });
    return fork(join(this.#options.dist, 'cli.js'), [name], {
      env,
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
  }

  async startProcessor(): Promise<void> {
    this.#processor = this.#command('processor', this.#ports.processor);
    await ready(this.#processor, `http://127.0.0.1:${this.#ports.processor}/readyz`);
  }

  signalProcessor(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#processor?.kill(signal);
  }

  /** Creates projects and waits until every worker knows them. */
  async createProjects(wanted: readonly NewProject[]): Promise<Target[]> {
    const link = await this.#connect();
    // Builds to compare with may have it where it was before.
    const folder = existsSync(join(this.#options.dist, 'projects')) ? 'projects' : 'registry';
    const { ProjectStore } = await this.#module<typeof import('../src/projects/project-store.ts')>(
      `${folder}/project-store.js`,
    );
    const store = await ProjectStore.open(link);
    const targets: Target[] = [];
    for (let at = 0; at < wanted.length; at += CREATES_IN_FLIGHT) {
      const made = await Promise.all(
        wanted.slice(at, at + CREATES_IN_FLIGHT).map((project) => store.create(project)),
      );
      targets.push(...made.map(({ id, key }) => ({ id, key })));
    }
    await link.close();
    await new Promise((resolve) => setTimeout(resolve, REGISTRY_MS));
    return targets;
  }

  /** `primary` forks the workers, and takes no requests. */
  pids(): Record<Part | 'primary', number[]> {
    return {
      primary: [this.#ingest?.pid ?? 0],
      worker: childrenOf(this.#ingest?.pid ?? 0),
      redis: [this.#redis?.pid ?? 0],
      broker: this.#brokers.map(({ pid }) => pid),
      processor: this.#processor ? [this.#processor.pid ?? 0] : [],
    };
  }

  #sum(measure: (pid: number) => number): Usage {
    const pids = this.pids();
    const sum = (part: Part): number => pids[part].reduce((all, pid) => all + measure(pid), 0);
    return { worker: sum('worker'), redis: sum('redis'), broker: sum('broker'), processor: sum('processor') };
  }

  cpu(): Usage {
    return this.#sum(cpuUs);
  }
  peakRss(): Usage {
    return this.#sum(peakRssBytes);
  }
  /** From now on {@link peakRss} is about what comes. */
  forgetPeaks(): void {
    for (const pid of Object.values(this.pids()).flat()) writeFileSync(`/proc/${pid}/clear_refs`, '5');
  }
  /** Of the streams on the disk, of one server. */
  streamBytes(): number {
    const dir = this.#brokerPlaces[0]?.dir ?? '';
    const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
    const sizeOf = (file: string): number => statSync(join(dir, file), { throwIfNoEntry: false })?.size ?? 0;
    return files.reduce((sum, file) => sum + sizeOf(file), 0);
  }
  metrics(): Promise<Samples> {
    return scrape(`http://127.0.0.1:${this.#ports.admin}/metrics`);
  }
  processorMetrics(): Promise<Samples> {
    return scrape(`http://127.0.0.1:${this.#ports.processor}/metrics`);
  }

  /** Waits until the streams are empty. @returns false when they are not after `ms` */
  async drained(ms: number): Promise<boolean> {
    for (const end = performance.now() + ms; performance.now() < end; ) {
      if (total(await this.processorMetrics(), 'sluice_pending_messages') === 0) return true;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return false;
  }

  /** Nothing is measured any more and all data is thrown away: nobody is asked to finish anything. */
  async stop(): Promise<void> {
    const workers = childrenOf(this.#ingest?.pid ?? 0);
    await Promise.all([killed(this.#ingest), killed(this.#processor)]);
    // Their primary is dead, so they are leaving in any case, slowly.
    for (const pid of workers) killIfAlive(pid);
    await Promise.all([this.#redis?.stop(), ...this.#brokers.map((server) => server.stop())]);
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

async function killed(child: ChildProcess | undefined): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await exited;
}

function killIfAlive(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It was faster.
  }
}

/** @throws when `happens` stays false for too long */
async function until(happens: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + READY_MS_MAX; !(await happens()); ) {
    if (performance.now() > end) throw new Error(`not within ${READY_MS_MAX} ms`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** @throws when the process ends or is not ready in time */
async function ready(child: ChildProcess, url: string): Promise<void> {
  for (const end = performance.now() + READY_MS_MAX; performance.now() < end; ) {
    if (child.exitCode !== null)
      throw new Error(`a part of the system ended at start (status ${child.exitCode})`);
    const ok = await fetch(url).then(
      (response) => response.ok,
      () => false,
    );
    if (ok) return;
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  throw new Error(`${url} was not ready within ${READY_MS_MAX} ms`);
}

/** This checkout. The benches run compiled, from `.bench/bench/`; tests run them from here. */
export const ROOT = new URL(import.meta.url.endsWith('.ts') ? '../' : '../../', import.meta.url).pathname;
/** `npm run bench` measures a copy of the build, so that a build made meanwhile changes nothing under a run. */
const COPY = new URL('../dist/', import.meta.url).pathname;
/** The version under test when none is named: this checkout's. */
export const OWN_DIST = existsSync(join(COPY, 'cli.js')) ? COPY : join(ROOT, 'dist/');
export const packageVersion = (): string =>
  (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }).version;
