/** Reads the server's own metrics during the run, from ingest's admin port. */
import { parseSamples, type Samples, total } from '../../scrape.ts';

/**
 * One reading of the metrics. Counters become rates since the reading before. `second` is the
 * middle between the two readings, in seconds from the start of the measured time.
 */
export type ServerLook = { second: number; values: Record<string, number> };
export type ServerFigures = {
  looks: readonly ServerLook[];
  /** Number of requests by outcome, over the whole run. */
  outcomes: Record<string, number>;
  /** Why readings are missing. */
  problem?: string;
};

const EVERY_MS = 1_000;
const ANSWER_MS_MAX = 5_000;
const GAUGES: Readonly<Record<string, string>> = {
  'requests under way': 'sluice_inflight_requests',
  'buffered MiB': 'sluice_buffered_bytes',
  'spooled MiB': 'sluice_spooled_bytes',
  workers: 'sluice_workers',
};
const MIB = 1024 * 1024;

function outcomesIn(samples: Samples): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [sample, value] of samples) {
    const outcome = /^sluice_requests_total\{.*outcome="([^"]+)"/.exec(sample)?.[1];
    if (outcome !== undefined && sample.includes('endpoint="ingest"'))
      counts.set(outcome, (counts.get(outcome) ?? 0) + value);
  }
  return counts;
}

/**
 * Returns the mean between two readings, in milliseconds; undefined when there was no observation.
 */
function meanMs(before: Samples, after: Samples, name: string): number | undefined {
  const grown = (part: string): number => total(after, `${name}_${part}`) - total(before, `${name}_${part}`);
  const count = grown('count');
  return count > 0 ? (grown('sum') / count) * 1000 : undefined;
}

const RESTARTS = 'sluice_worker_restarts_total';
const MEANS: Readonly<Record<string, string>> = {
  'mean request ms': 'sluice_request_duration_seconds',
  'mean Redis call ms': 'sluice_redis_call_duration_seconds',
  'mean publish ms': 'sluice_publish_duration_seconds',
};

export class ServerWatch {
  readonly #url: string;
  /** Readings so far; `at` is in Unix milliseconds. */
  readonly #looks: { at: number; values: Record<string, number> }[] = [];
  #first: Samples | undefined;
  #last: { at: number; samples: Samples } | undefined;
  #problem: string | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(admin: string) {
    this.#url = `${admin}/metrics`;
  }

  async start(): Promise<void> {
    await this.#look();
    this.#timer = setInterval(() => void this.#look(), EVERY_MS);
  }

  /**
   * Ends the readings. Returns those of the measured time.
   * @param measuredFrom when the measured time began
   */
  async stop(measuredFrom: Date): Promise<ServerFigures> {
    clearInterval(this.#timer);
    await this.#look();
    const looks = this.#looks
      .map(({ at, values }) => ({ second: (at - measuredFrom.getTime()) / 1000, values }))
      .filter(({ second }) => second >= 0);
    const outcomes: Record<string, number> = {};
    const first = this.#first && outcomesIn(this.#first);
    for (const [outcome, count] of this.#last ? outcomesIn(this.#last.samples) : []) {
      const grown = count - (first?.get(outcome) ?? 0);
      if (grown !== 0) outcomes[outcome] = grown;
    }
    const problem = this.#problem;
    return { looks, outcomes, ...(problem !== undefined && { problem }) };
  }

  async #look(): Promise<void> {
    try {
      const response = await fetch(this.#url, { signal: AbortSignal.timeout(ANSWER_MS_MAX) });
      if (!response.ok) throw new Error(`answered ${response.status}`);
      this.#note(parseSamples(await response.text()));
    } catch (error) {
      // A load test may bring the server into trouble, so a failed reading does not end the run.
      // The report shows it.
      this.#problem ??= `${this.#url}: ${(error as Error).message}`;
    }
  }

  #note(samples: Samples): void {
    const at = performance.now();
    const before = this.#last;
    this.#first ??= samples;
    this.#last = { at, samples };
    if (!before) return;
    const seconds = (at - before.at) / 1000;
    const values: Record<string, number> = {};
    const earlier = outcomesIn(before.samples);
    for (const [outcome, count] of outcomesIn(samples)) {
      const rate = (count - (earlier.get(outcome) ?? 0)) / seconds;
      if (rate > 0) values[`${outcome}/s`] = rate;
    }
    for (const [name, metric] of Object.entries(GAUGES))
      values[name] = total(samples, metric) / (name.endsWith('MiB') ? MIB : 1);
    values['worker restarts'] = total(samples, RESTARTS) - total(this.#first ?? before.samples, RESTARTS);
    for (const [name, metric] of Object.entries(MEANS)) {
      const mean = meanMs(before.samples, samples, metric);
      if (mean !== undefined) values[name] = mean;
    }
    this.#looks.push({ at: Date.now() - (at - before.at) / 2, values });
  }
}
