/** The literals of a block: bytes that are not copies of earlier output (RFC 8878 section 3.1.1.3.1). */
import { check, littleEndian } from './bits.ts';
import { decodeHuffman, type HuffmanTable, readHuffmanTable } from './huffman.ts';

export const ZSTD_BLOCK_BYTES_MAX = 128 * 1024;

/** Literals of the block being decoded. They are used up within one call, so all frames share the room. */
const scratch = new Uint8Array(ZSTD_BLOCK_BYTES_MAX);

export class Literals {
  /** Valid up to `length`, until the next block is read. */
  readonly bytes = scratch;
  length = 0;
  readonly #blockMax: number;
  /** A block may use the tree of the one before. */
  #huffman: HuffmanTable | undefined;

  /** @param blockMax bytes that a block of this frame may give */
  constructor(blockMax: number) {
    this.#blockMax = blockMax;
  }

  /** Reads the first section of a block. @returns where the next begins. @throws ZstdCorrupt */
  read(block: Uint8Array): number {
    check(block.length >= 2, 'a block without sections');
    const head = block[0] as number;
    const type = head & 3;
    const format = (head >> 2) & 3;
    if (type >= 2) return this.#readCoded(block, type === 3, format);
    const headBytes = format === 1 ? 2 : format === 3 ? 3 : 1;
    const word = littleEndian(block, 0, headBytes);
    const size = headBytes === 1 ? word >> 3 : word >> 4;
    check(size <= this.#blockMax, 'too many literals');
    const end = headBytes + (type === 1 ? 1 : size);
    check(end <= block.length, 'literals are cut short');
    if (type === 1) this.bytes.fill(block[headBytes] as number, 0, size);
    else this.bytes.set(block.subarray(headBytes, end));
    this.length = size;
    return end;
  }

  #readCoded(block: Uint8Array, isTreeless: boolean, format: number): number {
    const headBytes = format < 2 ? 3 : format + 2;
    const width = format < 2 ? 10 : format === 2 ? 14 : 18;
    // Up to 40 bits: too many for the operators on integers.
    const word = littleEndian(block, 0, headBytes);
    const size = Math.floor(word / 16) % 2 ** width;
    const end = headBytes + (Math.floor(word / 2 ** (4 + width)) % 2 ** width);
    check(size <= this.#blockMax, 'too many literals');
    check(end <= block.length, 'literals are cut short');
    let begin = headBytes;
    if (!isTreeless) {
      const tree = readHuffmanTable(block, begin, end);
      this.#huffman = tree.value;
      begin = tree.end;
    }
    check(this.#huffman !== undefined, 'literals without a tree');
    const input = { bytes: block, begin, end };
    if (format === 0) decodeHuffman(this.#huffman, input, { bytes: this.bytes, from: 0, to: size });
    else this.#decodeFourStreams(this.#huffman, input, size);
    this.length = size;
    return end;
  }

  #decodeFourStreams(
    table: HuffmanTable,
    { bytes, begin, end }: { bytes: Uint8Array; begin: number; end: number },
    size: number,
  ): void {
    check(begin + 6 <= end, 'the jump table is cut short');
    const quarter = (size + 3) >> 2;
    check(3 * quarter <= size, 'too few literals for four streams');
    let at = begin + 6;
    for (let stream = 0; stream < 4; stream++) {
      const streamEnd = stream === 3 ? end : at + littleEndian(bytes, begin + 2 * stream, 2);
      check(streamEnd <= end, 'a stream of literals is cut short');
      const to = stream === 3 ? size : (stream + 1) * quarter;
      const output = { bytes: this.bytes, from: stream * quarter, to };
      decodeHuffman(table, { bytes, begin: at, end: streamEnd }, output);
      at = streamEnd;
    }
  }
}
