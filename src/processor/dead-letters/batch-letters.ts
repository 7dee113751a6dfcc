import type { DeadLetter } from '../../stream/dead-letter-format.ts';
import type { ProcessorMetrics } from '../metrics.ts';
import type { DeadLetterReport, DeadLetters } from './dead-letters.ts';

/** Letters, and their bytes, that gather before they go to the broker together. */
const GATHERED_MAX = 64;
const GATHERED_BYTES_MAX = 1024 * 1024;

type BatchLettersOptions = {
  deadLetters: DeadLetters;
  metrics: ProcessorMetrics;
  /** Called while the letters take long, to keep an open batch alive. */
  relieve?: () => Promise<void> | undefined;
};

/**
 * The dead letters of one batch. Several go to the broker together: to wait for it after each would
 * let the broken items of one project delay the items of all others.
 */
export class BatchLetters {
  readonly #options: BatchLettersOptions;
  #gathered: DeadLetter[] = [];
  #bytes = 0;
  /** Types of items, one for each item of the letters, in the same order. */
  readonly #items: string[] = [];
  readonly #filed: DeadLetterReport[] = [];

  constructor(options: BatchLettersOptions) {
    this.#options = options;
  }

  /**
   * @param items the types that are counted as dead letters, one for each item
   * @returns a promise where letters go now; it rejects as that of {@link filed} does
   */
  file(
    letter: DeadLetter,
    items: readonly string[] = [letter.type ?? letter.kind],
  ): Promise<void> | undefined {
    this.#gathered.push(letter);
    this.#items.push(...items);
    this.#bytes += letter.body.length + (letter.rest?.length ?? 0);
    const isFull = this.#gathered.length >= GATHERED_MAX || this.#bytes >= GATHERED_BYTES_MAX;
    return isFull ? this.filed() : undefined;
  }

  /**
   * Resolves when the broker has all letters, or they are given up.
   * @throws UnavailableError: try the batch again
   */
  async filed(): Promise<void> {
    const gathered = this.#gathered;
    if (gathered.length === 0) return;
    this.#gathered = [];
    this.#bytes = 0;
    const { deadLetters, relieve } = this.#options;
    this.#filed.push(...(await deadLetters.publish(gathered, relieve)));
  }

  /** Counts and logs the letters, once their batch is committed. */
  settle(): void {
    const { deadLetters, metrics } = this.#options;
    for (const type of this.#items.splice(0)) metrics.processed(type, 'dead_letter');
    deadLetters.settle(this.#filed.splice(0));
  }
}
