import { PREFETCH_FRAMES_MAX } from '../limits.ts';

/** Number of frames that are remembered: more than a processor works on at once. */
const FRAMES_MAX = 4 * PREFETCH_FRAMES_MAX;

/**
 * Remembers how many entries of each frame this process has stored. A repeatable sink has one for
 * each stream. While another sink is away, the processor tries the same frames every few seconds;
 * this memory avoids most repeated writes, but guarantees nothing.
 */
export class RecentFrames {
  readonly #entries = new Map<string, number>();

  entriesOf(frameId: string): number {
    return this.#entries.get(frameId) ?? 0;
  }

  note(frames: ReadonlyMap<string, number>): void {
    for (const [frameId, entries] of frames) {
      this.#entries.delete(frameId);
      this.#entries.set(frameId, entries);
    }
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= FRAMES_MAX) return;
      this.#entries.delete(oldest);
    }
  }
}
