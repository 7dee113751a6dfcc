/** A cluster of masters on this machine, as a test needs it: every slot assigned, no replicas. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect } from 'node:net';
import { findServer } from '../../../src/commands/dev/servers.ts';
import { lastingPort, temporaryFolder } from '../../support/servers.ts';
import { pause } from './limit-fixture.ts';

const SLOTS = 16_384;
const ANSWER_MS_MAX = 60_000;
/** A node that has not been heard of for so long is introduced again: gossip gives up a greeting that came too early. */
const MEET_MS = 1_000;

export type ClusterNode = {
  port: number;
  busPort: number;
  process: ChildProcess;
  slots: [from: number, to: number];
};
export type TestCluster = { nodes: readonly ClusterNode[]; urls: string[]; close(): Promise<void> };

/**
 * Sends commands as an operator would, a line each, and resolves with the first reply.
 * @throws where the server cuts the connection first, as it does when its role changes
 */
export function operator(port: number, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(`${command}\r\n`));
    socket.once('error', reject);
    socket.once('close', () => reject(new Error(`${port} cut the connection of ${command}`)));
    socket.once('data', (data) => {
      socket.destroy();
      resolve(data.toString());
    });
  });
}

const says = async (port: number, command: string, wanted: string): Promise<boolean> =>
  (await operator(port, command).catch(() => '')).includes(wanted);

/** Polls until `port` answers `command` with something that contains `wanted`. */
export async function answers(port: number, command: string, wanted: string): Promise<void> {
  for (const end = performance.now() + ANSWER_MS_MAX; performance.now() < end; await pause(25))
    if (await says(port, command, wanted)) return;
  throw new Error(`${port} does not answer ${command} with ${wanted}`);
}

async function startNode(dir: string, slots: [number, number]): Promise<ClusterNode> {
  const bin = findServer('redis-server', { redis: process.env.REDIS_SERVER_BIN }, process.env.PATH ?? '');
  const [port, busPort] = [await lastingPort(), await lastingPort()];
  const settings = {
    port,
    'cluster-port': busPort,
    'cluster-enabled': 'yes',
    dir,
    save: '',
    bind: '127.0.0.1',
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, `${value}`]);
  const child = spawn(bin ?? 'redis-server', args, { stdio: ['ignore', 'pipe', 'ignore'] });
  let said = '';
  child.stdout.on('data', (data: Buffer) => {
    said = (said + data.toString()).slice(-1_000);
  });
  const ended = once(child, 'exit').then(() => Promise.reject(new Error(`redis-server ended: ${said}`)));
  await Promise.race([answers(port, 'PING', 'PONG'), ended]);
  ended.catch(() => undefined);
  await operator(port, `CLUSTER ADDSLOTSRANGE ${slots[0]} ${slots[1]}`);
  return { port, busPort, process: child, slots };
}

export async function redisCluster(masters = 3): Promise<TestCluster> {
  const dirs = Array.from({ length: masters }, () => temporaryFolder('cluster'));
  const slot = (node: number): number => Math.floor((node * SLOTS) / masters);
  const nodes = await Promise.all(dirs.map((dir, i) => startNode(dir, [slot(i), slot(i + 1) - 1])));
  const [first, ...others] = nodes as [ClusterNode, ...ClusterNode[]];
  const isWhole = async (): Promise<boolean> => {
    const wanted = ['cluster_state:ok', `cluster_size:${masters}`];
    const looks = nodes.flatMap(({ port }) => wanted.map((text) => says(port, 'CLUSTER INFO', text)));
    return (await Promise.all(looks)).every(Boolean);
  };
  let metAt = Number.NEGATIVE_INFINITY;
  for (const end = performance.now() + ANSWER_MS_MAX; !(await isWhole()); await pause(25)) {
    if (performance.now() > end) throw new Error('the nodes do not become a cluster');
    if (performance.now() - metAt < MEET_MS) continue;
    metAt = performance.now();
    // The bus port is named because it is not the port plus 10000.
    for (const { port, busPort } of others)
      await operator(first.port, `CLUSTER MEET 127.0.0.1 ${port} ${busPort}`);
  }
  const close = async (): Promise<void> => {
    for (const { process: child } of nodes) {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    }
    for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
  };
  return { nodes, urls: nodes.map(({ port }) => `redis://127.0.0.1:${port}`), close };
}
