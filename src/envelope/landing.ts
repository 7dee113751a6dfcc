/**
 * Holds large uploads back at their sockets while the stream, the disk or the decoders are behind.
 *
 * The stream: an answer is due two seconds after the last body byte, and a broker takes some 100 MB
 * a second. Of 400 bodies of 5 MB that end together most could not be stored in time. So last bytes
 * are not read before there is room. A large upload *approaches* while its body arrives, and has
 * *landed* from its last byte until it is disposed of.
 *
 * Disk and decoders: each upload pauses by itself when much of it waits for them. When it goes on,
 * its socket may deliver half a MiB at once, and 400 of those fill the worker's memory. So the
 * waiting bytes of all uploads are counted too.
 *
 * While LANDED_BYTES_MAX have landed or QUEUED_BYTES_MAX wait, all approaching uploads are paused:
 * TCP tells their clients to wait, and bytes on their way stay in the kernel. Then they go on in
 * the order in which they came, a few in each turn of the loop, since each may land with its next
 * chunk. Both sums fall without any of them going on, so there is no deadlock.
 *
 * The price: an upload in the middle of its body is paused with the others, and its client sees a
 * slower network. A small compressed body cannot be held back: it is whole before the worker knows
 * that it is large.
 */
import { LANDED_BYTES_MAX, LANDINGS_PER_TURN, QUEUED_BYTES_MAX } from '../limits.ts';

/** One upload that is being spooled or decoded in pieces. */
export type Approach = { hold(held: boolean): void };

export class Landing {
  #landedBytes = 0;
  #queuedBytes = 0;
  /** In the order in which they came; `held` holds some of the same. */
  readonly #approaching = new Set<Approach>();
  readonly #held = new Set<Approach>();
  #releasing: NodeJS.Immediate | undefined;

  /** Bytes of uploads that are whole and not yet disposed of. */
  get landedBytes(): number {
    return this.#landedBytes;
  }

  /** Bytes that wait for decoders and the disk. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** May call `hold` at once. */
  approach(approach: Approach): void {
    this.#approaching.add(approach);
    if (this.#isFull) this.#hold(approach);
  }

  /** It has landed or failed: it is not held any more, and not told so. */
  leave(approach: Approach): void {
    this.#approaching.delete(approach);
    this.#held.delete(approach);
  }

  /** @param delta bytes; negative when an upload that has landed is disposed of */
  land(delta: number): void {
    this.#change(delta, 0);
  }

  /**
   * @param delta bytes that begin to wait for a decoder or the disk; negative when their wait ends
   */
  queue(delta: number): void {
    this.#change(0, delta);
  }

  #change(landed: number, queued: number): void {
    const wasFull = this.#isFull;
    this.#landedBytes += landed;
    this.#queuedBytes += queued;
    if (this.#isFull && !wasFull) for (const approach of this.#approaching) this.#hold(approach);
    else this.#releaseSoon();
  }

  get #isFull(): boolean {
    return this.#landedBytes >= LANDED_BYTES_MAX || this.#queuedBytes >= QUEUED_BYTES_MAX;
  }

  #hold(approach: Approach): void {
    if (this.#held.has(approach)) return;
    this.#held.add(approach);
    approach.hold(true);
  }

  #releaseSoon(): void {
    if (this.#releasing || this.#isFull || this.#held.size === 0) return;
    this.#releasing = setImmediate(() => {
      this.#releasing = undefined;
      if (!this.#isFull) this.#releaseFew();
      this.#releaseSoon();
    });
  }

  #releaseFew(): void {
    let left = LANDINGS_PER_TURN;
    for (const approach of this.#held) {
      if (left-- === 0) return;
      this.#held.delete(approach);
      approach.hold(false);
    }
  }
}
