/** Looks at every process of a stand every few seconds: memory, open files, and how far the processors are behind. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { parseSamples, total } from '../../../bench/scrape.ts';
import type { Stand } from '../stand.ts';

const EVERY_MS = 5_000;
export const ROUNDS_PER_MINUTE = 60_000 / EVERY_MS;
const MIB = 1024 * 1024;
const PAGE_BYTES = 4096;

/** One look at one process. `minute`: since the watch began. */
export type Look = { minute: number; rssMib: number; files: number };
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

/** Undefined when there is no such process (any more). */
function look(pid: number, minute: number): Look | undefined {
  try {
    const pages = Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]);
    const files = readdirSync(`/proc/${pid}/fd`).length;
    return { minute, rssMib: (pages * PAGE_BYTES) / MIB, files };
  } catch {
    return undefined;
  }
}

export class Watch {
  readonly lives: Life[] = [];
  readonly lags: Lag[] = [];
  readonly #stand: Stand;
  readonly #began = performance.now();
  #running = true;
  readonly #done: Promise<void>;

  constructor(stand: Stand) {
    this.#stand = stand;
    this.#done = this.#run();
  }

  /** Since the watch began. */
  get minute(): number {
    return (performance.now() - this.#began) / 60_000;
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#done;
  }

  async #run(): Promise<void> {
    for (let n = 1; this.#running; n++) {
      for (const [role, pid] of this.#processes()) this.#add(role, pid);
      const lag = await this.#lag().catch(() => undefined);
      if (lag) this.lags.push(lag);
      const left = this.#began + n * EVERY_MS - performance.now();
      await pause(Math.max(0, left));
    }
  }

  #add(role: string, pid: number): void {
    const seen = look(pid, this.minute);
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
}
