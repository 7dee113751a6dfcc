import type { MsgHdrs } from '@nats-io/transport-node';
import { PUBLISH_ANSWER_MS_MIN, PUBLISH_ATTEMPT_MS, PUBLISH_PAUSE_MS } from '../../limits.ts';
import type { traceLines } from '../frame.ts';
import type { Ack } from './ack.ts';

export type Outgoing = {
  /** For figures and the log. */
  stream: string;
  subject: string;
  data: Uint8Array;
  /** Monotonic ms after which no further attempt is made. */
  deadline: number;
  /** As {@link traceLines} makes them. */
  traces?: readonly string[] | undefined;
};

export type SendResult =
  | { result: 'stored'; sequence: number }
  /** `refused`: certainly not in the stream. `unknown`: it may be, or may come to be. */
  | { result: 'refused' | 'unknown'; reason: string };

/** What a publication needs of its sender (sender.ts, which imports this file). */
export type Wire = {
  /** @returns false when nothing can be sent at this moment */
  transmit(message: Outgoing, headers: MsgHdrs, replyTo: string): boolean;
  /** Nothing can be sent at this moment, but soon; {@link Publication.send} is called then. */
  readonly isReconnecting: boolean;
  /** Notes that nobody answers for the stream. @returns whether that has been so for too long */
  isLeaderless(stream: string): boolean;
  monotonic(): number;
};

/**
 * One message on its way into a stream. It is sent, and sent again with the same bytes and the same
 * Nats-Msg-Id, until it is stored, is refused, or its deadline passes. The stream drops a
 * repetition (it remembers ids for two minutes, the deadline is seconds), so a repetition costs
 * only bytes.
 *
 * A late answer to the first attempt is as good as an answer to the third. The message is certainly
 * not stored only when each attempt has been answered by an error that says so. An attempt without
 * an answer may still be in a buffer, so the result stays `unknown` unless an acknowledgement
 * comes. Each attempt has a reply subject of its own: where a cluster changes its leader, the one
 * before and the one after can both answer the same attempt.
 *
 * Two states. *sent*: an answer may come, and the timer bounds the wait. *pausing*: no answer is
 * expected, and the timer leads to the next attempt. A lost connection ends both: the message is
 * sent again once there is a connection. A message that is certainly not stored is refused when the
 * broker, or the stream's leader, has been away for BROKER_AWAY_MS_MAX.
 */
export class Publication {
  readonly #wire: Wire;
  readonly #message: Outgoing;
  readonly #headers: MsgHdrs;
  readonly #replyTo: string;
  readonly #done: (sent: SendResult) => void;
  #sent = 0;
  /** Attempts that were answered by an error that says "not stored". */
  readonly #refused: number[] = [];
  #reason = 'no acknowledgement';
  #timer: NodeJS.Timeout | undefined;
  #finished = false;

  constructor(
    wire: Wire,
    outgoing: { message: Outgoing; headers: MsgHdrs; replyTo: string },
    done: (sent: SendResult) => void,
  ) {
    this.#wire = wire;
    this.#message = outgoing.message;
    this.#headers = outgoing.headers;
    this.#replyTo = outgoing.replyTo;
    this.#done = done;
  }

  /** Makes an attempt. Also called when the connection is there again. */
  send(): void {
    if (this.#finished) return;
    if (this.#left <= 0) return this.#giveUp();
    const replyTo = `${this.#replyTo}.${this.#sent + 1}`;
    if (this.#wire.transmit(this.#message, this.#headers, replyTo)) this.#sent++;
    else if (this.#certain && !this.#wire.isReconnecting)
      return this.#finish({ result: 'refused', reason: 'nothing can be sent' });
    this.#wait(PUBLISH_ATTEMPT_MS);
  }

  /** @param attempt from 1 on, as in its reply subject */
  answered(attempt: number, ack: Ack): void {
    if (this.#finished) return;
    if (ack.kind === 'stored') return this.#finish({ result: 'stored', sequence: ack.sequence });
    this.#reason = ack.reason;
    if (ack.kind === 'unclear') return this.#pause();
    if (!this.#refused.includes(attempt)) this.#refused.push(attempt);
    const isMissing = ack.kind === 'no responders' && this.#wire.isLeaderless(this.#message.stream);
    if (ack.kind === 'refused' || isMissing) return this.#giveUp();
    this.#pause();
  }

  /** There has been no connection for too long: no answer will come, and nothing can be sent. */
  away(): void {
    if (this.#certain) this.#finish({ result: 'refused', reason: 'not connected' });
  }

  /** Whether none of the attempts can be in the stream. */
  get #certain(): boolean {
    return this.#refused.length === this.#sent;
  }

  get #left(): number {
    return this.#message.deadline - this.#wire.monotonic();
  }

  /** After a refusal: an attempt that nobody can answer would make of it an unknown. */
  #pause(): void {
    this.#wait(PUBLISH_PAUSE_MS, PUBLISH_ANSWER_MS_MIN);
  }

  /**
   * An attempt follows, or at the deadline the end. What follows is chosen now: a timer may be
   * early.
   *
   * @param room ms that must be left for the answer to that attempt
   */
  #wait(ms: number, room = 0): void {
    clearTimeout(this.#timer);
    const left = this.#left;
    this.#timer =
      ms + room < left
        ? setTimeout(() => this.send(), ms)
        : setTimeout(() => this.#giveUp(), Math.max(0, left));
  }

  #giveUp(): void {
    this.#finish({ result: this.#certain ? 'refused' : 'unknown', reason: this.#reason });
  }

  #finish(sent: SendResult): void {
    if (this.#finished) return;
    this.#finished = true;
    clearTimeout(this.#timer);
    this.#done(sent);
  }
}
