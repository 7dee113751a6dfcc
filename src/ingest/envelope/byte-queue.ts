/**
 * Bytes that arrive in pieces and are needed as one: a header line cut by a chunk border, a payload
 * in several chunks.
 *
 * One buffer that doubles, not a list of pieces: a client that sends single bytes would make each
 * of them an object of a hundred bytes, and the bounds of limits.ts count bytes. Only cut bodies
 * pay: every byte is copied about twice.
 */
import { assert } from '../../lib/assert.ts';

/**
 * A copy in memory of its own. One from Node's pool keeps a slab of 8 KiB alive, with what other
 * requests have put there: too much to be held for seconds while only its own bytes are charged.
 */
export function ownCopy(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return copy;
}

const CAPACITY_MIN = 256;
const NOTHING = Buffer.alloc(0);

export class ByteQueue {
  readonly #bytesMax: number;
  #bytes: Buffer;
  #length: number;

  /** @param first owned bytes, which are not copied as long as they are alone */
  constructor(bytesMax: number, first: Buffer = NOTHING) {
    this.#bytesMax = bytesMax;
    this.#bytes = first;
    this.#length = first.length;
  }

  get length(): number {
    return this.#length;
  }

  /** Bytes of memory in use, at least `length`. */
  get capacity(): number {
    return this.#bytes.length;
  }

  /** Everything in one piece, which stays in the queue. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Copies `piece`. The caller has checked the bound. */
  append(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    assert(length <= this.#bytesMax, 'a byte queue was fed past its bound');
    if (length > this.#bytes.length) this.#grow(length);
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** Everything in one piece, which the caller owns; the queue is empty afterwards. */
  take(): Buffer {
    const taken = this.bytes;
    this.#bytes = NOTHING;
    this.#length = 0;
    return taken;
  }

  #grow(needed: number): void {
    const grown = Buffer.allocUnsafeSlow(
      Math.max(needed, Math.min(2 * this.#bytes.length, this.#bytesMax), CAPACITY_MIN),
    );
    grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
  }
}
