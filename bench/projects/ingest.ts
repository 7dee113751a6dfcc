/** `sluice ingest` in front of very many projects. */
import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { freePort, startRedis } from '../../src/commands/dev/servers.ts';
import { childEnvironment } from '../../src/config.ts';
import { childrenOf, peakRssBytes } from '../processes.ts';
import { scrape, total } from '../scrape.ts';
import { type Stage, until } from './stage.ts';

export type IngestResult = {
  /** From the start of the primary until all workers are ready. */
  readyMs: number;
  /** Workers that were started again, killed as silent or dead by themselves, over start and restarts. */
  workersLost: number;
  /** Highest so far, of the largest worker. */
  peakMib: number;
  /** On the projects bucket after start and restarts. */
  consumers: number;
};

const READY_MS_MAX = 300_000;
/** After a restart; longer than a silent worker lives. */
export const WATCHED_MS = 8_000;
const MIB = 1024 * 1024;

async function isReady(adminPort: number): Promise<boolean> {
  const answer = await fetch(`http://127.0.0.1:${adminPort}/readyz`).catch(() => undefined);
  await answer?.arrayBuffer();
  return answer?.ok === true;
}

/** @param restarts of the broker, the first with the number `from` */
export async function runIngest(
  stage: Stage,
  options: {
    dist: string;
    redis: string;
    workers: number;
    restarts: { from: number; count: number };
  },
): Promise<IngestResult> {
  const { dist, workers, restarts } = options;
  const redis = await startRedis(options.redis, join(stage.dir, 'redis'));
  const [port, adminPort] = [await freePort(), await freePort()];
  const env = childEnvironment({
    SLUICE_ENV: 'production',
    SLUICE_HOST: '127.0.0.1',
    SLUICE_PORT: `${port}`,
    SLUICE_ADMIN_PORT: `${adminPort}`,
    SLUICE_WORKERS: `${workers}`,
    SLUICE_REDIS_URL: redis.url,
    SLUICE_NATS_URL: stage.natsUrl,
    SLUICE_SPOOL_DIR: stage.dir,
    SLUICE_LOG_LEVEL: 'error',
  });
  const began = performance.now();
  const primary = fork(join(dist, 'cli.js'), ['ingest'], {
    env,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  try {
    await until('ready', READY_MS_MAX, () => isReady(adminPort));
    const readyMs = performance.now() - began;
    for (let n = 0; n < restarts.count; n++) {
      await stage.restart(restarts.from + n);
      await new Promise((resolve) => setTimeout(resolve, WATCHED_MS));
    }
    await until('ready again', READY_MS_MAX, () => isReady(adminPort));
    const samples = await scrape(`http://127.0.0.1:${adminPort}/metrics`);
    const peaks = childrenOf(primary.pid ?? 0).map(peakRssBytes);
    return {
      readyMs,
      workersLost: total(samples, 'sluice_worker_restarts_total'),
      peakMib: Math.max(...peaks) / MIB,
      consumers: await stage.consumers(),
    };
  } finally {
    await ended(primary);
    await redis.stop();
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await exited;
}
