/**
 * Accepted frames for `sluice tail`, and refusals for `sluice tail --refused`. They cost nearly
 * nothing while no `tail` runs.
 *
 * A `tail` calls once a second. For half a minute after a call, so that a paused `tail` misses
 * nothing, a worker repeats each acknowledged frame on a plain subject. On one server a call
 * arrives before any acknowledgement that follows it, so `tail` begins with its first call. A
 * worker that starts or reconnects has heard no call yet: for three seconds it assumes that a
 * `tail` runs.
 *
 * A stream could repeat its messages itself, but it would do so at all times, and each repetition
 * is a copy: the p99 at half load was three times as long.
 *
 * A call for refusals says so, and no frame is repeated for it.
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

/** A worker's side. */
export class TailFeed {
  readonly #link: NatsLink;
  readonly #clock: Clock;
  /** Monotonic ms. */
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

  /** Whether somebody may be there to see. */
  get isWatched(): boolean {
    return this.#clock.monotonic() <= this.#shownUntil && this.#link.connected;
  }

  /** Shows a frame that its stream has acknowledged, or a refusal. Never throws. */
  show(what: FrameStream | typeof REFUSED, bytes: Uint8Array): void {
    if (!this.isWatched) return;
    try {
      this.#link.connection.publish(shownSubject(what), bytes);
    } catch {
      // Draining, or the server takes less than the frame's size. The frame is stored, and only not
      // shown.
    }
  }

  #showFor(ms: number): void {
    this.#shownUntil = Math.max(this.#shownUntil, this.#clock.monotonic() + ms);
  }
}

/**
 * Follows until the link is closed. @param onShown is told of each stream's frames in the order of
 * their acknowledgement, or of refusals
 */
export function follow(link: NatsLink, what: Followed, onShown: (bytes: Uint8Array) => void): void {
  link.subscribe(shownSubject(what === REFUSED ? REFUSED : '*'), ({ subject, data }) => {
    if (what === REFUSED || subject !== shownSubject(REFUSED)) onShown(data);
  });
  const call = (): void => {
    const { connection } = link;
    if (!connection.isDraining() && !connection.isClosed()) connection.publish(CALL_SUBJECT, callOf(what));
  };
  const timer = setInterval(call, CALL_EVERY_MS);
  link.onClose(() => clearInterval(timer));
  link.onReconnect(call);
  call();
}
