/** The entropy coding of Zstandard (RFC 8878 section 4): a backward bit reader, FSE and Huffman tables. Every read is bounded. */

/** The compressed bytes break the format. The one error that the zstd files throw. */
export class ZstdCorrupt extends Error {
  override name = 'ZstdCorrupt';
}

export function check(condition: boolean, message: string): asserts condition {
  if (!condition) throw new ZstdCorrupt(message);
}

/** Position of the highest set bit; `n` > 0. */
const highBit = (n: number): number => 31 - Math.clz32(n);

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

/** A decoding table: in state s stands `symbols[s]`; the next state is `bases[s]` plus `bits[s]` further bits. */
export type FseTable = { log: number; symbols: Uint8Array; bits: Uint8Array; bases: Uint16Array };

/** The table of a single symbol that costs no bits. */
export const rleTable = (symbol: number): FseTable => ({
  log: 0,
  symbols: Uint8Array.of(symbol),
  bits: new Uint8Array(1),
  bases: new Uint16Array(1),
});

/** @param counts share of each symbol in 2^log; -1 is "less than one" (section 4.1.1) */
export function fseTable(counts: readonly number[], log: number): FseTable {
  const size = 1 << log;
  const symbols = new Uint8Array(size);
  const next = counts.map((count) => Math.abs(count));
  let high = size;
  counts.forEach((count, symbol) => {
    if (count === -1) symbols[--high] = symbol;
  });
  const step = (size >> 1) + (size >> 3) + 3;
  let position = 0;
  counts.forEach((count, symbol) => {
    for (let i = 0; i < count; i++) {
      symbols[position] = symbol;
      do position = (position + step) & (size - 1);
      while (position >= high);
    }
  });
  const bits = new Uint8Array(size);
  const bases = new Uint16Array(size);
  for (let state = 0; state < size; state++) {
    const symbol = symbols[state] as number;
    const n = next[symbol] as number;
    next[symbol] = n + 1;
    const count = log - highBit(n);
    bits[state] = count;
    bases[state] = (n << count) - size;
  }
  return { log, symbols, bits, bases };
}

type FseLimits = { logMax: number; symbolMax: number };
export type Sized<T> = { value: T; end: number };

/** Reads a table's description, which begins at `begin` and must end before `end`. */
export function readFseTable(
  bytes: Uint8Array,
  [begin, end]: [number, number],
  limits: FseLimits,
): Sized<FseTable> {
  let bit = begin * 8;
  const read = (count: number): number => {
    const at = bit >> 3;
    const word = (bytes[at] as number) | ((bytes[at + 1] as number) << 8) | ((bytes[at + 2] as number) << 16);
    const value = (word >>> (bit & 7)) & ((1 << count) - 1);
    bit += count;
    check(bit <= end * 8, 'a table is cut short');
    return value;
  };
  check(begin < end, 'a table is missing');
  const log = read(4) + 5;
  check(log <= limits.logMax, 'a table is too large');
  const counts: number[] = [];
  let remaining = 1 << log;
  while (remaining > 0) {
    check(counts.length <= limits.symbolMax, 'a table has too many symbols');
    const width = highBit(remaining + 1);
    const short = (2 << width) - 2 - remaining;
    let value = read(width);
    if (value >= short) {
      value |= read(1) << width;
      if (value >= 1 << width) value -= short;
    }
    const count = value - 1;
    counts.push(count);
    remaining -= Math.abs(count);
    for (let zeros = count === 0 ? 3 : 0; zeros === 3; ) {
      zeros = read(2);
      for (let i = 0; i < zeros; i++) counts.push(0);
    }
  }
  check(remaining === 0 && counts.length <= limits.symbolMax + 1, 'a table does not add up');
  return { value: fseTable(counts, log), end: (bit + 7) >> 3 };
}

/** By the next `log` bits: the symbol, and how many of them are its code. */
export type HuffmanTable = { log: number; symbols: Uint8Array; bits: Uint8Array };

