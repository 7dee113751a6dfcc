/**
 * The primary of `sluice ingest`: starts the workers, which share one port, and serves the admin
 * port.
 */

import { isIPv6 } from 'node:net';
import { type Config, isSet } from '../config.ts';
import { systemClock } from '../lib/clock.ts';
import { credsExpiry } from '../lib/files/setting-files.ts';
import type { Log } from '../lib/log.ts';
import { giveBackMemoryOfStart } from '../lib/memory.ts';
import {
  buildInfo,
  counter,
  credentialsExpiry,
  gauge,
  type MetricsSnapshot,
  refusedTokens,
  sumSnapshots,
} from '../lib/metrics/metrics.ts';
import { ProcessFigures } from '../lib/metrics/process-figures.ts';
import { checkPortIsFree } from '../lib/port-check.ts';
import { managementApi } from '../management/api/api.ts';
import { startAdminServer } from '../management/api/server.ts';
import { AdminTokens } from '../management/api/tokens.ts';
import { Connections } from '../management/connections.ts';
import type { Check } from '../management/doctor/check.ts';
import type { Examined } from '../management/doctor/examine.ts';
import { StreamWatch } from '../stream/stream-watch.ts';
import { BUCKETS, streamNamesOf } from '../stream/topology.ts';
import { VERSION } from '../version.ts';
import { Certificates } from './certificates.ts';
import { mergeProjects } from './http/metrics/page-figures.ts';
import type { RequestLines } from './http/metrics/request-log.ts';
import { type Readiness, WorkerPool } from './worker-pool.ts';

/** Admin port when SLUICE_ADMIN_PORT is not set. */
export const ADMIN_PORT = 8081;
const SCRAPE_MS_MAX = 500;

/**
 * Metrics about the NATS and Redis servers: their streams, and when certificates and NATS
 * credentials end.
 */
class ServerFigures {
  readonly #credsFile: string | undefined;
  readonly #certificates: Certificates;
  readonly #streams: StreamWatch;

  constructor({ natsUrls, natsCredsFile, redisUrls, streamShards }: Config, connections: Connections) {
    this.#credsFile = natsCredsFile;
    this.#certificates = new Certificates([...natsUrls, ...redisUrls]);
    this.#streams = new StreamWatch({
      nats: () => connections.nats(),
      clock: systemClock,
      streams: streamNamesOf(streamShards),
      buckets: BUCKETS,
    });
  }

  /**
   * Collects the metrics. Those of the streams are left out when the broker does not answer within
   * `waitMs`.
   */
  async snapshot(waitMs: number): Promise<MetricsSnapshot> {
    const expiry = this.#credsFile === undefined ? undefined : credsExpiry(this.#credsFile);
    const streams = await this.#streams.snapshot(waitMs);
    return [...streams, credentialsExpiry(expiry), this.#certificates.expose()];
  }

  stop(): void {
    this.#certificates.stop();
  }
}

/**
 * Describes, by this ingest's settings, the deployment that the management API's doctor examines.
 */
function examinedOf(config: Config): Omit<Examined, 'connections' | 'log'> {
  const { redisUrls, publicUrl, env, streamReplicas: replicas, streamShards: shards } = config;
  return {
    config,
    origin: 'the environment of this ingest says',
    redisUrls,
    topology: { replicas, shards, maxBytes: config.streamMaxBytes },
    publicUrl,
    // In development clients run on this machine, so the default URL is no guess.
    isUrlGuessed: env === 'production' && !isSet('SLUICE_PUBLIC_URL'),
  };
}

export type RunningIngest = {
  /** Drains every worker and closes the admin port. */
  stop(): Promise<void>;
};

/**
 * Combines the workers' readiness into that of the primary.
 *
 * The primary becomes ready when all workers are ready at the same time, because the kernel gives
 * connections to every worker that listens. A minute after the start one ready worker is enough.
 * Once the primary has become ready, it is ready while at least one worker is.
 *
 * Redis and NATS are `ok` when every worker says so. The registry is `missing` if any worker says
 * so. Otherwise it is `ok` when all workers have loaded it, or when one has and the primary has
 * become ready.
 */
function combine({ readiness, wasComplete }: WorkerPool, stopping: boolean): Readiness {
  const spoken = readiness.filter((one) => one !== undefined);
  const every = (test: (one: Readiness) => boolean): boolean => spoken.length > 0 && spoken.every(test);
  const ready = !stopping && wasComplete && spoken.some((one) => one.status === 'ready');
  const isMissing = spoken.some((one) => one.checks.registry === 'missing');
  const isLoaded = (one: Readiness | undefined): boolean => one?.checks.registry === 'ok';
  const loaded = wasComplete ? readiness.some(isLoaded) : readiness.length > 0 && readiness.every(isLoaded);
  return {
    status: ready ? 'ready' : 'not ready',
    checks: {
      redis: every((one) => one.checks.redis === 'ok') ? 'ok' : 'away',
      nats: every((one) => one.checks.nats === 'ok') ? 'ok' : 'away',
      registry: isMissing ? 'missing' : loaded ? 'ok' : 'loading',
    },
  };
}

