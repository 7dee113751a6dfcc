import { DAY_MS, HOUR_MS } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import type { Sink } from './sink.ts';

const LOOK_EVERY_MS = HOUR_MS;

/** `now`: returns Unix milliseconds. When it rejects, nothing is removed. */
type RetentionOptions = { sink: Sink; days: number; now: () => Promise<number>; log: Log };

/**
 * Carries out SLUICE_RETENTION: at the start and then every hour, the sink removes the days on
 * which all records are older than the setting allows.
 */
export class Retention {
  readonly #options: RetentionOptions;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  start(): void {
    this.#looking = this.#look();
  }

  /** Stops looking. Waits for a removal that is under way. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    const { sink, days, now, log } = this.#options;
    try {
      await sink.removeBefore?.((await now()) - days * DAY_MS);
    } catch (error) {
      log.warn(
        { err: error },
        'sink: what is older than SLUICE_RETENTION could not be removed, trying again',
      );
    }
    if (!this.#isStopped) this.#timer = setTimeout(() => this.start(), LOOK_EVERY_MS).unref();
  }
}
