/** Measures the Fastify peer with the canonical workload, as system/run.ts does it for sluice. */
import { type ChildProcess, fork, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { childEnvironment } from '../../src/config.ts';
import { freePort, type RunningServer, startNats, startRedis } from '../../src/dev/servers.ts';
import { runFresh } from '../fresh.ts';
import { ROOT } from '../harness.ts';
import type { LoadResult } from '../load/result.ts';
import { cpuUs, peakRssBytes } from '../processes.ts';
import type { Durations } from '../system/run.ts';
import type { Scenario } from '../system/scenarios.ts';
import type { Target } from '../workload.ts';

const FOLDER = join(ROOT, 'bench/peers');

export type PeerRun = {
  saturation: LoadResult;
  open: LoadResult;
  /** CPU microseconds per accepted envelope at saturation. */
  costUs: { worker: number; redis: number; broker: number };
  peakRssBytes: number;
  problems: string[];
};
export type PeerOptions = {
  bins: { redis: string; nats: string };
  scenario: Scenario;
  durations: Durations;
  seed: number;
};

/** The peer's packages are its own: they are installed when it is first measured. @throws when that fails */
export function installPeers(say: (line: string) => void): void {
  if (existsSync(join(FOLDER, 'node_modules/fastify'))) return;
  say('installing the packages of bench/peers …');
  const { status, stderr } = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], {
    cwd: FOLDER,
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`npm ci in bench/peers failed: ${stderr}`);
}

type Running = {
  dir: string;
  redis: RunningServer;
  nats: RunningServer;
  peer: ChildProcess;
  url: string;
  targets: Target[];
};

async function startPeer({ bins, scenario }: PeerOptions): Promise<Running> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-peer-'));
  const redis = await startRedis(bins.redis, join(dir, 'redis'));
  const nats = await startNats(bins.nats, join(dir, 'nats'));
  const port = await freePort();
  const projects = scenario.projects.map((project, at) => ({
    ...project,
    id: `${at + 1}`,
    key: `key${at + 1}`,
  }));
  const file = join(dir, 'projects.json');
  writeFileSync(file, JSON.stringify(projects));
  const env = childEnvironment({
    PEER_PORT: `${port}`,
    PEER_REDIS_URL: redis.url,
    PEER_NATS_URL: nats.url,
    PEER_PROJECTS: file,
    NODE_ENV: 'production',
  });
  const peer = fork(join(FOLDER, 'fastify/server.mjs'), {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  await new Promise((resolve, reject) => {
    peer.once('message', resolve);
    peer.once('exit', () => reject(new Error('the peer ended at start')));
  });
  const targets = projects.map(({ id, key }) => ({ id, key }));
  return { dir, redis, nats, peer, url: `http://127.0.0.1:${port}`, targets };
}

async function stopPeer({ dir, redis, nats, peer }: Running): Promise<void> {
  const exited = new Promise((resolve) => peer.once('exit', resolve));
  peer.disconnect();
  await exited;
  await Promise.all([redis.stop(), nats.stop()]);
  rmSync(dir, { recursive: true, force: true });
}

/** @throws when a part does not start */
export async function runPeer(options: PeerOptions): Promise<PeerRun> {
  const running = await startPeer(options);
  try {
    return await measure(running, options);
  } finally {
    await stopPeer(running);
  }
}

async function measure({ url, targets, peer, redis, nats }: Running, options: PeerOptions): Promise<PeerRun> {
  const { scenario, durations, seed } = options;
  const { mix, encoding, connections } = scenario;
  const common = { url, targets, mix, encoding, connections, warmupMs: 300, seed };
  if (durations.warmupMs > 0) await runFresh('load', { ...common, durationMs: durations.warmupMs });
  const pids = [peer.pid ?? 0, redis.pid, nats.pid];
  const before = pids.map(cpuUs);
  const saturation = await runFresh('load', { ...common, durationMs: durations.saturationMs });
  const [worker = 0, redisUs = 0, broker = 0] = pids.map(
    (pid, at) => (cpuUs(pid) - (before[at] ?? 0)) / Math.max(1, saturation.expectedInAll),
  );
  const rate = Math.max(1, Math.round(saturation.ratePerSec / 2));
  const open = await runFresh('load', { ...common, rate, durationMs: durations.openMs });
  const problems = [saturation, open]
    .filter(({ failed }) => failed > 0)
    .map(({ failed, failures }) => `${failed} requests failed: ${JSON.stringify(failures)}`);
  return {
    saturation,
    open,
    costUs: { worker, redis: redisUs, broker },
    peakRssBytes: peakRssBytes(peer.pid ?? 0),
    problems,
  };
}
