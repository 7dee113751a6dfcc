import {
  ACK_WAIT_MS,
  FRAME_BYTES_MAX,
  SINK_BATCH_BYTES_MAX,
  SINK_BATCH_FRAMES_MAX,
  SUSPECTS_IN_TURN_MAX,
} from '../limits.ts';
import type { Delivery } from './delivery.ts';

/** The broker hears of a frame at the second look, after half of the ack wait at the latest. */
const LOOKS_PER_ACK_WAIT = 4;

function oldestOf(frames: Iterable<Delivery>): number {
  let oldest = Number.POSITIVE_INFINITY;
  for (const { storedAt } of frames) oldest = Math.min(oldest, storedAt);
  return oldest;
}

/**
 * Frames of one stream that the broker has given to this process. Each is
 *
 * - *queued* when it has come,
 * - *taken* while a batch is made of it,
 * - *held*, perhaps: the sink has it and will make it durable. Its bytes are gone, and it takes no
 *   room;
 *
 * until it is settled: acknowledged or given back. For a frame that is still here at a second look,
 * the broker gets `working()`: after five seconds at the latest, then every 2.5 s. So frames may
 * wait here as long as a sink fails, and frames that pass quickly cost no message.
 */
export class FramesInHand {
  readonly #onRoom: () => void;
  #queued: Delivery[] = [];
  #queuedBytes = 0;
  /** Queued and taken. */
  readonly #kept = new Map<Delivery, KeptFrame>();
  #bytes = 0;
  readonly #held = new Set<Delivery>();
  #isStarved = false;
  /** No more will come. */
  #isComplete = false;
  readonly #memory = new FrameBlocks();
  /** Frames that were here at the last look. */
  #lingering: ReadonlySet<Delivery> = new Set();
  readonly #timer: NodeJS.Timeout;
  #wake: (() => void) | undefined;

  /** `onRoom`: called when there may be room for more. */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
    this.#timer = setInterval(() => this.#look(), ACK_WAIT_MS / LOOKS_PER_ACK_WAIT);
  }

  #look(): void {
    const waiting = [...this.#kept.keys(), ...this.#held];
    for (const delivery of waiting) if (this.#lingering.has(delivery)) delivery.working();
    this.#lingering = new Set(waiting);
  }

  // ---- What comes ----

  /** @param deliveryOf makes a delivery of the bytes' copy */
  add(data: Uint8Array, deliveryOf: (bytes: Uint8Array) => Delivery): void {
    const kept = this.#memory.keep(data);
    const delivery = deliveryOf(kept.bytes);
    this.#queued.push(delivery);
    this.#queuedBytes += data.length;
    this.#kept.set(delivery, kept);
    this.#bytes += data.length;
    if (this.#queued.length === 1 || this.full) this.#wake?.();
  }

  complete(): void {
    this.#isComplete = true;
    this.#wake?.();
  }

  /**
   * The broker gives out no more before the sink has stored what it holds: all processors together
   * hold as many frames as they may, and each may have too few for its sink to store them.
   */
  starve(): void {
    if (this.#held.size === 0) return;
    this.#isStarved = true;
    this.#wake?.();
  }

  // ---- What is here ----

  /** Of those queued and taken, like {@link count} and {@link oldest}. */
  get bytes(): number {
    return this.#bytes;
  }

  get count(): number {
    return this.#kept.size;
  }

  /** When the broker stored the oldest frame, Unix milliseconds; infinity without one. */
  get oldest(): number {
    return oldestOf(this.#kept.keys());
  }

  get oldestHeld(): number {
    return oldestOf(this.#held);
  }

  get heldCount(): number {
    return this.#held.size;
  }

  get isStarved(): boolean {
    return this.#isStarved;
  }

  /** Whether as much is queued as one batch takes. */
  get full(): boolean {
    return this.#queuedBytes >= SINK_BATCH_BYTES_MAX || this.#queued.length >= SINK_BATCH_FRAMES_MAX;
  }

  get isEmpty(): boolean {
    return this.#queued.length === 0;
  }

  /** Nothing is queued, and nothing more will come. */
  get isOver(): boolean {
    return this.isEmpty && this.#isComplete;
  }

  /** Whether the next frame is one that may not share a batch. */
  hasSuspect(mayShare: (delivery: Delivery) => boolean): boolean {
    const [next] = this.#queued;
    return next !== undefined && !mayShare(next);
  }

  /** Resolves when a frame comes, when it is full, starved or complete, or after `ms`. */
  async untilChange(ms?: number): Promise<void> {
    if (this.#isComplete) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (ms !== undefined) timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
    this.#wake = undefined;
  }

  // ---- What goes ----

  /** The next frames in order: a batch of those that may share one, or a few that may not. */
  take(mayShare: (delivery: Delivery) => boolean): Delivery[] {
    const isShared = !this.hasSuspect(mayShare);
    const most = isShared ? SINK_BATCH_FRAMES_MAX : SUSPECTS_IN_TURN_MAX;
    let count = 0;
    for (let bytes = 0; count < this.#queued.length && count < most; count++) {
      const next = this.#queued[count] as Delivery;
      bytes += next.data.length;
      if (count > 0 && (mayShare(next) !== isShared || bytes > SINK_BATCH_BYTES_MAX)) break;
    }
    const taken = this.#queued.splice(0, count);
    for (const { data } of taken) this.#queuedBytes -= data.length;
    return taken;
  }

  /** A frame that was taken is the next one again. */
  putBack(delivery: Delivery): void {
    this.#queued.unshift(delivery);
    this.#queuedBytes += delivery.data.length;
    this.#wake?.();
  }

  /** No code reads the bytes of these frames any more: other frames overwrite them. */
  hold(deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries) {
      this.#letGo(delivery);
      delivery.forget();
      this.#held.add(delivery);
    }
    this.#onRoom();
  }

  /** These frames are acknowledged or given back. No code reads their bytes any more. */
  settle(deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries) this.#letGo(delivery);
    this.#onRoom();
  }

  /** Gives back those that are queued or held. Called when all taken ones are settled. */
  close(): void {
    clearInterval(this.#timer);
    const left = [...this.#queued, ...this.#held];
    for (const delivery of left) delivery.giveBack();
    this.#queued = [];
    this.settle(left);
  }

  #letGo(delivery: Delivery): void {
    if (this.#held.delete(delivery)) this.#isStarved = false;
    const kept = this.#kept.get(delivery);
    if (!kept) return;
    this.#kept.delete(delivery);
    this.#bytes -= delivery.data.length;
    this.#memory.release(kept);
  }
}

// ---- Their memory ----

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
