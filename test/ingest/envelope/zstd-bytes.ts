/** Writes zstd frames by hand (RFC 8878), on any runtime: raw blocks, and RLE blocks where a block is one byte repeated. */
import zlib from 'node:zlib';

/** From Node 22.15 on. The tests of zstd assert something else on a runtime that has it than on one that has not. */
export const RUNTIME_HAS_ZSTD = 'zstdCompressSync' in zlib;
/** The reference implementation, where the runtime has it. */
export const { zstdCompressSync } = zlib as unknown as {
  zstdCompressSync(bytes: Uint8Array, options?: { params: Record<number, number> }): Buffer;
};

const MAGIC = 0xfd2fb528;
const BLOCK_BYTES = 128 * 1024;

export const BLOCK = { raw: 0, rle: 1, compressed: 2, reserved: 3 } as const;

export type FrameOptions = {
  /** The byte behind the magic number; 0: window descriptor, no size, no checksum. */
  flags?: number;
  /** What stands between flags and blocks; 0x38 is a window of 128 KiB. */
  head?: readonly number[];
};

export function zstdBlock(type: number, size: number, content: Uint8Array, isLast = true): Buffer {
  const word = size * 8 + type * 2 + Number(isLast);
  return Buffer.concat([Buffer.of(word & 255, (word >> 8) & 255, word >> 16), content]);
}

export function zstdFrame(
  blocks: readonly Uint8Array[],
  { flags = 0, head = [0x38] }: FrameOptions = {},
): Buffer {
  const begin = Buffer.alloc(5);
  begin.writeUInt32LE(MAGIC);
  begin[4] = flags;
  return Buffer.concat([begin, Buffer.from(head), ...blocks]);
}

/** A frame that gives `body`. */
export function zstdBlocks(body: Uint8Array): Buffer {
  const blocks: Buffer[] = [];
  for (let at = 0; at === 0 || at < body.length; at += BLOCK_BYTES) {
    const piece = body.subarray(at, at + BLOCK_BYTES);
    const isLast = at + BLOCK_BYTES >= body.length;
    const isRun = piece.length > 0 && piece.every((byte) => byte === piece[0]);
    blocks.push(
      isRun
        ? zstdBlock(BLOCK.rle, piece.length, piece.subarray(0, 1), isLast)
        : zstdBlock(BLOCK.raw, piece.length, piece, isLast),
    );
  }
  return zstdFrame(blocks);
}

/** A frame that decoders skip. */
export function zstdSkippable(content: string): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32LE(0x184d2a5f);
  head.writeUInt32LE(content.length, 4);
  return Buffer.concat([head, Buffer.from(content)]);
}
