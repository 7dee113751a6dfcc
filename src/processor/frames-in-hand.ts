import {
  ACK_WAIT_MS,
  FRAME_BYTES_MAX,
  SINK_BATCH_BYTES_MAX,
  SINK_BATCH_FRAMES_MAX,
  SUSPECTS_IN_TURN_MAX,
} from '../limits.ts';
import type { Delivery } from './delivery.ts';

/**
 * Number of looks at the frames in hand in ACK_WAIT_MS, after which the broker would deliver them
 * again. For a frame that two looks find, the broker gets `working()`: after half of ACK_WAIT_MS at
 * the latest.
 */
const LOOKS_PER_ACK_WAIT = 4;

function oldestOf(frames: Iterable<Delivery>): number {
  let oldest = Number.POSITIVE_INFINITY;
  for (const { storedAt } of frames) oldest = Math.min(oldest, storedAt);
  return oldest;
}

/**
 * Frames of one stream that the broker has delivered to this process. A frame that has come is
 * *queued*. It is *taken* while it is written to a batch. It is *held* when the sink has it in
 * memory and will make it durable later; its bytes are then released. It is *settled* when it is
 * acknowledged or given back.
 *
 * The broker gets `working()` for each frame that is still here at a second look: after five
 * seconds at the latest, then every 2.5 s. So frames may wait here as long as a sink fails, and
 * frames that pass quickly cost no message.
 */
export class FramesInHand {
  readonly #onRoom: () => void;
  #queued: Delivery[] = [];
  #queuedBytes = 0;
  /** Frames that are queued or taken, with their memory. */
  readonly #kept = new Map<Delivery, KeptFrame>();
  #bytes = 0;
  readonly #held = new Set<Delivery>();
  #isStarved = false;
  /** Whether no more frames will come. */
  #isComplete = false;
  readonly #memory = new FrameBlocks();
  /** Frames that were here at the last look. */
  #lingering: ReadonlySet<Delivery> = new Set();
  readonly #timer: NodeJS.Timeout;
  #wake: (() => void) | undefined;
  /** Whether the consumer waits without a time limit. */
  #waitsForFrame = false;

