import { PREFETCH_FRAMES_MAX } from '../limits.ts';

/**
 * Number of frames that are remembered. Fewer frames are in hand at once, so a frame that is tried
 * again is known.
 */
const FRAMES_MAX = 4 * PREFETCH_FRAMES_MAX;

/**
 * How many entries of each frame this process has stored. A repeatable sink keeps this for each
 * stream. It guarantees nothing, but it avoids most repeated writes: while another sink is away,
 * the same frames are tried every few seconds.
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
