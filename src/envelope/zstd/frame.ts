/**
 * Zstandard, RFC 8878: bytes in, the output of one block at a time out.
 *
 * Our own, because what Node 20 has is not safe here. zlib knows zstd from Node 22.15 on; the decoders in JavaScript believe the stream:
 * nineteen bytes kept one of them (fzstd 0.1.1) copying for 3.5 s, on the event loop, and public keys are public. Here every read,
 * copy, table, window and block count has a bound. Dictionaries are refused: no HTTP client has one in common with us.
 */
import { ZSTD_BLOCKS_MAX, ZSTD_WINDOW_BYTES_MAX } from '../../limits.ts';
import { check } from './bits.ts';
import { type History, ZstdBlocks } from './block.ts';
import { ZSTD_BLOCK_BYTES_MAX } from './literals.ts';
import { Xxh64 } from './xxh64.ts';

const MAGIC = 0xfd2fb528;
const SKIPPABLE_MAGIC = 0x184d2a50;
const CHECKSUM_BYTES = 4;
const NOTHING = new Uint8Array(0);

type FrameHeader = { windowBytes: number; contentBytes: number | undefined; hasChecksum: boolean };
/** Bytes of input that were used, and what came out: a view until the next step. */
export type Step = { used: number; output: Uint8Array };
type Section =
  | 'frame-header'
  | 'block-header'
  | 'raw-block'
  | 'rle-block'
  | 'compressed-block'
  | 'checksum'
  | 'skippable';

/** Holds the last window and room for a block; moves the window to the front when the room is used up. */
class Window implements History {
  bytes: Uint8Array = NOTHING;
  end = 0;
  readonly #windowBytes: number;
  readonly #blockMax: number;
  readonly #capacityMax: number;

  constructor(windowBytes: number, blockMax: number) {
    this.#windowBytes = windowBytes;
    this.#blockMax = blockMax;
    // A quarter of a window between two moves: each byte of output moves four at most.
    this.#capacityMax = windowBytes + Math.max(windowBytes >> 2, 2 * ZSTD_BLOCK_BYTES_MAX);
  }

  /** Grows by doubling, for most bodies never need a whole window. */
  makeRoom(): void {
    const needed = this.end + this.#blockMax;
    if (needed <= this.bytes.length) return;
    if (needed > this.#capacityMax) {
      const from = this.end - this.#windowBytes;
      this.bytes.copyWithin(0, from, this.end);
      this.end -= from;
      return;
    }
    const grown = new Uint8Array(Math.min(Math.max(needed, 2 * this.bytes.length), this.#capacityMax));
    grown.set(this.bytes.subarray(0, this.end));
    this.bytes = grown;
  }
}

export class ZstdFrames {
  #section: Section = 'frame-header';
  /** Bytes that must be there before the next step. */
  #needed = 5;
  #frames = 0;
  #blocks = 0;
  /** Of the current frame. */
  #header: FrameHeader = { windowBytes: 0, contentBytes: undefined, hasChecksum: false };
  #window = new Window(0, 0);
  #decoder = new ZstdBlocks(0);
  #given = 0;
  /** Of what was given; undefined when the frame carries no checksum. */
  #checksum: Xxh64 | undefined;
  /** Of the current block. */
  #isLast = false;
  #blockBytes = 0;

  /** Bytes of memory for copies of earlier output. */
  get historyBytes(): number {
    return this.#window.bytes.length;
  }

  /** The input may end here. */
  get isComplete(): boolean {
    return this.#section === 'frame-header' && this.#frames > 0;
  }

  /**
   * One step.
   * @param input what has come and has not been used
   * @returns undefined when more input is needed
   * @throws ZstdCorrupt
   */
  step(input: Uint8Array): Step | undefined {
    if (input.length < this.#needed) return undefined;
    switch (this.#section) {
      case 'frame-header':
        return this.#inFrameHeader(input);
      case 'block-header':
        return this.#inBlockHeader(input);
      case 'raw-block':
      case 'rle-block':
      case 'compressed-block':
        return this.#inBlock(input);
      case 'checksum':
        return this.#inChecksum(input);
      case 'skippable':
        return this.#inSkippable(input);
    }
  }

  #expect(section: Section, needed: number): void {
    this.#section = section;
    this.#needed = needed;
  }

  // ---- frame-header, skippable ----

  #inFrameHeader(input: Uint8Array): Step | undefined {
    const view = new DataView(input.buffer, input.byteOffset, input.byteLength);
    const magic = view.getUint32(0, true);
    if ((magic & 0xfffffff0) >>> 0 === SKIPPABLE_MAGIC) return this.#startSkippable(view);
    check(magic === MAGIC, 'no zstd frame');
    const flags = view.getUint8(4);
    check((flags & 0x08) === 0, 'a reserved bit is set');
    check((flags & 0x03) === 0, 'dictionaries are not supported');
    const isSingle = (flags & 0x20) !== 0;
    const sizeFlag = flags >> 6;
    const sizeBytes = sizeFlag > 0 ? 1 << sizeFlag : Number(isSingle);
    const length = 5 + Number(!isSingle) + sizeBytes;
    if (input.length < length) return this.#need(length);
    const contentBytes = sizeBytes > 0 ? contentSize(view, length - sizeBytes, sizeBytes) : undefined;
    const windowBytes = isSingle ? (contentBytes ?? 0) : windowSize(view.getUint8(5));
    check(windowBytes <= ZSTD_WINDOW_BYTES_MAX, 'the window is too large');
    this.#startFrame({ windowBytes, contentBytes, hasChecksum: (flags & 0x04) !== 0 });
    return { used: length, output: NOTHING };
  }

  /** A frame's head costs as much as a block. */
  #startFrame(header: FrameHeader): void {
    check(++this.#blocks <= ZSTD_BLOCKS_MAX, 'too many blocks');
    this.#header = header;
    this.#window = new Window(header.windowBytes, this.#blockMax);
    this.#decoder = new ZstdBlocks(this.#blockMax);
    this.#given = 0;
    this.#checksum = header.hasChecksum ? new Xxh64() : undefined;
    this.#expect('block-header', 3);
  }

  #need(bytes: number): undefined {
    this.#needed = bytes;
    return undefined;
  }

