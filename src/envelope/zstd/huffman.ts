/** Huffman trees and the streams of literals that they code (RFC 8878 section 4.2). */
import { BackwardBits, check, highBit } from './bits.ts';
import { readFseTable, type Sized } from './fse.ts';

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
