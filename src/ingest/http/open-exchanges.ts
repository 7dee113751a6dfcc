import type { Clock } from '../../lib/clock.ts';
import { ANSWERS_PER_CLOSE, REQUESTS_IN_FLIGHT_MAX } from '../../limits.ts';

/**
 * How often {@link OpenExchanges.sweep} is called. An exchange takes one sample of its pace each
 * time.
 */
export const SWEEP_MS = 1_000;

/** An exchange whose body arrives, as {@link OpenExchanges} sees it. */
export type ReadingExchange = {
  /** In {@link OpenExchanges.reading}. */
  place: number | undefined;
  end(): void;
  checkPace(now: number): void;
};

/** State that all exchanges of a worker share. */
export class OpenExchanges {
  /**
   * Exchanges whose body has not arrived whole, in no order. Each knows its place, and the last one
   * takes the place of one that leaves: a Set would grow and shrink anew with every burst, at 3 %
   * of a worker's time.
   */
  readonly reading: ReadingExchange[] = [];
  /** Exchanges between their first byte and their answer. */
  inFlight = 0;
  /** Set when the worker stops. */
  allAnswersClose = false;
  /** Answers since the last one that closed its connection. */
  #answers = 0;
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #afterPoll: (run: () => void) => unknown;
  /** Exchanges whose body became whole in this turn. */
  #whole: ReadingExchange[] = [];

  /**
   * @param afterPoll runs something when all that one poll of the sockets brought has been handed
   * on
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

  /** Monotonic ms. */
  now(): number {
    return this.#clock.monotonic();
  }

  /** True for one answer in ANSWERS_PER_CLOSE, which closes its connection. */
  nextAnswerCloses(): boolean {
    if (++this.#answers >= ANSWERS_PER_CLOSE) this.#answers = 0;
    return this.#answers === 0;
  }

  enter(exchange: ReadingExchange): void {
    this.inFlight++;
    exchange.place = this.reading.push(exchange) - 1;
  }

  /** The body of `exchange` has arrived whole, or is not wanted any more. */
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
   * The end of the body is told after the poll: uWebSockets.js closes a connection whose packet
   * holds anything behind the request (another one, a trailer). Of a request whose connection is
   * closed before its end is told, nothing is stored.
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
   * Once in SWEEP_MS: cuts what is too slow, refuses what waited for us too long, re-arms the
   * time-out of what is slow but lawful. From the last to the first, so that the one that takes the
   * place of one that is cut has been looked at.
   */
  sweep(): void {
    const now = this.now();
    for (let at = this.reading.length - 1; at >= 0; at--) this.reading[at]?.checkPace(now);
  }
}
