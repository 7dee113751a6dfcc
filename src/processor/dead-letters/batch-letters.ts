import type { DeadLetter } from '../../stream/dead-letter-format.ts';
import type { ProcessorMetrics } from '../metrics.ts';
import type { DeadLetterReport, DeadLetters } from './dead-letters.ts';

/** Letters and their bytes that are on their way to the broker at once. */
const UNDER_WAY_MAX = 64;
const UNDER_WAY_BYTES_MAX = 1024 * 1024;

type Filed = { report: DeadLetterReport; items: readonly string[] };

/**
 * The dead letters of one batch. Several are on their way at once: to wait for the broker after
 * each would let one project's broken items delay the items of all others.
 */
export class BatchLetters {
  readonly #deadLetters: DeadLetters;
  readonly #metrics: ProcessorMetrics;
  #underWay: Promise<Filed>[] = [];
  #bytes = 0;
  #filed: Filed[] = [];

  constructor({ deadLetters, metrics }: { deadLetters: DeadLetters; metrics: ProcessorMetrics }) {
    this.#deadLetters = deadLetters;
    this.#metrics = metrics;
  }

  /**
   * @param items the types that are counted as dead letters, one for each item
   * @returns a promise where the letters so far must be waited for; it rejects like {@link filed}
   */
  file(
    letter: DeadLetter,
    items: readonly string[] = [letter.type ?? letter.kind],
  ): Promise<void> | undefined {
    const underWay = this.#deadLetters.publish(letter).then((report) => ({ report, items }));
    underWay.catch(() => undefined); // filed() tells
    this.#underWay.push(underWay);
    this.#bytes += letter.body.length + (letter.rest?.length ?? 0);
    const isFull = this.#underWay.length >= UNDER_WAY_MAX || this.#bytes >= UNDER_WAY_BYTES_MAX;
    return isFull ? this.filed() : undefined;
  }

  /**
   * Resolves when the broker has all letters, or they are given up.
   * @throws UnavailableError: try the batch again
   */
  async filed(): Promise<void> {
    if (this.#underWay.length === 0) return;
    const results = await this.#over();
    for (const one of results) {
      if (one.status === 'rejected') throw one.reason;
      this.#filed.push(one.value);
    }
  }

  /** The batch is abandoned: resolves when no code reads the bytes of its letters any more. */
  async abandon(): Promise<void> {
    await this.#over();
    this.#filed = [];
  }

  /** Counts and logs the letters that are filed, once their batch is committed. */
  settle(): void {
    const filed = this.#filed;
    this.#filed = [];
    for (const { items } of filed) for (const type of items) this.#metrics.processed(type, 'dead_letter');
    this.#deadLetters.settle(filed.map(({ report }) => report));
  }

  #over(): Promise<PromiseSettledResult<Filed>[]> {
    const underWay = this.#underWay;
    this.#underWay = [];
    this.#bytes = 0;
    return Promise.allSettled(underWay);
  }
}