  /** @param onRoom called when there may be room for more frames */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
    this.#timer = setInterval(() => this.#look(), ACK_WAIT_MS / LOOKS_PER_ACK_WAIT);
  }

  #look(): void {
    const waiting = [...this.#kept.keys(), ...this.#held];
    for (const delivery of waiting) if (this.#lingering.has(delivery)) delivery.working();
    this.#lingering = new Set(waiting);
  }

  // ---- Frames that come ----

  /**
   * Queues a frame, and returns its delivery.
   * @param deliveryOf makes the delivery from a copy of the bytes
   */
  add(data: Uint8Array, deliveryOf: (bytes: Uint8Array) => Delivery): Delivery {
    const kept = this.#memory.keep(data);
    const delivery = deliveryOf(kept.bytes);
    this.#queued.push(delivery);
    this.#queuedBytes += data.length;
    this.#kept.set(delivery, kept);
    this.#bytes += data.length;
    if (this.#queued.length === 1 || this.full) this.#wake?.();
    return delivery;
  }

  complete(): void {
    this.#isComplete = true;
    this.#wake?.();
  }

  /**
   * Notes that the broker gives out no more frames until the sink has stored those that it holds.
   * The sinks of all processors together then hold as many unacknowledged frames as the broker
   * allows, and each sink may wait in vain for more frames to fill a batch.
   */
  starve(): void {
    if (this.#held.size === 0) return;
    this.#isStarved = true;
    this.#wake?.();
  }

  // ---- Frames that are here ----

  /**
   * Bytes of the frames that are queued or taken. {@link count} and {@link oldest} are about the
   * same frames.
   */
  get bytes(): number {
    return this.#bytes;
  }

  get count(): number {
    return this.#kept.size;
  }

  /** When the broker stored the oldest frame, Unix milliseconds; infinity without a frame. */
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

  /** Whether the queued frames fill one batch. */
  get full(): boolean {
    return this.#queuedBytes >= SINK_BATCH_BYTES_MAX || this.#queued.length >= SINK_BATCH_FRAMES_MAX;
  }

  get isEmpty(): boolean {
    return this.#queued.length === 0;
  }

  /** Whether the consumer does nothing until a frame comes. */
  get isAwaited(): boolean {
    return this.#waitsForFrame && this.isEmpty;
  }

  /** Whether nothing is queued and nothing more will come. */
  get isOver(): boolean {
    return this.isEmpty && this.#isComplete;
  }

  /** Whether the next frame is one that may not share a batch. */
  hasSuspect(mayShare: (delivery: Delivery) => boolean): boolean {
    const [next] = this.#queued;
    return next !== undefined && !mayShare(next);
  }

  /**
   * Resolves when a frame comes to an empty queue or is put back, when the queue fills a batch, or
   * at {@link starve} or {@link complete}; after `ms` at the latest.
   */
  async untilChange(ms?: number): Promise<void> {
    if (this.#isComplete) return;
    let timer: NodeJS.Timeout | undefined;
    this.#waitsForFrame = ms === undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (ms !== undefined) timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
    this.#wake = undefined;
    this.#waitsForFrame = false;
  }

  // ---- Frames that go ----

  /**
   * Takes the next frames in order: frames for one shared batch, or at most SUSPECTS_IN_TURN_MAX
   * that may not share one.
   */
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

  /** Puts a taken frame back, at the head of the queue. */
  putBack(delivery: Delivery): void {
    this.#queued.unshift(delivery);
    this.#queuedBytes += delivery.data.length;
    this.#wake?.();
  }

  /**
   * Marks frames as held: the sink has them in memory. No code reads their bytes any more, and
   * other frames overwrite these bytes.
   */
  hold(deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries) {
      this.#letGo(delivery);
      delivery.forget();
      this.#held.add(delivery);
    }
    this.#onRoom();
  }

  /**
   * Forgets frames that are acknowledged or given back to the broker. No code reads their bytes any
   * more.
   */
  settle(deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries) this.#letGo(delivery);
    this.#onRoom();
  }

  /**
   * Gives the frames that are queued or held back to the broker. Called when all taken frames are
   * settled.
   */
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

// ---- Memory of the frames ----

const BLOCK_BYTES = 2 * FRAME_BYTES_MAX;

/**
 * Memory that frames fill one behind the other. When all its frames are released, the block is
 * filled from the start again.
 */
type Block = { readonly bytes: Uint8Array; used: number; frames: number };

/** A frame in hand. No other frame overwrites its `bytes` until it is released. */
export type KeptFrame = { readonly bytes: Uint8Array; readonly block: Block | undefined };

const newBlock = (): Block => ({ bytes: new Uint8Array(BLOCK_BYTES), used: 0, frames: 0 });

/**
 * The memory of one stream's frames while they are in hand.
 *
 * The NATS client hands over views of new buffers, up to three times as large as the message. While
 * a frame waits for its batch, its buffer outlives V8's young collections. Under load V8 then
 * collected the whole heap three times a second. So each frame is copied into blocks that are used
 * again, and the client's buffers go with the next young collection.
 *
 * Frames are released in about the order in which they came. So the blocks take at most about 1.4
 * times the largest amount in hand. All but the open block are released when no frame is in hand.
 */
export class FrameBlocks {
  /**
   * The block for the next frame. It is made with the first frame, because many streams are idle.
   */
  #open: Block | undefined;
  #free: Block[] = [];
  #inHand = 0;

  /** Copies a frame into a block. A message larger than FRAME_BYTES_MAX is not copied. */
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

  /**
   * Releases a frame's memory. Called once for each frame, when no code reads its bytes any more.
   */
  release({ block }: KeptFrame): void {
    if (!block) return;
    this.#inHand--;
    if (--block.frames > 0) return;
    block.used = 0;
    if (block !== this.#open) this.#free.push(block);
    if (this.#inHand === 0) this.#free = [];
  }
}
