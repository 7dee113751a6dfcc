/** The speed of light of the limiter: one connection that counts requests by admit.lua in pipelines, and nothing else. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../../src/commands/dev/servers.ts';
import { admitArgs } from '../../src/ingest/limit/admit-call.ts';
import { keysOf, quotaKey, rateKey, scriptSource } from '../../src/ingest/limit/scripts.ts';
import { cpuUs } from '../processes.ts';

export type RedisScriptOptions = {
  bin: string;
  depths: readonly number[];
  durationMs: number;
  projects: number;
};
export type RedisScriptRow = {
  /** Calls per pipeline; one pipeline is in flight. */
  depth: number;
  callsPerSec: number;
  redisUsPerCall: number;
  clientUsPerCall: number;
};

/** One request without a per-minute limit. */
const ARGS = admitArgs({ wishes: 'c' });

type Script = { admit(...keysAndArgs: (string | number)[]): unknown };

async function measure(
  client: Redis,
  pid: number,
  options: { depth: number; durationMs: number; projects: number },
): Promise<RedisScriptRow> {
  const { depth, durationMs, projects } = options;
  let calls = 0;
  const before = { redis: cpuUs(pid), own: process.cpuUsage() };
  const startedAt = performance.now();
  while (performance.now() - startedAt < durationMs) {
    const pipeline = client.pipeline();
    for (let i = 0; i < depth; i++) {
      const id = `${(calls + i) % projects}`;
      (pipeline as unknown as Script).admit(rateKey(id), quotaKey(id), ...ARGS);
    }
    const replies = await pipeline.exec();
    const failed = replies?.find(([error]) => error);
    if (failed?.[0]) throw failed[0];
    calls += depth;
  }
  const seconds = (performance.now() - startedAt) / 1000;
  const own = process.cpuUsage(before.own);
  return {
    depth,
    callsPerSec: calls / seconds,
    redisUsPerCall: (cpuUs(pid) - before.redis) / calls,
    clientUsPerCall: (own.user + own.system) / calls,
  };
}

/** Starts a Redis of its own and runs each depth for `durationMs`. @throws when a call fails */
export async function runRedisScript(options: RedisScriptOptions): Promise<RedisScriptRow[]> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-redis-'));
  const server = await startRedis(options.bin, dir);
  const client = new Redis(server.url);
  try {
    client.defineCommand('admit', { lua: scriptSource('admit'), numberOfKeys: keysOf('admit') });
    // A month without a count is not counted: give every project one.
    for (let i = 0; i < options.projects; i++)
      await client.hset(quotaKey(`${i}`), new Date().toISOString().slice(0, 7), 0);
    const rows: RedisScriptRow[] = [];
    for (const depth of options.depths) rows.push(await measure(client, server.pid, { ...options, depth }));
    return rows;
  } finally {
    client.disconnect();
    await server.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}
