/**
 * Pauses large uploads at their sockets while the stream, the disk or the inflaters are behind.
 *
 * The stream: an answer is due two seconds after the last body byte, and a broker stores some 100
 * MB a second. If 400 bodies of 5 MB ended together, most could not be stored in time. So the
 * worker does not read the last bytes of large uploads before there is room. A large upload is
 * *arriving* until its last byte has come, and *whole* from then on, until its envelope is stored
 * or refused.
 *
 * Disk and inflaters: each upload pauses itself when many of its bytes wait for them. But when an
 * upload resumes, its socket may deliver half a MiB at once, and 400 such sockets fill the worker's
 * memory. So the waiting bytes of all uploads are counted together, too.
 *
 * All arriving uploads are paused while whole uploads have WHOLE_UPLOADS_BYTES_MAX bytes, or
 * QUEUED_BYTES_MAX bytes wait. Afterwards the uploads resume in the order in which they were
 * paused. Only a few resume in each turn of the event loop, because each may be whole after its
 * next chunk. Both sums fall without a paused upload, so there is no deadlock.
 *
 * A small compressed body cannot be paused, because it is whole before the worker knows that it is
 * large. If such a body waits in the {@link InflationQueue}, it counts as whole. If it is inflated
 * in the event loop, its spooled bytes count as `unpaced` (budget.ts): beyond that bound the
 * project gets 503, and no upload is paused. Otherwise such bodies of one project would keep the
 * uploads of all others paused.
 */
import { QUEUED_BYTES_MAX, UPLOADS_RESUMED_PER_TURN, WHOLE_UPLOADS_BYTES_MAX } from '../../limits.ts';

/** An upload that is being spooled or inflated in pieces. */
export type PacedUpload = { pause(paused: boolean): void };

export class UploadPacer {
  #wholeBytes = 0;
  #queuedBytes = 0;
  /**
   * Arriving uploads in the order in which they came. `#paused` has the paused ones, in the order
   * in which they were paused.
   */
  readonly #arriving = new Set<PacedUpload>();
  readonly #paused = new Set<PacedUpload>();
  #releasing: NodeJS.Immediate | undefined;

  /** Spooled bytes of the uploads that are whole (see the head of this file). */
  get wholeBytes(): number {
    return this.#wholeBytes;
  }

  /** Bytes that wait for inflaters and the disk. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Adds an arriving upload. It may be paused at once. */
  enter(one: PacedUpload): void {
    this.#arriving.add(one);
    if (this.#isFull) this.#pause(one);
  }

  /**
   * Removes an upload that is whole or has failed. The pacer no longer calls its `pause`, not even
   * to resume it.
   */
  leave(one: PacedUpload): void {
    this.#arriving.delete(one);
    this.#paused.delete(one);
  }

  /**
   * Counts spooled bytes of whole uploads.
   * @param delta bytes; negative when the envelope of a whole upload is stored or refused
   */
  addWhole(delta: number): void {
    this.#change(delta, 0);
  }

  /**
   * Counts bytes that wait.
   * @param delta bytes that begin to wait for an inflater or the disk; negative when their wait
   * ends
   */
  queue(delta: number): void {
    this.#change(0, delta);
  }

  #change(whole: number, queued: number): void {
    const wasFull = this.#isFull;
    this.#wholeBytes += whole;
    this.#queuedBytes += queued;
    if (this.#isFull && !wasFull) for (const one of this.#arriving) this.#pause(one);
    else this.#releaseSoon();
  }

  get #isFull(): boolean {
    return this.#wholeBytes >= WHOLE_UPLOADS_BYTES_MAX || this.#queuedBytes >= QUEUED_BYTES_MAX;
  }

  #pause(one: PacedUpload): void {
    if (this.#paused.has(one)) return;
    this.#paused.add(one);
    one.pause(true);
  }

  #releaseSoon(): void {
    if (this.#releasing || this.#isFull || this.#paused.size === 0) return;
    this.#releasing = setImmediate(() => {
      this.#releasing = undefined;
      if (!this.#isFull) this.#releaseFew();
      this.#releaseSoon();
    });
  }

  #releaseFew(): void {
    let left = UPLOADS_RESUMED_PER_TURN;
    for (const one of this.#paused) {
      if (left-- === 0) return;
      this.#paused.delete(one);
      one.pause(false);
    }
  }
}
