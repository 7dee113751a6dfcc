import type { Clock } from '../lib/clock.ts';
import {
  HEAVY_DECODED_BYTES_MAX,
  HEAVY_DECODING_MAX,
  HEAVY_WAIT_MS_MAX,
  HEAVY_WAITING_BYTES_MAX,
} from '../limits.ts';

type Waiting = { bytes: number; since: number; begin: () => void };

export type HeavyFramesOptions = {
  clock: Pick<Clock, 'monotonic'>;
  /** Called with a project that sends more heavy frames than can be decoded in time. */
  onTooMany: (projectId: string) => void;
};

/**
 * Decodes frames whose entry takes long to decode. Such a frame is decoded in slices, with pauses
 * in which the frames behind it go on. Then it goes back to the head of its stream's queue.
 *
 * Projects take turns, and one frame of each project is decoded at a time. So a project's frame
 * waits for one frame of each other project, not for all that they queued. To bound memory, at most
 * HEAVY_DECODING_MAX frames are decoded together, and none begins while HEAVY_DECODED_BYTES_MAX or
 * more wait to be written.
 */
export class HeavyFrames {
  readonly #options: HeavyFramesOptions;
  /**
   * Waiting frames by project; the project that was served last comes last. A project stays in the
   * map while its frame is decoded.
   */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #atWork = new Set<string>();
  #decodedBytes = 0;

  constructor(options: HeavyFramesOptions) {
    this.#options = options;
  }

  /** Runs the work on a frame of this many bytes when its turn comes. */
  async run(projectId: string, bytes: number, work: () => Promise<void>): Promise<void> {
    await new Promise<void>((begin) => {
      const own = this.#waiting.get(projectId) ?? [];
      own.push({ bytes, since: this.#options.clock.monotonic(), begin });
      this.#waiting.set(projectId, own);
      this.#tellTooMany(projectId, own);
      this.#next();
    });
    try {
      await work();
    } finally {
      this.#atWork.delete(projectId);
      const left = this.#waiting.get(projectId) ?? [];
      this.#waiting.delete(projectId);
      if (left.length > 0) this.#waiting.set(projectId, left);
      this.#next();
    }
  }

  /**
   * Changes the number of decoded bytes that wait to be written.
   * @param bytes that were decoded; negative for bytes that were written or dropped
   */
  decoded(bytes: number): void {
    this.#decodedBytes += bytes;
    this.#next();
  }

  #next(): void {
    for (const [projectId, frames] of this.#waiting) {
      if (this.#atWork.size >= HEAVY_DECODING_MAX || this.#decodedBytes >= HEAVY_DECODED_BYTES_MAX) return;
      if (this.#atWork.has(projectId)) continue;
      this.#atWork.add(projectId);
      frames.shift()?.begin();
    }
  }

  #tellTooMany(projectId: string, own: readonly Waiting[]): void {
    const bytes = own.reduce((sum, frame) => sum + frame.bytes, 0);
    const waited = this.#options.clock.monotonic() - (own[0]?.since ?? 0);
    if (bytes > HEAVY_WAITING_BYTES_MAX || waited > HEAVY_WAIT_MS_MAX) this.#options.onTooMany(projectId);
  }
}
