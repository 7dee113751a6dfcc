/** Looks at a stand every few seconds: memory, open files and connections of its processes, what its servers hold, and how far the processors are behind. */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { descriptorsOf } from '../../../bench/processes.ts';
import { parseSamples, total } from '../../../bench/scrape.ts';
import type { Stand } from '../stand.ts';

const EVERY_MS = 5_000;
export const ROUNDS_PER_MINUTE = 60_000 / EVERY_MS;
const MIB = 1024 * 1024;
const PAGE_BYTES = 4096;

/** One look at one process. `minute`: since the watch began. `connections`: of clients, to the public port. */
export type Look = { minute: number; rssMib: number; files: number; connections: number };
/** One life of a process: whoever takes its place begins another. */
export type Life = {
  role: string;
  pid: number;
  looks: Look[];
  /** How many a look is the sum of, 1 when it is not said. */
  processes?: number;
};
/** `pending`: frames in the streams; `lagSec`: age of the oldest that is in hand. */
export type Lag = { minute: number; pending: number; lagSec: number };
/** What Redis and the broker hold. */
export type Held = {
  minute: number;
  redisKeys: number;
  redisMib: number;
  consumers: number;
  streamMib: number;
};

/** As `ls -l /proc/PID/fd` names the sockets of connections that are established to one of these ports. */
function socketsTo(ports: readonly number[]): Set<string> {
  const ESTABLISHED = '01';
  const sockets = new Set<string>();
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6'])
    for (const line of readFileSync(table, 'utf8').split('\n').slice(1)) {
      const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
      const port = Number.parseInt(local.split(':')[1] ?? '', 16);
      if (state === ESTABLISHED && ports.includes(port)) sockets.add(`socket:[${inode}]`);
    }
  return sockets;
}

/** Connections of a process that are established to one of its ports. Linux only. @throws when there is no such process */
export function connectionsTo(pid: number, port: number): number {
  const sockets = socketsTo([port]);
  return descriptorsOf(pid).filter((file) => sockets.has(file)).length;
}

/** @returns undefined when there is no such process (any more) */
function look(pid: number, minute: number, sockets: ReadonlySet<string>): Look | undefined {
  try {
    const pages = Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]);
    const files = descriptorsOf(pid);
    const connections = files.filter((file) => sockets.has(file)).length;
    return { minute, rssMib: (pages * PAGE_BYTES) / MIB, files: files.length, connections };
  } catch {
    return undefined;
  }
}

export class Watch {
  readonly lives: Life[] = [];
  readonly lags: Lag[] = [];
  readonly held: Held[] = [];
  readonly #stand: Stand;
  readonly #redis: Redis;
  readonly #began = performance.now();
  #running = true;
  readonly #done: Promise<void>;

  constructor(stand: Stand) {
    this.#stand = stand;
    this.#redis = new Redis(stand.backing.redis.url, { lazyConnect: true });
    this.#redis.on('error', () => undefined);
    this.#done = this.#run();
  }

  /** Since the watch began. */
  get minute(): number {
    return (performance.now() - this.#began) / 60_000;
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#done;
    this.#redis.disconnect();
  }

  async #run(): Promise<void> {
    for (let n = 1; this.#running; n++) {
      const sockets = socketsTo(this.#stand.ports);
      for (const [role, pid] of this.#processes()) this.#add(role, pid, sockets);
      const lag = await this.#lag().catch(() => undefined);
      if (lag) this.lags.push(lag);
      const held = await this.#hold().catch(() => undefined);
      if (held) this.held.push(held);
      const left = this.#began + n * EVERY_MS - performance.now();
      await pause(Math.max(0, left));
    }
  }

  #add(role: string, pid: number, sockets: ReadonlySet<string>): void {
    const seen = look(pid, this.minute, sockets);
    if (!seen) return;
    const life = this.lives.find((one) => one.pid === pid && one.role === role);
    if (life) life.looks.push(seen);
    else this.lives.push({ role, pid, looks: [seen] });
  }

  #processes(): (readonly [role: string, pid: number])[] {
    const { ingest, processors, backing } = this.#stand;
    const ours = ingest.flatMap((part, n) => [
      [`primary ${n + 1}`, part.pid] as const,
      ...part.children.map((pid) => [`worker of primary ${n + 1}`, pid] as const),
    ]);
    return [
      ...ours,
      ...processors.map(({ pid }) => ['processor', pid] as const),
      ['Redis', backing.redis.pid],
      ['broker', backing.singleBroker.pid],
    ];
  }

  async #lag(): Promise<Lag> {
    const pages = (await this.#stand.metrics('processor')).map(parseSamples);
    const lagSec = Math.max(...pages.map((page) => total(page, 'sluice_processing_lag_seconds')));
    return { minute: this.minute, pending: await this.#stand.queue.pending(), lagSec };
  }

  async #hold(): Promise<Held> {
    const [redisKeys, memory] = await Promise.all([this.#redis.dbsize(), this.#redis.info('memory')]);
    const redisBytes = Number(/used_memory_dataset:(\d+)/.exec(memory)?.[1]);
    let [consumers, streamBytes] = [0, 0];
    for await (const { state } of (await this.#stand.link.manager()).streams.list()) {
      consumers += state.consumer_count;
      streamBytes += state.bytes;
    }
    return {
      minute: this.minute,
      redisKeys,
      redisMib: redisBytes / MIB,
      consumers,
      streamMib: streamBytes / MIB,
    };
  }
}
