import type { Steps } from '../../lib/slices.ts';

const BLOCK_BYTES = 1024 * 1024;
/** Pieces of unchanged bytes from this size on are kept as views, and copied only at the end. */
const VIEWED_BYTES_MIN = 16 * 1024;
/** Pieces up to this size are copied byte by byte: making a view of them would cost more. */
const LOOPED_BYTES_MAX = 48;
/** Bytes that one UTF-16 unit of a string takes in UTF-8, at most. */
const CHARACTER_BYTES_MAX = 3;
const NOTHING = new Uint8Array();

/**
 * Bytes that are appended one after the other and kept in blocks of up to 1 MiB. Millions of small
 * pieces, each in memory of its own, would take twenty times their bytes.
 */
export class ByteBlocks {
  readonly #pieces: Uint8Array[] = [];
  #block: Buffer;
  #cut = 0;
  #used = 0;
  #pieceBytes = 0;

  /** @param expected estimated length in bytes */
  constructor(expected: number) {
    this.#block = Buffer.allocUnsafe(Math.min(BLOCK_BYTES, expected));
  }

  get length(): number {
    return this.#pieceBytes + this.#used - this.#cut;
  }

  /** Appends bytes. They must not change later, because a long piece is kept as a view. */
  copy(bytes: Uint8Array, start = 0, end = bytes.length): void {
    const length = end - start;
    if (length >= VIEWED_BYTES_MIN) return this.#push(bytes.subarray(start, end));
    this.#room(length);
    const block = this.#block;
    if (length > LOOPED_BYTES_MAX) {
      block.set(bytes.subarray(start, end), this.#used);
      this.#used += length;
      return;
    }
    let to = this.#used;
    for (let at = start; at < end; at++) block[to++] = bytes[at] as number;
    this.#used = to;
  }

  text(value: string): void {
    const most = value.length * CHARACTER_BYTES_MAX;
    this.#room(this.#used + most > this.#block.length ? Buffer.byteLength(value) : most);
    this.#used += this.#block.write(value, this.#used);
  }

  /** Returns all bytes in one piece. Nothing may be appended after that. */
  *joined(): Steps<Uint8Array> {
    if (this.#pieces.length === 0) return this.#block.subarray(0, this.#used);
    this.#endPiece();
    const whole = new Uint8Array(Buffer.allocUnsafeSlow(this.#pieceBytes).buffer);
    let at = 0;
    for (const [index, piece] of this.#pieces.entries()) {
      for (let from = 0; from < piece.length; from += BLOCK_BYTES) {
        whole.set(piece.subarray(from, from + BLOCK_BYTES), at + from);
        yield;
      }
      at += piece.length;
      this.#pieces[index] = NOTHING;
    }
    return whole;
  }

  #push(piece: Uint8Array): void {
    this.#endPiece();
    this.#pieces.push(piece);
    this.#pieceBytes += piece.length;
  }

  /** Makes a piece of the bytes that were written into the block since the last piece. */
  #endPiece(): void {
    if (this.#cut === this.#used) return;
    this.#pieces.push(this.#block.subarray(this.#cut, this.#used));
    this.#pieceBytes += this.#used - this.#cut;
    this.#cut = this.#used;
  }

  #room(bytes: number): void {
    if (this.#used + bytes <= this.#block.length) return;
    this.#endPiece();
    this.#block = Buffer.allocUnsafe(Math.max(bytes, Math.min(BLOCK_BYTES, 2 * this.#block.length)));
    this.#cut = 0;
    this.#used = 0;
  }
}
