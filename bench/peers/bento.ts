/**
 * Bento (a stream processor in Go) with a configuration in place of a program: no key, no limit, no
 * filter is looked at. It runs where the program is found: BENTO_BIN, or `bento` on the path.
 */
import { spawn, spawnSync } from 'node:child_process';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { freePort } from '../../src/commands/dev/servers.ts';
import { childEnvironment } from '../../src/config.ts';
import { createLog } from '../../src/lib/log.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { ROOT } from '../harness.ts';
import type { Peer, PeerSetting, RunningPeer } from './peer.ts';

const CONFIGURATION = join(ROOT, 'bench/peers/bento.yaml');
const START_MS_MAX = 15_000;
const PROBE_MS = 50;

/** One counter a project; the answer of Redis is kept beside the message, which stays as it was. */
const oneIncr = (redisUrl: string): string =>
  JSON.stringify([
    {
      branch: {
        processors: [
          {
            redis_script: {
              url: redisUrl,
              script: "return redis.call('INCR', KEYS[1])",
              keys_mapping: 'root = ["count"]',
              args_mapping: 'root = []',
              retries: 0,
            },
          },
        ],
        result_map: 'meta position = content().string()',
      },
    },
  ]);

/** @returns the program, or undefined when there is none */
export function findBento(): string | undefined {
  const program = childEnvironment({}).BENTO_BIN ?? 'bento';
  return spawnSync(program, ['--version']).status === 0 ? program : undefined;
}

async function createStream(url: string): Promise<void> {
  const link = await NatsLink.connect({ urls: [url], name: 'bench', log: createLog('silent') });
  const manager = await link.manager();
  await manager.streams.add({ name: 'BENTO', subjects: ['bento.>'], storage: 'file' });
  await link.close();
}

const accepts = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = createConnection(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });

async function start(program: string, counts: boolean, setting: PeerSetting): Promise<RunningPeer> {
  const { redis, nats, projects } = setting;
  await createStream(nats.url);
  const port = await freePort();
  const peer = spawn(program, ['-c', CONFIGURATION], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: childEnvironment({
      BENTO_PORT: `${port}`,
      BENTO_NATS_URL: nats.url,
      BENTO_PROCESSORS: counts ? oneIncr(redis.url) : '[]',
    }),
  });
  const exited = new Promise<void>((resolve) => peer.once('exit', () => resolve()));
  const stop = (): Promise<void> => {
    peer.kill('SIGKILL');
    return exited;
  };
  for (const end = performance.now() + START_MS_MAX; !(await accepts(port)); ) {
    if (performance.now() > end || peer.exitCode !== null) {
      await stop();
      throw new Error('Bento did not start');
    }
    await new Promise((resolve) => setTimeout(resolve, PROBE_MS));
  }
  const targets = projects.map((_, at) => ({ id: `${at + 1}`, key: `key${at + 1}` }));
  return { pid: peer.pid ?? 0, url: `http://127.0.0.1:${port}`, targets, stop };
}

export const bentoPeers = (program: string): Peer[] => [
  { name: 'bento without checks', start: (setting) => start(program, false, setting) },
  { name: 'bento with one INCR', start: (setting) => start(program, true, setting) },
];
