/** Measures a peer with the canonical workload, as system/run.ts does it for sluice. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startNats, startRedis } from '../../src/commands/dev/servers.ts';
import { runFresh } from '../fresh.ts';
import type { LoadResult } from '../load/result.ts';
import { cpuUs, peakRssBytes } from '../processes.ts';
import type { Durations } from '../system/run.ts';
import type { Scenario } from '../system/scenarios.ts';
import type { Peer, PeerSetting, RunningPeer } from './peer.ts';

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

/** @throws when a part does not start */
export async function runPeer(peer: Peer, options: PeerOptions): Promise<PeerRun> {
  const { bins, scenario } = options;
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-peer-'));
  const redis = await startRedis(bins.redis, join(dir, 'redis'));
  const nats = await startNats(bins.nats, join(dir, 'nats'));
  const setting = { dir, redis, nats, projects: scenario.projects };
  try {
    const running = await peer.start(setting);
    try {
      return await measure(running, setting, options);
    } finally {
      await running.stop();
    }
  } finally {
    await Promise.all([redis.stop(), nats.stop()]);
    rmSync(dir, { recursive: true, force: true });
  }
}

async function measure(
  { url, targets, pid: peerPid }: RunningPeer,
  { redis, nats }: PeerSetting,
  options: PeerOptions,
): Promise<PeerRun> {
  const { scenario, durations, seed } = options;
  const { mix, encoding, connections } = scenario;
  const common = { url, targets, mix, encoding, connections, warmupMs: 300, seed };
  if (durations.warmupMs > 0) await runFresh('load', { ...common, durationMs: durations.warmupMs });
  const pids = [peerPid, redis.pid, nats.pid];
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
    peakRssBytes: peakRssBytes(peerPid),
    problems,
  };
}
