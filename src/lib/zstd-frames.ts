/**
 * Finds the ends of the frames in a zstd body (RFC 8878 section 3.1). `node:zlib` decodes frames,
 * but drops bytes that follow a frame in the same write, and older versions (22.15 for one) accept
 * a frame that is cut short.
 */
import { ZSTD_FRAMES_MAX } from '../limits.ts';

const MAGIC = 0xfd2fb528;
const SKIPPABLE_MAGIC = 0x184d2a50;
const CHECKSUM_BYTES = 4;
const RLE = 1;
const DICTIONARY_ID_BYTES = [0, 1, 2, 4] as const;
/**
 * Length of each field that is read, in bytes; everything between these fields is skipped. All
 * numbers are little-endian.
 */
const FIELD_BYTES = { magic: 4, 'skippable-size': 4, descriptor: 1, 'block-header': 3 } as const;

export class ZstdFrames {
  #field: keyof typeof FIELD_BYTES = 'magic';
  /** The bytes of the current field that have come so far, as a number. */
  #value = 0;
  #valueBytes = 0;
  /**
   * Bytes to skip before the next field. Infinity after bytes that are no frame, or after too many
   * frames: the rest of the body is skipped.
   */
  #toPass = 0;
  /** Bytes of the checksum at the end of the current frame. */
  #checksumBytes = 0;
  #frames = 0;

  /** Whether the body may end here: at least one frame has come, and the last one is complete. */
  get isComplete(): boolean {
    return this.#frames > 0 && this.#isBetweenFrames;
  }

  get #isBetweenFrames(): boolean {
    return this.#field === 'magic' && this.#valueBytes === 0 && this.#toPass === 0;
  }

  /**
   * Reads on from where the last call stopped, up to the end of a frame.
   * @returns how many bytes of `input` belong to the current frame
   */
  pass(input: Uint8Array): number {
    let at = 0;
    while (at < input.length) {
      if (this.#toPass > 0) {
        const passed = Math.min(this.#toPass, input.length - at);
        this.#toPass -= passed;
        at += passed;
      } else this.#take(input[at++] as number);
      if (this.#isBetweenFrames) break;
    }
    return at;
  }

  #take(byte: number): void {
    this.#value += byte * 2 ** (8 * this.#valueBytes++);
    if (this.#valueBytes < FIELD_BYTES[this.#field]) return;
    const value = this.#value;
    this.#value = 0;
    this.#valueBytes = 0;
    if (this.#field === 'magic') this.#startFrame(value);
    else if (this.#field === 'descriptor') this.#startBlocks(value);
    else if (this.#field === 'block-header') this.#startBlock(value);
    else this.#expect('magic', value);
  }

  #expect(field: keyof typeof FIELD_BYTES, toPass: number): void {
    this.#field = field;
    this.#toPass = toPass;
  }

  #startFrame(magic: number): void {
    const hasRoom = ++this.#frames <= ZSTD_FRAMES_MAX;
    const isSkippable = (magic & 0xfffffff0) >>> 0 === SKIPPABLE_MAGIC;
    if (hasRoom && magic === MAGIC) this.#expect('descriptor', 0);
    else if (hasRoom && isSkippable) this.#expect('skippable-size', 0);
    else this.#expect('magic', Number.POSITIVE_INFINITY);
  }

  #startBlocks(descriptor: number): void {
    this.#checksumBytes = (descriptor & 0x04) !== 0 ? CHECKSUM_BYTES : 0;
    const isSingle = (descriptor & 0x20) !== 0;
    const sizeFlag = descriptor >> 6;
    const sizeBytes = sizeFlag > 0 ? 1 << sizeFlag : Number(isSingle);
    const dictionaryBytes = DICTIONARY_ID_BYTES[descriptor & 0x03] as number;
    this.#expect('block-header', Number(!isSingle) + dictionaryBytes + sizeBytes);
  }

  #startBlock(header: number): void {
    const isLast = (header & 1) !== 0;
    const size = ((header >> 1) & 3) === RLE ? 1 : header >> 3;
    if (isLast) this.#expect('magic', size + this.#checksumBytes);
    else this.#expect('block-header', size);
  }
}
