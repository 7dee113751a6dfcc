import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { Distribution, SECONDS_BOUNDS } from '../lib/metrics/distribution.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { SINK_STALLED_MS } from '../limits.ts';
import type { Sink } from './sink.ts';
import { UnavailableError } from './unavailable.ts';

/**
 * How a sink fares, as metrics, `/readyz` and the log say it. It fails while the last call of one
 * of its streams failed, while a call has taken longer than SINK_STALLED_MS (a table that somebody
 * locks, a disk that hangs), and while it says so itself.
 */
export class SinkHealth {
  readonly name: string;
  readonly sink: Sink;
  readonly outage: OutageLog;
  /** Seconds of the batches that were committed. */
  readonly #commits = new Distribution(SECONDS_BOUNDS);
  readonly #clock: Clock;
  #stalled = 0;

  constructor(name: string, sink: Sink, { log, clock }: { log: Log; clock: Clock }) {
    this.name = name;
    this.sink = sink;
    this.#clock = clock;
    this.outage = sink.outage ?? new OutageLog({ log: log.child({ sink: name }), clock });
  }

  get isFailing(): boolean {
    return this.outage.isAway || this.#stalled > 0 || (this.sink.isFailing ?? false);
  }

  get writeSeconds(): Distribution {
    return this.sink.writeSeconds ?? this.#commits;
  }

  async commit<T>(stream: string, work: () => Promise<T>): Promise<T> {
    const began = this.#clock.monotonic();
    const result = await this.watch(stream, work);
    this.#commits.observe((this.#clock.monotonic() - began) / 1000);
    return result;
  }

  /** An outage that `work` throws names the sink. */
  async watch<T>(stream: string, work: () => T | Promise<T>): Promise<T> {
    let isStalled = false;
    const timer = setTimeout(() => {
      isStalled = true;
      this.#stalled++;
      this.outage.failed(stream, `no answer for ${SINK_STALLED_MS / 1000} s`);
    }, SINK_STALLED_MS);
    timer.unref();
    try {
      const result = await work();
      this.outage.worked(stream);
      return result;
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      this.outage.failed(stream, error.message);
      throw new UnavailableError(`${this.name}: ${error.message}`, { cause: error, isTold: true });
    } finally {
      clearTimeout(timer);
      if (isStalled) this.#stalled--;
    }
  }
}
