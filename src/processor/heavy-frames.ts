import type { Clock } from '../lib/clock.ts';
import {
  HEAVY_DECODED_BYTES_MAX,
  HEAVY_DECODING_MAX,
  HEAVY_WAIT_MS_MAX,
  HEAVY_WAITING_BYTES_MAX,
} from '../limits.ts';

type Waiting = { projectId: string; bytes: number; since: number; begin: () => void };

export type HeavyFramesOptions = {
  clock: Pick<Clock, 'monotonic'>;
  /** Told of a project that sends more of them than are decoded in time. */
  onTooMany: (projectId: string) => void;
};

/**
 * Frames whose entry takes long to decode: they are decoded beside their stream, in slices of the
 * event loop, and join it when they are ready. What came behind them goes on meanwhile.
 *
 * A project has one at work at a time, in the order in which they came, so that another project's
 * frame never waits for several. HEAVY_DECODING_MAX are at work together, and what is decoded and
 * not written is bounded: that bounds memory.
 */
export class HeavyFrames {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #onTooMany: (projectId: string) => void;
  #waiting: Waiting[] = [];
  readonly #atWork = new Set<string>();
  #decodedBytes = 0;

  constructor({ clock, onTooMany }: HeavyFramesOptions) {
    this.#clock = clock;
    this.#onTooMany = onTooMany;
  }

  /** Runs the work on a frame of so many bytes when it is its turn. */
  async run(projectId: string, bytes: number, work: () => Promise<void>): Promise<void> {
    await new Promise<void>((begin) => {
      this.#waiting.push({ projectId, bytes, since: this.#clock.monotonic(), begin });
      this.#tellTooMany(projectId);
      this.#next();
    });
    try {
      await work();
    } finally {
      this.#atWork.delete(projectId);
      this.#next();
    }
  }

  /** @param bytes that were decoded and wait to be written; negative: that do so no more */
  decoded(bytes: number): void {
    this.#decodedBytes += bytes;
    this.#next();
  }

  #next(): void {
    while (this.#atWork.size < HEAVY_DECODING_MAX && this.#decodedBytes < HEAVY_DECODED_BYTES_MAX) {
      const at = this.#waiting.findIndex(({ projectId }) => !this.#atWork.has(projectId));
      const [next] = at < 0 ? [] : this.#waiting.splice(at, 1);
      if (!next) return;
      this.#atWork.add(next.projectId);
      next.begin();
    }
  }

  #tellTooMany(projectId: string): void {
    const own = this.#waiting.filter((frame) => frame.projectId === projectId);
    const bytes = own.reduce((sum, frame) => sum + frame.bytes, 0);
    const waited = this.#clock.monotonic() - (own[0]?.since ?? 0);
    if (bytes > HEAVY_WAITING_BYTES_MAX || waited > HEAVY_WAIT_MS_MAX) this.#onTooMany(projectId);
  }
}
