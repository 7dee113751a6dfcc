/** Bytes and bits as Zstandard reads them (RFC 8878 section 4.1). Every read is bounded. */

/** The compressed bytes break the format. The one error that the zstd files throw. */
export class ZstdCorrupt extends Error {
  override name = 'ZstdCorrupt';
}

export function check(condition: boolean, message: string): asserts condition {
  if (!condition) throw new ZstdCorrupt(message);
}

/** Position of the highest set bit; `n` > 0. */
export const highBit = (n: number): number => 31 - Math.clz32(n);

/** Reads a stretch of bytes from its end, as FSE and Huffman streams are written. The highest set bit of the last byte marks the end. */
export class BackwardBits {
  readonly bytes: Uint8Array;
  readonly #begin: number;
  /** Bits that have not been read; negative when more were read than there are. */
  left: number;

  constructor(bytes: Uint8Array, begin: number, end: number) {
    check(begin < end && end <= bytes.length, 'an empty bit stream');
    const last = bytes[end - 1] as number;
    check(last !== 0, 'a bit stream without an end mark');
    this.bytes = bytes;
    this.#begin = begin;
    this.left = (end - begin - 1) * 8 + highBit(last);
  }

  /** The next `count` bits, at most 25. Beyond the beginning bits are 0 and `left` is negative. */
  read(count: number): number {
    this.left -= count;
    return this.peekAt(this.left, count);
  }

  /** The `count` bits above bit `from`, which may be negative; at most 25. */
  peekAt(from: number, count: number): number {
    if (from < 0) return from + count <= 0 ? 0 : this.peekAt(0, from + count) << -from;
    const { bytes } = this;
    const at = this.#begin + (from >> 3);
    const word =
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24);
    return (word >>> (from & 7)) & ((1 << count) - 1);
  }
}

/** An unsigned number of `count` bytes, at most six. */
export function littleEndian(bytes: Uint8Array, at: number, count: number): number {
  check(at + count <= bytes.length, 'a header is cut short');
  let value = 0;
  for (let i = count - 1; i >= 0; i--) value = value * 256 + (bytes[at + i] as number);
  return value;
}
