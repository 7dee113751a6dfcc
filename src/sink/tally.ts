/**
 * The tally: the sink's count of accepted envelopes by project and month, in which each envelope
 * counts once. `sluice usage reconcile` compares the tally with Redis's counters, and so does the
 * processor after Redis has lost counts.
 */
import { TALLY_MONTHS_MAX } from '../limits.ts';
import type { CountedUsage } from './sink.ts';

/** Counted usage by project and month: number of envelopes, and the highest position among them. */
export type TallyCounts = Record<string, Record<string, readonly [count: number, position: number]>>;

export type TallyOfMonth = {
  /** Envelopes that were accepted, counted, and have reached the sink. */
  count: number;
  /**
   * The highest position among these envelopes; 0 when there are none. Redis's counter of the month
   * gave the positions, so a counter below this number has lost counts.
   */
  position: number;
};

/** Counts of one stream. Adding counts sums the envelopes and keeps the higher position. */
export class Tally {
  readonly #projects = new Map<string, Map<string, TallyOfMonth>>();

  add({ projectId, month, position }: CountedUsage, count = 1): void {
    const months = this.#projects.get(projectId) ?? new Map<string, TallyOfMonth>();
    this.#projects.set(projectId, months);
    const of = months.get(month);
    if (!of) months.set(month, { count, position });
    else {
      of.count += count;
      of.position = Math.max(of.position, position);
    }
  }

  addAll(counts: TallyCounts): void {
    for (const [projectId, months] of Object.entries(counts))
      for (const [month, [count, position]] of Object.entries(months))
        this.add({ projectId, month, position }, count);
  }

  of(projectId: string, month: string): TallyOfMonth {
    return this.#projects.get(projectId)?.get(month) ?? { count: 0, position: 0 };
  }

  toCounts(): TallyCounts {
    const months = (of: Map<string, TallyOfMonth>) =>
      Object.fromEntries([...of].map(([month, { count, position }]) => [month, [count, position] as const]));
    return Object.fromEntries([...this.#projects].map(([projectId, of]) => [projectId, months(of)]));
  }

  replaceBy(other: Tally): void {
    this.#projects.clear();
    this.addAll(other.toCounts());
  }

  /** Removes all but the newest TALLY_MONTHS_MAX months, so that the tally stays small. */
  forgetOldMonths(): void {
    const months = new Set([...this.#projects.values()].flatMap((of) => [...of.keys()]));
    const old = [...months].sort().slice(0, -TALLY_MONTHS_MAX);
    for (const [projectId, of] of this.#projects) {
      for (const month of old) of.delete(month);
      if (of.size === 0) this.#projects.delete(projectId);
    }
  }
}
