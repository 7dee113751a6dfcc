/**
 * Accepted frames for whoever looks on, as `sluice tail` does; nearly nothing while nobody does.
 *
 * An onlooker calls once a second. For three seconds after a call a worker repeats each frame that its stream has acknowledged on a
 * plain subject. The call travels through the same server before any frame that is accepted after it, so a look begins with its first
 * call. A worker that starts or reconnects does not know who called before: it takes it that somebody did.
 *
 * A stream could repeat its messages itself, but it would do so at all times: DECISIONS 56.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../lib/clock.ts';
import type { NatsLink } from './nats.ts';
import type { FrameStream } from './topology.ts';

const CALL_SUBJECT = 'sluice.look';
const CALL_EVERY_MS = 1_000;
const SHOWN_MS = 3 * CALL_EVERY_MS;

const shownSubject = (stream: FrameStream | '*'): string => `sluice.shown.${stream}`;

/** A worker's side. */
export class Onlookers {
  readonly #link: NatsLink;
  readonly #clock: Clock;
  /** Monotonic ms. */
  #shownUntil: number;

  constructor({ link, clock }: { link: NatsLink; clock: Clock }) {
    this.#link = link;
    this.#clock = clock;
    this.#shownUntil = clock.monotonic() + SHOWN_MS;
    link.onReconnect(() => this.#called());
    link.connection.subscribe(CALL_SUBJECT, { callback: () => this.#called() });
  }

  /** To be called with each frame that its stream has acknowledged. */
  show(stream: FrameStream, frame: Uint8Array): void {
    const { connection, connected } = this.#link;
    if (this.#clock.monotonic() > this.#shownUntil || !connected || connection.isDraining()) return;
    connection.publish(shownSubject(stream), frame);
  }

  #called(): void {
    this.#shownUntil = this.#clock.monotonic() + SHOWN_MS;
  }
}

/** Looks on until the connection closes. @param onFrame is told of each stream's frames in the order of their acknowledgement */
export function lookOn(connection: NatsConnection, onFrame: (frame: Uint8Array) => void): void {
  connection.subscribe(shownSubject('*'), {
    callback: (error, message) => {
      if (!error) onFrame(message.data);
    },
  });
  const call = (): void => {
    if (!connection.isDraining()) connection.publish(CALL_SUBJECT);
  };
  const timer = setInterval(call, CALL_EVERY_MS);
  void connection.closed().then(() => clearInterval(timer));
  call();
}
