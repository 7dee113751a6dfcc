import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { Distribution, SECONDS_BOUNDS } from '../lib/metrics/distribution.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { SINK_STALLED_MS } from '../limits.ts';
import type { Sink } from './sink.ts';
import { UnavailableError } from './unavailable.ts';

/**
 * How a sink fares, as metrics, `/readyz` and the log say it. It fails while the last call of one
 * of its streams failed, and while a call has taken longer than SINK_STALLED_MS (a table that
 * somebody locks, a disk that hangs). A sink with an `outage` of its own says when it works again.
 */
export class SinkHealth {
  readonly name: string;
  readonly sink: Sink;
  readonly outage: OutageLog;
  /** Seconds of the batches that were committed. */
  readonly #commits = new Distribution(SECONDS_BOUNDS);
  #stalled = 0;

  constructor(name: string, sink: Sink, { log, clock }: { log: Log; clock: Clock }) {
    this.name = name;
    this.sink = sink;
    this.outage = sink.outage ?? new OutageLog({ log: log.child({ sink: name }), clock });
  }

  get isFailing(): boolean {
    return this.outage.isAway || this.#stalled > 0;
  }

  get writeSeconds(): Distribution {
    return this.sink.writeSeconds ?? this.#commits;
  }

  /** A batch took so long. */
  wrote(ms: number): void {
    this.#commits.observe(ms / 1000);
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
      if (isStalled || !this.sink.outage) this.outage.worked(stream);
      return result;
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      if (!this.sink.outage) this.outage.failed(stream, error.message);
      throw new UnavailableError(`${this.name}: ${error.message}`, { cause: error, isTold: true });
    } finally {
      clearTimeout(timer);
      if (isStalled) this.#stalled--;
    }
  }
}
