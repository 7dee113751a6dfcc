/** The service as a team would write it: Fastify, ioredis, one publish for each item, the same checks. */
import { fork, spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../src/commands/dev/servers.ts';
import { childEnvironment } from '../../src/config.ts';
import { ROOT } from '../harness.ts';
import type { Peer, PeerSetting, RunningPeer } from './peer.ts';

const FOLDER = join(ROOT, 'bench/peers');

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

async function start({ dir, redis, nats, projects }: PeerSetting): Promise<RunningPeer> {
  const port = await freePort();
  const named = projects.map((project, at) => ({ ...project, id: `${at + 1}`, key: `key${at + 1}` }));
  const file = join(dir, 'projects.json');
  writeFileSync(file, JSON.stringify(named));
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
  const exited = new Promise<void>((resolve) => peer.once('exit', () => resolve()));
  await new Promise((resolve, reject) => {
    peer.once('message', resolve);
    peer.once('exit', () => reject(new Error('the peer ended at start')));
  });
  const stop = (): Promise<void> => {
    peer.disconnect();
    return exited;
  };
  const targets = named.map(({ id, key }) => ({ id, key }));
  return { pid: peer.pid ?? 0, url: `http://127.0.0.1:${port}`, targets, stop };
}

export const FASTIFY: Peer = { name: 'fastify', start };
