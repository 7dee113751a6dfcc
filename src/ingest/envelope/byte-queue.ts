/**
 * Byte queue: joins bytes that arrive in pieces but are needed as one, such as a header line that a
 * chunk border cuts or a payload in several chunks.
 *
 * The queue is one buffer that doubles, not a list of pieces. In a list, a client that sends single
 * bytes would make an object of a hundred bytes for each byte, and only the byte would be counted.
 */
import { assert } from '../../lib/assert.ts';

/**
 * Copies bytes into memory of their own. A copy in Node's pool would keep a slab of 8 KiB alive,
 * while only the copied bytes are counted as the worker's memory (budget.ts).
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

  /**
   * Creates a queue.
   * @param first bytes that the queue may keep; they are not copied until more bytes are appended
   */
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

  /** All bytes in one piece; they stay in the queue. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Appends a copy of `piece`. The caller has checked the bound. */
  append(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    assert(length <= this.#bytesMax, 'a byte queue was fed past its bound');
    if (length > this.#bytes.length) this.#grow(length);
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** Empties the queue and returns all bytes in one piece, which the caller then owns. */
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
