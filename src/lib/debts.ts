import { DEBTS_SWEPT_MIN } from '../limits.ts';

/**
 * Debts of projects, in milliseconds of work. Each millisecond that passes pays off one millisecond
 * of every debt. Every `now` is from the same clock, in ms.
 */
export class Debts {
  readonly #paidAt = new Map<string, number>();
  #sweepSize = DEBTS_SWEPT_MIN;

  /** Number of projects that have an entry, including entries whose debt is paid off. */
  get size(): number {
    return this.#paidAt.size;
  }

  of(projectId: string, now: number): number {
    return Math.max(0, (this.#paidAt.get(projectId) ?? 0) - now);
  }

  /**
   * Adds work to the debt of a project.
   * @param ms the work; negative to take work back
   * @returns what the project owes now
   */
  add(projectId: string, ms: number, now: number): number {
    const paidAt = Math.max(now, this.#paidAt.get(projectId) ?? 0) + ms;
    this.#paidAt.set(projectId, paidAt);
    if (this.#paidAt.size > this.#sweepSize) this.#sweep(now);
    return Math.max(0, paidAt - now);
  }

  #sweep(now: number): void {
    for (const [projectId, paidAt] of this.#paidAt) if (paidAt <= now) this.#paidAt.delete(projectId);
    this.#sweepSize = Math.max(DEBTS_SWEPT_MIN, 2 * this.#paidAt.size);
  }
}
