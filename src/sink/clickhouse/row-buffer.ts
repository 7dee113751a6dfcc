/**
 * Rows in ClickHouse's format RowBinary: values follow one another, little-endian, and each text
 * comes after its length. A payload is copied once, a large payload not at all.
 */

/** Size of the first block of memory. Tables that get few rows need no more. */
const BLOCK_BYTES_MIN = 16 * 1024;
const BLOCK_BYTES_MAX = 1024 * 1024;
/** Values of this length or more are not copied. They must not change until they are sent. */
const VIEWED_BYTES = 16 * 1024;
/** Bytes that a length takes, at most. Each of these bytes holds seven bits of the length. */
const VARINT_BYTES_MAX = 5;
const HIGH_WORD = 2 ** 32;

export class RowBuffer {
  readonly #pieces: Uint8Array[] = [];
  #pieceBytes = 0;
  #block = Buffer.allocUnsafeSlow(BLOCK_BYTES_MIN);
  /** `#cut`: end of the block's part that is in a piece. `#at`: end of the part in use. */
  #cut = 0;
  #at = 0;
  /** Where each row begins, counted from the first byte of the whole buffer. */
  readonly #starts: number[] = [];

  get rows(): number {
    return this.#starts.length;
  }

  get bytes(): number {
    return this.#pieceBytes + this.#at - this.#cut;
  }

  /** Begins a new row. Its values must follow in the order of the table's columns. */
  beginRow(): this {
    this.#starts.push(this.bytes);
    return this;
  }

  text(value: string): this {
    const length = Buffer.byteLength(value);
    this.#length(length, length);
    this.#at += this.#block.write(value, this.#at);
    return this;
  }

  data(value: Uint8Array): this {
    if (value.length >= VIEWED_BYTES) {
      this.#length(value.length, 0);
      this.#cutPiece();
      this.#pieces.push(value);
      this.#pieceBytes += value.length;
      return this;
    }
    this.#length(value.length, value.length);
    return this.#append(value);
  }

  /** Appends a FixedString, which has no length before it. */
  key(value: Buffer): this {
    this.#room(value.length);
    return this.#append(value);
  }

  uint16(value: number): this {
    this.#room(2);
    this.#at = this.#block.writeUInt16LE(value, this.#at);
    return this;
  }

  uint32(value: number): this {
    this.#room(4);
    this.#at = this.#block.writeUInt32LE(value, this.#at);
    return this;
  }

  /** Appends a safe integer as Int64. It may also be the ticks of a DateTime64. */
  int64(value: number): this {
    this.#room(8);
    this.#at = this.#block.writeUInt32LE(value >>> 0, this.#at);
    this.#at = this.#block.writeInt32LE(Math.floor(value / HIGH_WORD), this.#at);
    return this;
  }

  float64(value: number): this {
    this.#room(8);
    this.#at = this.#block.writeDoubleLE(value, this.#at);
    return this;
  }

  /** Appends a Bool. */
  flag(value: boolean): this {
    this.#room(1);
    this.#block[this.#at++] = value ? 1 : 0;
    return this;
  }

  /** Appends a Nullable: a mark that says whether the value is NULL, then the value. */
  optional<T>(value: T | undefined, write: (value: T) => this): this {
    this.#room(1);
    this.#block[this.#at++] = value === undefined ? 1 : 0;
    return value === undefined ? this : write(value);
  }

  /** Returns the bytes of the rows from `from` up to `to`, which is not included. */
  slice(from: number, to: number): Uint8Array[] {
    this.#cutPiece();
    const [start, end] = [this.#starts[from] ?? this.bytes, this.#starts[to] ?? this.bytes];
    const found: Uint8Array[] = [];
    let at = 0;
    for (const piece of this.#pieces) {
      const [first, last] = [Math.max(start - at, 0), Math.min(end - at, piece.length)];
      if (first < last) found.push(piece.subarray(first, last));
      at += piece.length;
    }
    return found;
  }

  #append(value: Uint8Array): this {
    this.#block.set(value, this.#at);
    this.#at += value.length;
    return this;
  }

  /** Makes room for a length and `bytes` more bytes, and writes the length. */
  #length(length: number, bytes: number): void {
    this.#room(VARINT_BYTES_MAX + bytes);
    let rest = length;
    for (; rest > 0x7f; rest >>>= 7) this.#block[this.#at++] = (rest & 0x7f) | 0x80;
    this.#block[this.#at++] = rest;
  }

  #room(bytes: number): void {
    if (this.#at + bytes <= this.#block.length) return;
    this.#cutPiece();
    const next = Math.min(this.#block.length * 4, BLOCK_BYTES_MAX);
    this.#block = Buffer.allocUnsafeSlow(Math.max(next, bytes));
    this.#cut = 0;
    this.#at = 0;
  }

  #cutPiece(): void {
    if (this.#at === this.#cut) return;
    this.#pieces.push(this.#block.subarray(this.#cut, this.#at));
    this.#pieceBytes += this.#at - this.#cut;
    this.#cut = this.#at;
  }
}