  #startSkippable(view: DataView): Step | undefined {
    if (view.byteLength < 8) return this.#need(8);
    check(++this.#blocks <= ZSTD_BLOCKS_MAX, 'too many blocks');
    this.#blockBytes = view.getUint32(4, true);
    if (this.#blockBytes === 0) return this.#endFrame(8);
    this.#expect('skippable', 1);
    return { used: 8, output: NOTHING };
  }

  #inSkippable(input: Uint8Array): Step {
    const used = Math.min(this.#blockBytes, input.length);
    this.#blockBytes -= used;
    return this.#blockBytes === 0 ? this.#endFrame(used) : { used, output: NOTHING };
  }

  #endFrame(used: number): Step {
    this.#frames++;
    this.#window = new Window(0, 0);
    this.#expect('frame-header', 5);
    return { used, output: NOTHING };
  }

  #inChecksum(input: Uint8Array): Step {
    const stated = new DataView(input.buffer, input.byteOffset, CHECKSUM_BYTES).getUint32(0, true);
    check(stated === this.#checksum?.low32(), 'the checksum differs');
    return this.#endFrame(CHECKSUM_BYTES);
  }

  // ---- blocks ----

  get #blockMax(): number {
    return Math.min(this.#header.windowBytes, ZSTD_BLOCK_BYTES_MAX);
  }

  #inBlockHeader(input: Uint8Array): Step {
    check(++this.#blocks <= ZSTD_BLOCKS_MAX, 'too many blocks');
    const word = (input[0] as number) | ((input[1] as number) << 8) | ((input[2] as number) << 16);
    this.#isLast = (word & 1) !== 0;
    this.#blockBytes = word >> 3;
    check(this.#blockBytes <= this.#blockMax, 'a block is too large');
    const type = (word >> 1) & 3;
    check(type !== 3, 'a block type is reserved');
    if (type === 0) this.#expect('raw-block', this.#blockBytes);
    else if (type === 1) this.#expect('rle-block', 1);
    else this.#expect('compressed-block', this.#blockBytes);
    return { used: 3, output: NOTHING };
  }

  #inBlock(input: Uint8Array): Step {
    const used = this.#needed;
    const window = this.#window;
    window.makeRoom();
    const from = window.end;
    if (this.#section === 'compressed-block') this.#decoder.decode(input.subarray(0, used), window);
    else {
      if (this.#section === 'raw-block') window.bytes.set(input.subarray(0, used), from);
      else window.bytes.fill(input[0] as number, from, from + this.#blockBytes);
      window.end += this.#blockBytes;
    }
    this.#given += window.end - from;
    const output = window.bytes.subarray(from, window.end);
    this.#checksum?.update(output);
    this.#endBlock();
    return { used, output };
  }

  #endBlock(): void {
    const { contentBytes } = this.#header;
    check(contentBytes === undefined || this.#given <= contentBytes, 'a frame gives more than it says');
    if (!this.#isLast) return this.#expect('block-header', 3);
    check(contentBytes === undefined || this.#given === contentBytes, 'a frame gives less than it says');
    if (this.#checksum) this.#expect('checksum', CHECKSUM_BYTES);
    else this.#endFrame(0);
  }
}

function windowSize(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >> 3));
  return base + (base / 8) * (descriptor & 7);
}

function contentSize(view: DataView, at: number, bytes: number): number {
  if (bytes === 1) return view.getUint8(at);
  if (bytes === 2) return view.getUint16(at, true) + 256;
  if (bytes === 4) return view.getUint32(at, true);
  return Number(view.getBigUint64(at, true));
}
