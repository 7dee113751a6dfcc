/**
 * Pauses large uploads at their sockets while the stream, the disk or the inflaters are behind.
 *
 * The stream: an answer is due two seconds after the last body byte, and a broker takes some 100 MB
 * a second. Of 400 bodies of 5 MB that end together most could not be stored in time. So last bytes
 * are not read before there is room. A large upload is *arriving* until its last byte, and *whole*
 * from then on until it is disposed of.
 *
 * Disk and inflaters: each upload pauses by itself when much of it waits for them. When it goes on,
 * its socket may deliver half a MiB at once, and 400 of those fill the worker's memory. So the
 * waiting bytes of all uploads are counted too.
 *
 * While WHOLE_UPLOADS_BYTES_MAX are whole or QUEUED_BYTES_MAX wait, all arriving uploads are
 * paused: TCP tells their clients to wait, and bytes on their way stay in the kernel. Then they go
 * on in the order in which they were paused, a few in each turn of the loop, since each may be
 * whole with its next chunk. Both sums fall without any of them going on, so there is no deadlock.
 *
 * The price: an upload in the middle of its body is paused with the others, and its client sees a
 * slower network. A small compressed body cannot be paused: it is whole before the worker knows
 * that it is large. It waits in the {@link InflationQueue}, and counts as whole; or it is inflated
 * in the loop, and its bytes are the share `unpaced` of budget.ts: one project's would keep the
 * uploads of all others paused.
 */
import { QUEUED_BYTES_MAX, UPLOADS_RESUMED_PER_TURN, WHOLE_UPLOADS_BYTES_MAX } from '../../limits.ts';

/** One upload that is being spooled or inflated in pieces. */
export type PacedUpload = { pause(paused: boolean): void };

export class UploadPacer {
  #wholeBytes = 0;
  #queuedBytes = 0;
  /** In the order in which they came; `paused` has some of the same. */
  readonly #arriving = new Set<PacedUpload>();
  readonly #paused = new Set<PacedUpload>();
  #releasing: NodeJS.Immediate | undefined;

  /** Bytes of uploads that are whole and not yet disposed of. */
  get wholeBytes(): number {
    return this.#wholeBytes;
  }

  /** Bytes that wait for inflaters and the disk. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** May call `pause` at once. */
  enter(one: PacedUpload): void {
    this.#arriving.add(one);
    if (this.#isFull) this.#pause(one);
  }

  /** It is whole or failed: it is not paused any more, and not told so. */
  leave(one: PacedUpload): void {
    this.#arriving.delete(one);
    this.#paused.delete(one);
  }

  /** @param delta bytes; negative when an upload that is whole is disposed of */
  addWhole(delta: number): void {
    this.#change(delta, 0);
  }

  /**
   * @param delta bytes that begin to wait for an inflater or the disk; negative when that ends
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
