/** What the faults strike: two ingest primaries with two workers each, one or two processors, and what they stand on ({@link Backing}). */
import { execFile } from 'node:child_process';
import { rmSync } from 'node:fs';
import { promisify } from 'node:util';
import { nanos } from '@nats-io/transport-node';
import { createLog } from '../../src/lib/log.ts';
import { type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import { SCRUBS, type Scrub } from '../../src/stream/frame.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { FRAME_STREAMS, isFrameStreamName, streamName } from '../../src/stream/topology.ts';
import { registryDelivered } from '../support/registry.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { DIST, until } from '../support/system.ts';
import { Backing, type BackingOptions } from './backing.ts';
import type { ProjectName, ProjectTerms, Stored } from './ledger.ts';
import type { Targets } from './load.ts';
import { patiently, Queue } from './queue.ts';
import { type ProjectIds, readNdjson, type SinkFiles } from './sink-reader.ts';
import { Supervised } from './supervised.ts';
import { Witness, witnessed } from './witness.ts';

const PRIMARIES = 2;
const WORKERS = 2;
const MAX_BYTES = 64 * 1024 * 1024;
/** A killed processor's frames come again after this rather than after twice as long. */
const ACK_WAIT_MS = 5_000;
const START_MS_MAX = 30_000;

export const quiet = createLog('silent');

export type StandOptions = BackingOptions & {
  /** Of each stream. */
  maxBytes?: number;
  /** How many share the store. */
  processors?: number;
  /** Without one the streams are as in production, and nothing is remembered of each envelope: for long runs. */
  witness?: false;
  /** Another build, which sets up and runs first. Without one it is the build under test. */
  dist?: string;
};

type Wanted = { rateLimit?: number; quota?: number; scrub?: Scrub[] };
export type Projects = { terms: Readonly<Record<ProjectName, ProjectTerms>>; targets: Targets };

export class Stand {
  readonly #dir = temporaryFolder('faults');
  readonly #options: StandOptions;
  /** What has been read: a file of the sink never changes. */
  readonly #sinkFiles: SinkFiles = new Map();
  backing!: Backing;
  link!: NatsLink;
  queue!: Queue;
  witness: Witness | undefined;
  /** Where the primaries listen. */
  ports: number[] = [];
  #adminPorts: number[] = [];
  ingest: Supervised[] = [];
  processors: Supervised[] = [];

  private constructor(options: StandOptions) {
    this.#options = options;
  }

  static async start(options: StandOptions = {}): Promise<Stand> {
    const stand = new Stand(options);
    try {
      await stand.#startBacking();
      await stand.#startOurs();
    } catch (error) {
      await stand.close();
      throw error;
    }
    return stand;
  }

  async #startBacking(): Promise<void> {
    this.backing = await Backing.start(this.#dir, this.#options);
    this.link = await NatsLink.connect({ urls: this.backing.natsUrls, name: 'faults', log: quiet });
    const { dist } = this.#options;
    if (dist) await until(() => this.command(dist, 'setup').then(Boolean, () => false), START_MS_MAX);
    else await this.#setUp();
    const names = await (await this.link.manager()).streams.names().next();
    this.queue = new Queue(this.link, names.filter(isFrameStreamName));
  }

  async #setUp(): Promise<void> {
    const { cluster, maxBytes = MAX_BYTES, witness = true } = this.#options;
    const topology = { replicas: cluster ? 3 : 1, shards: 1, maxBytes };
    if (witness) {
      this.witness = new Witness(this.link);
      // A cluster that has just started has no leader yet.
      await until(
        () =>
          witnessed(this.link, topology).then(
            () => true,
            () => false,
          ),
        START_MS_MAX,
      );
    }
    // The witness has made streams before: no bucket was there that could have been lost.
    const setup = () => setupTopology(this.link, topology, { emptyBuckets: true });
    await until(() => setup().then(Boolean, () => false), START_MS_MAX);
    const streams = FRAME_STREAMS.map((stream) => streamName(stream, 0, 1));
    const manager = await this.link.manager();
    for (const stream of streams) {
      const update = () => manager.consumers.update(stream, 'processor', { ack_wait: nanos(ACK_WAIT_MS) });
      await until(() => update().then(Boolean, () => false), START_MS_MAX);
    }
  }

  get #common(): Record<string, string> {
    const { cluster, maxBytes = MAX_BYTES } = this.#options;
    return {
      SLUICE_ENV: 'production',
      SLUICE_WORKERS: `${WORKERS}`,
      SLUICE_PLAN_LIMITS: 'free-only',
      SLUICE_STREAM_REPLICAS: cluster ? '3' : '1',
      SLUICE_STREAM_MAX_BYTES: `${maxBytes}`,
      SLUICE_LOG_LEVEL: 'warn',
    };
  }

  async #startOurs(): Promise<void> {
    const { processors = 1, dist = DIST } = this.#options;
    const parts = PRIMARIES + processors;
    this.ports = await Promise.all(Array.from({ length: PRIMARIES }, lastingPort));
    this.#adminPorts = await Promise.all(Array.from({ length: parts }, lastingPort));
    const common = this.#common;
    const admin = (n: number) => ({ SLUICE_ADMIN_PORT: `${this.#adminPorts[n]}` });
    this.ingest = this.ports.map((port, n) => {
      const clock = n === 0 ? this.backing.clock('ingest')?.env : {};
      const own = { SLUICE_PORT: `${port}`, ...admin(n), ...clock };
      return new Supervised(['ingest'], { ...common, ...this.backing.settings('ingest'), ...own }, dist);
    });
    const clock = this.backing.clock('processor')?.env;
    this.processors = Array.from({ length: processors }, (_, n) => {
      const own = { ...common, ...this.backing.settings('processor'), ...admin(PRIMARIES + n), ...clock };
      return new Supervised(['processor'], own, dist);
    });
    await this.ready();
  }

  /** One more, which the caller stops. */
  async anotherProcessor(): Promise<Supervised> {
    const port = await lastingPort();
    const own = { ...this.#common, ...this.backing.settings('processor'), SLUICE_ADMIN_PORT: `${port}` };
    return new Supervised(['processor'], own, this.#options.dist);
  }

  /** An earlier build may not know OTLP. */
  get takesOtlp(): boolean {
    return this.#options.dist === undefined;
  }

  /** Everything of ours. */
  get parts(): Supervised[] {
    return [...this.ingest, ...this.processors];
  }

  /** Lines that our processes logged with level error or above. */
  get errors(): string[] {
    return this.parts.flatMap(({ log }) => log.split('\n').filter((line) => /"level":(50|60)/.test(line)));
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
    const wanted: Record<keyof Targets, Wanted> = {
      open: {},
      limited: { rateLimit: 240 },
      leased: { rateLimit: 2_000 },
      capped: { quota: capped },
      attacker: {},
      unjudged: {},
      scrubbed: { scrub: [...SCRUBS] },
    };
    const terms: Partial<Record<ProjectName, ProjectTerms>> = {};
    const targets: Partial<Record<keyof Targets, string>> = {};
    for (const [name, own] of Object.entries(wanted) as [keyof Targets, (typeof wanted)[keyof Targets]][]) {
      const { id, key } = await patiently(() => this.#createProject(own));
      const { rateLimit, quota } = own;
      targets[name] = `/api/${id}/envelope/?compat_key=${key}`;
      if (name === 'unjudged' || name === 'scrubbed') continue;
      terms[name] = {
        id,
        ...(rateLimit !== undefined && { ratePerMinute: rateLimit }),
        ...(quota !== undefined && { quota }),
      };
    }
    await until(() => registryDelivered(this.link, PRIMARIES * WORKERS).catch(() => false));
    await this.metrics('ingest'); // asks each worker, so the turn in which the change came has passed
    return { terms, targets } as Projects;
  }

  async #createProject(own: Wanted): Promise<{ id: string; key: string }> {
    const { dist } = this.#options;
    if (!dist) {
      const base: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
      return (await ProjectStore.open(this.link)).create({ ...base, ...own });
    }
    const { rateLimit, quota } = own;
    const limit = rateLimit === undefined ? [] : ['--rate-limit', `${rateLimit}`];
    const month = quota === undefined ? [] : ['--quota', `${quota}`];
    const made = await this.command(dist, 'project', 'create', '--json', '--plan', 'Pro', ...limit, ...month);
    return JSON.parse(made) as { id: string; key: string };
  }

  /** What stands in the sink of these projects, by event id. */
  stored(projects: ProjectIds): Promise<Map<string, Stored>> {
    const { store, sinkDir } = this.backing;
    return store ? store.stored(projects) : readNdjson(sinkDir, this.#sinkFiles, projects);
  }

  /** A page of metrics of each primary, or of each processor. */
  metrics(of: 'ingest' | 'processor'): Promise<string[]> {
    const ports = this.#adminPorts.slice(...(of === 'ingest' ? [0, PRIMARIES] : [PRIMARIES]));
    const page = async (port: number): Promise<string> =>
      (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return Promise.all(ports.map(page));
  }

  /** A counter, summed over both primaries, or the processors. */
  async metric(name: string, of: 'ingest' | 'processor' = 'ingest'): Promise<number> {
    return (await this.metrics(of))
      .flatMap((text) => text.split('\n'))
      .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }

  /** Settings of a command that is run against this stand, past the proxies. */
  get env(): Record<string, string> {
    const urls = {
      SLUICE_REDIS_URL: this.backing.redis.url,
      SLUICE_NATS_URL: this.backing.natsUrls.join(','),
    };
    return { ...this.backing.settings('processor'), ...urls };
  }

  /** Runs a command of a build. @returns what it prints */
  async command(dist: string, ...args: string[]): Promise<string> {
    const env = { ...process.env, ...this.#common, ...this.env };
    const { stdout } = await promisify(execFile)(process.execPath, [`${dist}cli.js`, ...args], { env });
    return stdout;
  }

  async close(): Promise<void> {
    await Promise.all(this.parts.map((part) => part.stop()));
    await this.link?.close();
    await this.backing?.close();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
