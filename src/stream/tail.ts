/**
 * Shows accepted frames to `sluice tail`, and refusals to `sluice tail --refused`. Without a
 * running `tail` this costs nearly nothing.
 *
 * A `tail` sends a call once a second. For half a minute after a call, a worker repeats each
 * acknowledged frame on a plain subject. So a `tail` that is paused for less than half a minute
 * misses nothing. A worker that has just started or reconnected may have missed a call, so for
 * three seconds it assumes that a `tail` runs.
 *
 * JetStream itself could repeat the messages of a stream (`republish`), but it would do so all the
 * time. That made the p99 of requests at half load three times as long.
 *
 * The calls of `sluice tail --refused` are marked: after one of them, workers repeat refusals but
 * no frames.
 */
import type { Clock } from '../lib/clock.ts';
import type { NatsLink } from './nats.ts';
import type { FrameStream } from './topology.ts';

const CALL_SUBJECT = 'sluice.look';
const CALL_EVERY_MS = 1_000;
const SHOWN_AFTER_CALL_MS = 30_000;
const SHOWN_AFTER_START_MS = 3 * CALL_EVERY_MS;

const REFUSED = 'refused';
const shownSubject = (what: FrameStream | typeof REFUSED | '*'): string => `sluice.shown.${what}`;

export type Followed = 'frames' | typeof REFUSED;
const callOf = (what: Followed): string => (what === 'frames' ? '' : what);

/** The worker's side, for frames or for refusals. */
export class TailFeed {
  readonly #link: NatsLink;
  readonly #clock: Clock;
  /** Until when frames or refusals are shown, monotonic ms. */
  #shownUntil = 0;

  constructor({ link, clock, of }: { link: NatsLink; clock: Clock; of: Followed }) {
    this.#link = link;
    this.#clock = clock;
    this.#showFor(SHOWN_AFTER_START_MS);
    link.onReconnect(() => this.#showFor(SHOWN_AFTER_START_MS));
    link.subscribe(CALL_SUBJECT, (message) => {
      if (message.string() === callOf(of)) this.#showFor(SHOWN_AFTER_CALL_MS);
    });
  }

  /** Whether a `tail` may be watching. */
  get isWatched(): boolean {
    return this.#clock.monotonic() <= this.#shownUntil && this.#link.connected;
  }

  /** Shows a frame that its stream has acknowledged, or a refusal. Never throws. */
  show(what: FrameStream | typeof REFUSED, bytes: Uint8Array): void {
    if (!this.isWatched) return;
    try {
      this.#link.connection.publish(shownSubject(what), bytes);
    } catch {
      // The connection is draining, or the server takes no message of this size. Only the display
      // is lost: a frame is already stored.
    }
  }

  #showFor(ms: number): void {
    this.#shownUntil = Math.max(this.#shownUntil, this.#clock.monotonic() + ms);
  }
}

/**
 * Follows frames or refusals.
 * @param onShown gets the frames of each stream in the order of their acknowledgement, or the
 * refusals
 * @returns a function that stops following
 */
export function follow(link: NatsLink, what: Followed, onShown: (bytes: Uint8Array) => void): () => void {
  const subscription = link.subscribe(shownSubject(what === REFUSED ? REFUSED : '*'), ({ subject, data }) => {
    if (what === REFUSED || subject !== shownSubject(REFUSED)) onShown(data);
  });
  const call = (): void => {
    const { connection } = link;
    if (!connection.isDraining() && !connection.isClosed()) connection.publish(CALL_SUBJECT, callOf(what));
  };
  const timer = setInterval(call, CALL_EVERY_MS).unref();
  call();
  return () => {
    clearInterval(timer);
    subscription.unsubscribe();
  };
}
