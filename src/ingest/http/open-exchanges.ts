import type { Clock } from '../../lib/clock.ts';
import { ANSWERS_PER_CLOSE, REQUESTS_IN_FLIGHT_MAX } from '../../limits.ts';

/**
 * Time in ms between two calls of {@link OpenExchanges.sweep}. Each call takes one sample of each
 * exchange's pace.
 */
export const SWEEP_MS = 1_000;

/** An exchange whose body is arriving, as {@link OpenExchanges} sees it. */
export type ReadingExchange = {
  /** Index in {@link OpenExchanges.reading}. */
  place: number | undefined;
  end(): void;
  checkPace(now: number): void;
};

/** State that all exchanges of a worker share. */
export class OpenExchanges {
  /**
   * Exchanges whose body has not arrived whole, in no order. Each exchange knows its index. When an
   * exchange leaves, the last one takes its place. A Set would grow and shrink with every burst,
   * which costs 3 % of a worker's time.
   */
  readonly reading: ReadingExchange[] = [];
  /** Number of exchanges between their first byte and their answer. */
  inFlight = 0;
  /** Whether every answer closes its connection: true once the worker stops. */
  allAnswersClose = false;
  /** Number of answers since {@link OpenExchanges.nextAnswerCloses} last returned true. */
  #answers = 0;
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #afterPoll: (run: () => void) => unknown;
  /** Exchanges whose body became complete in this turn of the event loop. */
  #whole: ReadingExchange[] = [];

  /**
   * @param afterPoll runs a function once everything that one poll of the sockets brought has been
   * handled
   */
  constructor(
    clock: Pick<Clock, 'monotonic'>,
    afterPoll: (run: () => void) => unknown = (run) => setImmediate(run),
  ) {
    this.#clock = clock;
    this.#afterPoll = afterPoll;
  }

  get isCrowded(): boolean {
    return this.inFlight > REQUESTS_IN_FLIGHT_MAX / 2;
  }

  /** The present time, monotonic ms. */
  now(): number {
    return this.#clock.monotonic();
  }

  /**
   * Counts an answer that is about to be sent, and returns whether it must close its connection:
   * one of ANSWERS_PER_CLOSE must.
   */
  nextAnswerCloses(): boolean {
    if (++this.#answers >= ANSWERS_PER_CLOSE) this.#answers = 0;
    return this.#answers === 0;
  }

  enter(exchange: ReadingExchange): void {
    this.inFlight++;
    exchange.place = this.reading.push(exchange) - 1;
  }

  /** Removes an exchange from `reading`: its body has arrived whole or is no longer wanted. */
  bodyEnded(exchange: ReadingExchange): void {
    if (exchange.place === undefined) return;
    const last = this.reading.pop() as ReadingExchange;
    if (last !== exchange) {
      this.reading[exchange.place] = last;
      last.place = exchange.place;
    }
    exchange.place = undefined;
  }

  /**
   * Reports the end of the body after the poll of the sockets that brought it. When the same packet
   * holds more than the request (another request, a trailer), uWebSockets.js closes the connection
   * before that, and nothing of the request is stored.
   */
  endAfterPoll(exchange: ReadingExchange): void {
    if (this.#whole.push(exchange) === 1) this.#afterPoll(() => this.#endWhole());
  }

  #endWhole(): void {
    const whole = this.#whole;
    this.#whole = [];
    for (const exchange of whole) exchange.end();
  }

  leave(exchange: ReadingExchange): void {
    this.inFlight--;
    this.bodyEnded(exchange);
  }

  /**
   * Checks all bodies that are arriving; called every SWEEP_MS. Cuts those that are too slow,
   * refuses those that were paused too long, and restarts the time-out of uWebSockets.js for the
   * others that take long. Goes from the last to the first: when an exchange is removed, the
   * exchange that takes its place has been checked already.
   */
  sweep(): void {
    const now = this.now();
    for (let at = this.reading.length - 1; at >= 0; at--) this.reading[at]?.checkPace(now);
  }
}
