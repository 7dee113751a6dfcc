import { readdir, readFile } from 'node:fs/promises';
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { counter, gauge, type MetricsSnapshot } from './metrics.ts';

/**
 * Interval at which Node measures the delay of the event loop. Each measurement wakes an idle
 * process. With an interval of 50 ms, these wake-ups took most of the CPU of an idle process, a
 * thousandth of a core.
 */
const LOOP_MS = 250;
/**
 * Least time between two resets of the delays. The page reads them each second: with a reset at
 * each reading, Prometheus would miss most of them.
 */
const LOOP_KEPT_MS = 10_000;
const NANOS = 1e9;

/**
 * The `process_*` and `nodejs_*` metrics of this process, under the names that prom-client gives
 * them. Between two scrapes only the delays of the event loop are collected. A process that nobody
 * scrapes does not collect them, so it sleeps longer.
 */
export class ProcessFigures {
  readonly #delays: IntervalHistogram = monitorEventLoopDelay({ resolution: LOOP_MS });
  #keptSince = performance.now();

  stop(): void {
    this.#delays.disable();
  }

  /** @param name value of the label `process` */
  async snapshot(name: string): Promise<MetricsSnapshot> {
    this.#delays.enable(); // does nothing after the first scrape
    const value = (metric: string, help: string, number: number | undefined): MetricsSnapshot[number] => {
      const kind = metric.endsWith('_total') ? counter : gauge;
      return kind(metric, help, number === undefined ? [] : [[{ process: name }, number]]);
    };
    const { user, system } = process.cpuUsage();
    const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
    const [openFiles, filesMax] = await Promise.all([countOpenFiles(), openFilesMax()]);
    const started = Date.now() / 1000 - process.uptime();
    return [
      value('process_cpu_user_seconds_total', 'CPU time in the program', user / 1e6),
      value('process_cpu_system_seconds_total', 'CPU time in the kernel', system / 1e6),
      value('process_cpu_seconds_total', 'CPU time', (user + system) / 1e6),
      value('process_start_time_seconds', 'Start, Unix seconds', started),
      value('process_resident_memory_bytes', 'Resident memory', rss),
      value('process_open_fds', 'Open files and sockets', openFiles),
      value('process_max_fds', 'Files and sockets that may be open', filesMax),
      value('nodejs_heap_size_total_bytes', "V8's heap", heapTotal),
      value('nodejs_heap_size_used_bytes', "What V8's heap holds", heapUsed),
      value('nodejs_external_memory_bytes', "Memory beside V8's heap: bodies, frames", external),
      ...this.#loop(value),
    ];
  }

  /** Delays of the event loop. Node's histogram adds LOOP_MS to them, which is subtracted. */
  #loop(value: (metric: string, help: string, number: number) => MetricsSnapshot[number]): MetricsSnapshot {
    const delays = this.#delays;
    const seconds = (nanos: number): number =>
      Math.max(0, (Number.isFinite(nanos) ? nanos : 0) - LOOP_MS * 1e6) / NANOS;
    const help = (what: string): string => `Delay of the event loop, ${what} of the last seconds`;
    const values = [
      value('nodejs_eventloop_lag_mean_seconds', help('mean'), seconds(delays.mean)),
      value('nodejs_eventloop_lag_p50_seconds', help('median'), seconds(delays.percentile(50))),
      value('nodejs_eventloop_lag_p99_seconds', help('99th percentile'), seconds(delays.percentile(99))),
      value('nodejs_eventloop_lag_max_seconds', help('longest'), seconds(delays.max)),
    ];
    if (performance.now() - this.#keptSince > LOOP_KEPT_MS) {
      this.#keptSince = performance.now();
      delays.reset();
    }
    return values;
  }
}

/** Returns undefined where the system has no /proc. */
async function countOpenFiles(): Promise<number | undefined> {
  const files = await readdir('/proc/self/fd').catch(() => undefined);
  return files && files.length - 1; // minus the folder's own descriptor
}

async function openFilesMax(): Promise<number | undefined> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const [, soft] = /^Max open files\s+(\d+)/m.exec(limits) ?? [];
  return soft === undefined ? undefined : Number(soft);
}