/** Sums the workers' metrics and the primary's own. */
async function collect(
  pool: WorkerPool,
  figures: ProcessFigures,
  projects = false,
): Promise<ReturnType<typeof sumSnapshots>> {
  const own = [
    buildInfo(VERSION),
    gauge('sluice_workers', 'Living ingest workers', [[{}, pool.size]]),
    counter('sluice_worker_restarts_total', 'Workers that died and were started again', [
      [{}, pool.restarts],
    ]),
  ];
  const ofPrimary = await figures.snapshot('primary');
  return sumSnapshots([own, ofPrimary, ...(await pool.snapshots(SCRAPE_MS_MAX, projects))]);
}

/**
 * Returns the connections of the management API and of scrapes. Each is opened at its first use.
 */
function connectionsOf(config: Config, log: Log): Connections {
  return new Connections({ ...config, name: 'sluice ingest, primary', role: 'ingest', log });
}

/** The URL of the public port on this machine. */
function ownUrl({ host, port }: Config): string {
  const near = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host;
  return `http://${isIPv6(near) ? `[${near}]` : near}:${port}`;
}

type IngestOptions = {
  /** The environment of the workers, in which `config` was read; default: that of this process. */
  env?: NodeJS.ProcessEnv | undefined;
  /** Receives lines about finished requests, in development. */
  onRequests(lines: RequestLines): void;
};

/**
 * Starts the primary.
 * @throws PortError when a port is taken
 */
export async function runIngest(
  config: Config,
  log: Log,
  { env, onRequests }: IngestOptions,
): Promise<RunningIngest> {
  const adminPort = config.adminPort ?? ADMIN_PORT;
  // Workers share the port by SO_REUSEPORT. With that option, listening on the port of another
  // sluice would succeed silently, so the ports are checked first.
  await checkPortIsFree(config.host, config.port);
  await checkPortIsFree(config.adminHost, adminPort);
  let stopping = false;
  const pool = new WorkerPool({
    program: new URL('./worker.js', import.meta.url),
    env,
    count: config.workers,
    log,
    onRequests,
  });
  const tokens = new AdminTokens({
    entries: config.adminTokens,
    viewers: config.viewerTokens,
    file: config.adminTokenFile,
    log,
  });
  const connections = connectionsOf(config, log);
  const figures = new ProcessFigures();
  const servers = new ServerFigures(config, connections);
  const readiness = (): Readiness => combine(pool, stopping);
  const { heartbeatPath, streamShards: shards } = config;
  const examined = { ...examinedOf(config), connections, log };
  const { publicUrl, isUrlGuessed } = examined;
  const urls = { publicUrl, isUrlGuessed, ingestUrl: ownUrl(config), heartbeatPath };
  // The checks of doctor load ioredis, which the primary does not need otherwise.
  const examine = async (): Promise<Check[]> =>
    (await import('../management/doctor/examine.ts')).examine(examined);
  const management = { connections, ...urls, shards, examine, log };
  const admin = await startAdminServer({
    host: config.adminHost,
    names: config.adminNames,
    port: adminPort,
    tokens,
    log,
    api: managementApi(management, log),
    pages: {
      ready: () => ({ ready: readiness().status === 'ready', body: JSON.stringify(readiness()) }),
      metrics: async () => {
        const [ofServers, ofWorkers] = await Promise.all([
          servers.snapshot(SCRAPE_MS_MAX),
          collect(pool, figures),
        ]);
        const others = sumSnapshots([[...ofServers, refusedTokens(tokens.refused)]]);
        return `${await ofWorkers.metrics()}\n${await others.metrics()}`;
      },
      stats: async () => {
        const metrics = (await (await collect(pool, figures, true)).getMetricsAsJSON()) as MetricsSnapshot;
        return { role: 'ingest', readiness: readiness(), metrics, projects: mergeProjects(pool.projects) };
      },
    },
  }).catch(async (error: unknown) => {
    // The start may fail: another program may have taken the port since the check.
    servers.stop();
    figures.stop();
    await pool.stop();
    throw error;
  });
  giveBackMemoryOfStart();
  log.info({ port: config.port, adminPort, workers: config.workers }, 'ingest started');
  return {
    stop: async () => {
      stopping = true;
      await pool.stop();
      await admin.stop();
      servers.stop();
      figures.stop();
      await connections.close();
      log.info('ingest stopped');
    },
  };
}
