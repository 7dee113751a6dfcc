import { FRAME_BYTES_MAX } from '../limits.ts';

const BLOCK_BYTES = 2 * FRAME_BYTES_MAX;

/** Frames fill it one behind the other. When all of them are released it begins anew. */
type Block = { readonly bytes: Uint8Array; used: number; frames: number };

/** A frame in hand: `bytes` are its own until it is released. */
export type KeptFrame = { readonly bytes: Uint8Array; readonly block: Block | undefined };

const newBlock = (): Block => ({ bytes: new Uint8Array(BLOCK_BYTES), used: 0, frames: 0 });

/**
 * The memory of one stream's frames while they are in hand.
 *
 * The client hands over views of new buffers. Where a message spans several reads, they are up to
 * three times as large as it. While a frame waits for its batch such buffers outlive young
 * collections, and under load V8 collected the whole heap three times a second. So a frame is
 * copied into blocks that are used again, and its buffers go with the next young collection.
 *
 * Frames are released in about the order in which they came. Then blocks take up to 1.4 times the
 * most that was in hand. They are released when no frame is in hand.
 */
export class FrameBlocks {
  /** Where the next frame goes; made with the first: many streams are idle. */
  #open: Block | undefined;
  #free: Block[] = [];
  #inHand = 0;

  /** A copy. What is larger than a frame of ours stays where it is. */
  keep(frame: Uint8Array): KeptFrame {
    if (frame.length > FRAME_BYTES_MAX) return { bytes: frame, block: undefined };
    if (!this.#open || this.#open.used + frame.length > BLOCK_BYTES)
      this.#open = this.#free.pop() ?? newBlock();
    const block = this.#open;
    const bytes = block.bytes.subarray(block.used, block.used + frame.length);
    bytes.set(frame);
    block.used += frame.length;
    block.frames++;
    this.#inHand++;
    return { bytes, block };
  }

  /** Once for each frame, when no code reads its bytes any more. */
  release({ block }: KeptFrame): void {
    if (!block) return;
    this.#inHand--;
    if (--block.frames > 0) return;
    block.used = 0;
    if (block !== this.#open) this.#free.push(block);
    if (this.#inHand === 0) this.#free = [];
  }
}