const HUFFMAN_LOG_MAX = 11;
const WEIGHTS_MAX = 255;

/** Reads a tree's description (section 4.2.1). */
export function readHuffmanTable(bytes: Uint8Array, begin: number, end: number): Sized<HuffmanTable> {
  check(begin < end, 'a tree is missing');
  const head = bytes[begin] as number;
  const isDirect = head >= 128;
  const length = isDirect ? (head - 126) >> 1 : head;
  const treeEnd = begin + 1 + length;
  check(treeEnd <= end, 'a tree is cut short');
  const weights = isDirect
    ? directWeights(bytes, begin + 1, head - 127)
    : fseWeights(bytes, begin + 1, treeEnd);
  return { value: huffmanTable(weights), end: treeEnd };
}

function directWeights(bytes: Uint8Array, begin: number, count: number): number[] {
  const weights: number[] = [];
  for (let i = 0; i < count; i++) {
    const pair = bytes[begin + (i >> 1)] as number;
    weights.push(i % 2 === 0 ? pair >> 4 : pair & 15);
  }
  return weights;
}

/** Two states take turns until the bits are used up; the other one's symbol is the last. */
function fseWeights(bytes: Uint8Array, begin: number, end: number): number[] {
  const { value: table, end: tableEnd } = readFseTable(bytes, [begin, end], {
    logMax: 6,
    symbolMax: WEIGHTS_MAX,
  });
  const bits = new BackwardBits(bytes, tableEnd, end);
  const weights: number[] = [];
  let state = bits.read(table.log);
  let other = bits.read(table.log);
  check(bits.left >= 0, 'weights are cut short');
  for (;;) {
    weights.push(table.symbols[state] as number);
    const next = (table.bases[state] as number) + bits.read(table.bits[state] as number);
    check(weights.length < WEIGHTS_MAX, 'a tree has too many weights');
    if (bits.left < 0) {
      weights.push(table.symbols[other] as number);
      return weights;
    }
    state = other;
    other = next;
  }
}

/** The last weight is not written: it fills the sum up to a power of two. */
function huffmanTable(weights: number[]): HuffmanTable {
  let sum = 0;
  for (const weight of weights) {
    check(weight <= HUFFMAN_LOG_MAX, 'a weight is too large');
    if (weight > 0) sum += 1 << (weight - 1);
  }
  check(sum > 0, 'a tree without weights');
  const log = highBit(sum) + 1;
  check(log <= HUFFMAN_LOG_MAX, 'a tree is too deep');
  const rest = (1 << log) - sum;
  check((rest & (rest - 1)) === 0, 'a tree does not add up');
  weights.push(highBit(rest) + 1);
  const symbols = new Uint8Array(1 << log);
  const bits = new Uint8Array(1 << log);
  let at = 0;
  for (let weight = 1; weight <= log; weight++)
    weights.forEach((w, symbol) => {
      if (w !== weight) return;
      const span = 1 << (weight - 1);
      symbols.fill(symbol, at, at + span);
      bits.fill(log + 1 - weight, at, at + span);
      at += span;
    });
  return { log, symbols, bits };
}

/** Decodes the stream in `[begin, end)` into exactly `[from, to)` of `output`. */
export function decodeHuffman(
  table: HuffmanTable,
  input: { bytes: Uint8Array; begin: number; end: number },
  output: { bytes: Uint8Array; from: number; to: number },
): void {
  const bits = new BackwardBits(input.bytes, input.begin, input.end);
  const { log, symbols, bits: lengths } = table;
  let { left } = bits;
  for (let at = output.from; at < output.to; at++) {
    const code = bits.peekAt(left - log, log);
    output.bytes[at] = symbols[code] as number;
    left -= lengths[code] as number;
    if (left < 0) break;
  }
  check(left === 0, 'literals do not fill their stream');
}
