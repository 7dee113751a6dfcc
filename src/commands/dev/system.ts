/**
 * COMPOSITION ROOT of `sluice dev`: the whole system on one machine. This process is the primary of
 * ingest, too. Redis, NATS, the workers and the processor are child processes.
 */
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { childEnvironment, hostEnvironment, isSet, type SinkSetting } from '../../config.ts';
import { systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { firstKey } from '../../projects/keys.ts';
import { NameTakenError, RegistryError } from '../../projects/names.ts';
import type { Project } from '../../projects/project.ts';
import { type NewProject, ProjectStore } from '../../projects/project-store.ts';
import { NatsLink } from '../../stream/nats.ts';
import { setupTopology } from '../../stream/setup/setup.ts';
import { startIngest } from '../ingest.ts';
import { ensureServers } from './install.ts';
import { freePort, startNatsWith, startRedis } from './servers.ts';
import { type Part, ProcessorChild, superviseServer, untilReady } from './supervisor.ts';

/**
 * How often an idle Redis wakes up in a second. The default of 10 takes 3 ms of CPU a second. With
 * 1, a stop would take a second, because Redis looks for a stop when it wakes up.
 */
const REDIS_HZ = 2;
/**
 * By how many percent the broker's heap may grow before Go collects its garbage. At 7,500 events a
 * second the broker takes 50 to 80 MiB less memory than with Go's default of 100, for at most 2 µs
 * of CPU an event.
 */
const BROKER_HEAP_GROWTH = 50;
const FIRST_ID = '1';
/** The demo project has no quota, no filters and the highest plan: nearly everything is stored. */
const DEMO: NewProject = { plan: 'Platform', overage: false, filters: [], allowedOrigins: [] };

type DevOptions = {
  port: number;
  host: string;
  adminPort: number;
  adminHost: string;
  workers: number;
  dataDir: string;
  /** URL of a running Redis; if undefined, `dev` starts one. The same holds for `natsUrl`. */
  redisUrl: string | undefined;
  natsUrl: string | undefined;
  natsCredsFile: string | undefined;
  tlsCaFile: string | undefined;
  shards: number;
  replicas: number;
  streamMaxBytes: number;
  publicUrl: string | undefined;
  /** The sinks. When this is undefined, items go to an ndjson sink in the data folder. */
  sinks: readonly SinkSetting[] | undefined;
};

/** Content of `<data-dir>/dev.json`. */
export type DevFile = {
  url: string;
  adminUrl: string;
  redisUrl: string;
  natsUrl: string;
  /** Folder of the ndjson sink; absent when SLUICE_SINK has no ndjson sink. */
  sinkDir?: string;
  project: { id: string; key: string; dsn: string };
  pid: number;
};

export type DevSystem = { file: DevFile; project: Project; processorAdminUrl: string };

type Say = (line: string) => void;

export class DevStart {
  readonly #options: DevOptions;
  readonly #log: Log;
  readonly #say: Say;
  /** Parts in the order of their start. They are stopped in the opposite order. */
  readonly #parts: Part[] = [];
  #stopping: Promise<void> | undefined;

  constructor(options: DevOptions, log: Log, say: Say) {
    this.#options = { ...options, dataDir: resolve(options.dataDir) };
    this.#log = log;
    this.#say = say;
  }

  /**
   * Starts all servers and commands.
   * @throws when one of them does not start; those that had started are stopped first
   */
  async start(): Promise<DevSystem> {
    try {
      return await this.#start();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Stops the parts, the servers last, so that accepted items are still processed. */
  async #stop(): Promise<void> {
    rmSync(this.#devJson, { force: true });
    for (const part of this.#parts.toReversed()) await part.stop();
  }

  /** Keeps a part, so that `stop` ends it. If a stop was requested already, ends it at once. */
  async #keep(part: Part): Promise<void> {
    if (this.#stopping) await part.stop();
    else this.#parts.push(part);
    this.#failIfStopping();
  }

  #failIfStopping(): void {
    if (this.#stopping) throw new Error('stopped while starting');
  }

  get #devJson(): string {
    return join(this.#options.dataDir, 'dev.json');
  }

  async #start(): Promise<DevSystem> {
    const { redisUrl, natsUrl } = await this.#servers();
    const { replicas, shards, streamMaxBytes: maxBytes, natsCredsFile, tlsCaFile } = this.#options;
    const link = await NatsLink.connect({
      urls: natsUrl.split(','),
      credsFile: natsCredsFile,
      caFile: tlsCaFile,
      name: 'sluice dev',
      log: this.#log,
    });
    await setupTopology(link, { replicas, shards, maxBytes });
    const project = await demoProject(link, this.#options.dataDir);
    await link.close();
    const { sinks } = this.#options;
    const folder = sinks?.find((sink) => sink.kind === 'ndjson')?.dir;
    const sinkDir = sinks ? folder && resolve(folder) : join(this.#options.dataDir, 'sink');
    const processorPort = await freePort();
    await this.#commands({ redisUrl, natsUrl, sinkDir, processorPort });
    this.#failIfStopping();
    const file = this.#describe({ redisUrl, natsUrl, sinkDir, project });
    writeFileSync(`${this.#devJson}.tmp`, `${JSON.stringify(file, null, 2)}\n`);
    renameSync(`${this.#devJson}.tmp`, this.#devJson);
    return { file, project, processorAdminUrl: this.#adminUrl(processorPort) };
  }

  async #servers(): Promise<{ redisUrl: string; natsUrl: string }> {
    let { redisUrl, natsUrl } = this.#options;
    if (redisUrl && natsUrl) return { redisUrl, natsUrl };
    const bins = ensureServers(hostEnvironment(), this.#say);
    if (!redisUrl) {
      const dir = join(this.#options.dataDir, 'redis');
      const redis = await superviseServer(
        'redis-server',
        (port) => startRedis(bins.redis, dir, port, ['--hz', `${REDIS_HZ}`]),
        this.#say,
      );
      await this.#keep(redis);
      redisUrl = redis.url;
    }
    if (!natsUrl) {
      const dir = join(this.#options.dataDir, 'nats');
      const env = childEnvironment(isSet('GOGC') ? {} : { GOGC: `${BROKER_HEAP_GROWTH}` });
      const nats = await superviseServer(
        'nats-server',
        (port) => startNatsWith(bins.nats, { dir, port, env }),
        this.#say,
      );
      await this.#keep(nats);
      natsUrl = nats.url;
    }
    return { redisUrl, natsUrl };
  }

  async #commands(parts: {
    redisUrl: string;
    natsUrl: string;
    sinkDir: string | undefined;
    processorPort: number;
  }): Promise<void> {
    const { host, port, adminPort, workers } = this.#options;
    const program = new URL('../../cli.js', import.meta.url);
    const settings = {
      SLUICE_REDIS_URL: parts.redisUrl,
      SLUICE_NATS_URL: parts.natsUrl,
      ...(!this.#options.sinks && { SLUICE_SINK: `ndjson:${parts.sinkDir}` }),
      SLUICE_HOST: host,
      SLUICE_PORT: `${port}`,
      SLUICE_WORKERS: `${workers}`,
      SLUICE_STREAM_MAX_BYTES: `${this.#options.streamMaxBytes}`,
      ...(!isSet('SLUICE_ENV') && { SLUICE_ENV: 'development' }),
      ...(!isSet('SLUICE_LOG_LEVEL') && { SLUICE_LOG_LEVEL: 'warn' }),
    };
    const envOn = (ownPort: number) => childEnvironment({ ...settings, SLUICE_ADMIN_PORT: `${ownPort}` });
    const readyUrl = (ownPort: number) => `${this.#adminUrl(ownPort)}/readyz`;
    const processor = new ProcessorChild({
      program,
      env: envOn(parts.processorPort),
      readyUrl: readyUrl(parts.processorPort),
      say: this.#say,
    });
    await this.#keep(processor);
    await this.#keep(await startIngest(envOn(adminPort)));
    await Promise.all([processor.ready(), untilReady('ingest', readyUrl(adminPort))]);
  }

  /** URL of an admin port. Both listen on SLUICE_ADMIN_HOST. */
  #adminUrl(port: number): string {
    return urlOf(this.#options.adminHost, port);
  }

  #describe(parts: {
    redisUrl: string;
    natsUrl: string;
    sinkDir: string | undefined;
    project: Project;
  }): DevFile {
    const { redisUrl, natsUrl, sinkDir, project } = parts;
    const url = urlOf(this.#options.host, this.#options.port);
    const key = firstKey(project, systemClock.now())?.key ?? project.key;
    const dsn = (this.#options.publicUrl ?? url).replace('://', `://${key}@`);
    return {
      url,
      adminUrl: this.#adminUrl(this.#options.adminPort),
      redisUrl,
      natsUrl,
      ...(sinkDir !== undefined && { sinkDir }),
      project: { id: project.id, key, dsn: `${dsn}/${project.alias ?? project.id}` },
      pid: process.pid,
    };
  }
}

/** Makes the URL at which this machine reaches a program that listens on `host`. */
function urlOf(host: string, port: number): string {
  // For 0.0.0.0 the URL does not say localhost: clients would first try ::1, where nothing listens.
  if (host === '0.0.0.0') return `http://127.0.0.1:${port}`;
  if (host === '::') return `http://localhost:${port}`;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Files and folders that `dev` keeps in its data folder. Other files there are not its own. */
export const DATA = ['demo-project', 'dev.json', 'dev.json.tmp', 'nats', 'redis', 'sink'] as const;

/** Returns the demo project of a data folder, which the first start creates. */
async function demoProject(link: NatsLink, dataDir: string): Promise<Project> {
  const store = await ProjectStore.open(link);
  const file = join(dataDir, 'demo-project');
  const known = existsSync(file) ? await findProject(store, readFileSync(file, 'utf8').trim()) : undefined;
  if (known) return known;
  const project = await createProject(store);
  writeFileSync(file, `${project.id}\n`);
  return project;
}

async function findProject(store: ProjectStore, id: string): Promise<Project | undefined> {
  try {
    return await store.get(id);
  } catch (error) {
    if (error instanceof RegistryError) return undefined;
    throw error;
  }
}

async function createProject(store: ProjectStore): Promise<Project> {
  try {
    return await store.create({ ...DEMO, id: FIRST_ID });
  } catch (error) {
    if (error instanceof NameTakenError) return store.create(DEMO);
    throw error;
  }
}
