/**
 * Holds large uploads back at their sockets while the stream is behind.
 *
 * An answer is due two seconds after the last body byte, and a broker takes some 100 MB a second: of 400 bodies of 5 MB that end together
 * most could not be stored in time, although there is nothing wrong but their coming at once. So last bytes are not read before there is
 * room. A spooled upload *approaches* while its body arrives and has *landed* from its last byte until it is disposed of. While
 * LANDED_BYTES_MAX have landed, those that approach are paused, whichever of them would end next: TCP tells their clients to wait, and
 * what they have sent stays in the kernel. Then they are let go in the order in which they came, a few in each turn of the loop,
 * since each may land with its next chunk.
 *
 * The price: an upload in the middle of its body is paused with the others, and its client sees a slower network. A small
 * compressed body cannot be held back: it is whole before anybody knows that it is large.
 */
import { LANDED_BYTES_MAX, LANDINGS_PER_TURN } from '../limits.ts';

/** One upload that is being spooled. */
export type Approach = { hold(held: boolean): void };

export class Landing {
  #landedBytes = 0;
  /** In the order in which they came; `held` holds some of the same. */
  readonly #approaching = new Set<Approach>();
  readonly #held = new Set<Approach>();
  #releasing: NodeJS.Immediate | undefined;

  /** Bytes of uploads that are whole and not yet disposed of. */
  get landedBytes(): number {
    return this.#landedBytes;
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
    const wasFull = this.#isFull;
    this.#landedBytes += delta;
    if (this.#isFull && !wasFull) for (const approach of this.#approaching) this.#hold(approach);
    else this.#releaseSoon();
  }

  get #isFull(): boolean {
    return this.#landedBytes >= LANDED_BYTES_MAX;
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
