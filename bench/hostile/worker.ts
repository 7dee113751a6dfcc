/** One running ingest worker as hostile traffic sees it from outside and the kernel from beneath. Linux only. */
import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { descendantsOf, descriptorsOf } from '../processes.ts';
import { type Samples, scrape, total } from '../scrape.ts';
import type { Target } from '../workload.ts';

const PROGRAM = 'ingest/worker.js';

export class HostileWorker {
  readonly pid: number;
  readonly port: number;
  readonly spoolDir: string;
  readonly sinkDir: string;
  readonly natsUrl: string;
  readonly #adminUrl: string;

  /** The worker that a process started, however indirectly. @throws when there is not exactly one */
  constructor(under = process.pid) {
    const workers = descendantsOf(under).filter((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(PROGRAM),
    );
    if (workers.length !== 1)
      throw new Error(`${workers.length} workers run below process ${under}, wanted is 1`);
    this.pid = workers[0] as number;
    const settings = new Map(
      readFileSync(`/proc/${this.pid}/environ`, 'utf8')
        .split('\0')
        .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
    );
    this.port = Number(settings.get('SLUICE_PORT'));
    this.#adminUrl = `http://127.0.0.1:${settings.get('SLUICE_ADMIN_PORT')}`;
    this.spoolDir = settings.get('SLUICE_SPOOL_DIR') ?? tmpdir();
    this.sinkDir = (settings.get('SLUICE_SINK') ?? '').replace('ndjson:', '');
    this.natsUrl = settings.get('SLUICE_NATS_URL') ?? '';
  }

  /** Bytes resident now. */
  rss(): number {
    const kib = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${this.pid}/status`, 'utf8'))?.[1];
    return Number(kib ?? 0) * 1024;
  }

  /** Bytes resident in what the C library's main arena has: no memory of V8's, so no collection moves it. */
  nativeBytes(): number {
    const maps = readFileSync(`/proc/${this.pid}/smaps`, 'utf8');
    const kib = /\[heap\][^[]*?\nRss: +(\d+) kB/.exec(maps)?.[1];
    if (kib === undefined) throw new Error(`worker ${this.pid} has no [heap]`);
    return Number(kib) * 1024;
  }

  /** Spool files that are open, and names of spool files in their folder: a crash between the two would leave one. */
  spoolFiles(): { open: number; named: number } {
    return {
      open: descriptorsOf(this.pid).filter((file) => file.includes('sluice-spool-')).length,
      named: readdirSync(this.spoolDir).filter((name) => name.startsWith('sluice-spool-')).length,
    };
  }

  openSockets(): number {
    return descriptorsOf(this.pid).filter((file) => file.startsWith('socket:')).length;
  }

  metrics(): Promise<Samples> {
    return scrape(`${this.#adminUrl}/metrics`);
  }

  /** Waits until no request is under way. @throws when one is still after `ms` */
  async idle(ms = 20_000): Promise<void> {
    for (const end = performance.now() + ms; performance.now() < end; ) {
      if (total(await this.metrics(), 'sluice_inflight_requests') === 0) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`requests are still under way after ${ms} ms`);
  }
}

/** Path of an envelope with the project's key. */
export const pathOf = ({ id, key }: Target): string => `/api/${id}/envelope/?compat_key=${key}`;

/** Least squares through (second, bytes): bytes per second. */
export function slope(points: readonly (readonly [second: number, bytes: number])[]): number {
  const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
  const x = mean(points.map(([second]) => second));
  const y = mean(points.map(([, bytes]) => bytes));
  const over = points.reduce((sum, [second, bytes]) => sum + (second - x) * (bytes - y), 0);
  const under = points.reduce((sum, [second]) => sum + (second - x) ** 2, 0);
  return under === 0 ? 0 : over / under;
}

/** Samples the resident memory while something runs. */
export class MemoryWatch {
  readonly #worker: HostileWorker;
  readonly #startedAt = performance.now();
  readonly #timer: NodeJS.Timeout;
  readonly points: (readonly [second: number, bytes: number])[] = [];

  constructor(worker: HostileWorker, everyMs = 200) {
    this.#worker = worker;
    this.#timer = setInterval(() => this.#sample(), everyMs);
    this.#sample();
  }

  #sample(): void {
    this.points.push([(performance.now() - this.#startedAt) / 1000, this.#worker.rss()]);
  }

  /** Bytes: at the start, the most, at the end; and bytes per second over the second half. */
  stop(): { before: number; peak: number; after: number; slope: number } {
    clearInterval(this.#timer);
    this.#sample();
    const bytes = this.points.map(([, resident]) => resident);
    return {
      before: bytes[0] as number,
      peak: Math.max(...bytes),
      after: bytes.at(-1) as number,
      slope: slope(this.points.slice(Math.floor(this.points.length / 2))),
    };
  }
}
