/** Finite state entropy: the tables of the lengths and offsets of sequences, and of Huffman weights (RFC 8878 section 4.1). */
import { check, highBit } from './bits.ts';

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
