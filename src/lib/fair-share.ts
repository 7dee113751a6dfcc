/**
 * Fair shares of a resource that all projects use together.
 *
 * The rule: once a resource is half full, a project that holds more than its share gets no more of
 * it, and other projects go on. A share is the resource divided by one more than the number of
 * projects that use it now; the one is for the next project to come. So a project that is alone
 * gets no more once it holds more than half. For bodies under way, the rule applies only once three
 * quarters of the memory are held.
 *
 * Each resource is declared in the module that owns it: a search for `new FairShare(` finds them
 * all. Three things have bounds of another kind. Bodies that swell (InflationQueue) and work for
 * the processors (stream/work.ts) are debts that time pays off. The oldest dead letters are deleted
 * when there are too many.
 */

import { newSlot, type Slotted } from './slots.ts';

/**
 * Picks the member of `waiting` whose project has the smallest amount `atWork`. Undefined when
 * nothing waits. Among equals, the first member wins, because `waiting` is in the order of arrival.
 */
export function nextInTurn<T>(waiting: readonly T[], atWork: (one: T) => number): T | undefined {
  let next: T | undefined;
  let least = Infinity;
  for (const one of waiting) {
    const amount = atWork(one);
    if (amount < least) [next, least] = [one, amount];
    if (least === 0) break;
  }
  return next;
}

const isHeld = (amount: number): boolean => amount > 0;

export class FairShare {
  readonly #slot: number;
  readonly #max: number;
  #total = 0;
  #users = 0;

  /**
   * @param max the bound of the resource
   * @param slot the slot that holds each project's amount
   */
  constructor(max: number, slot = newSlot(isHeld)) {
    this.#max = max;
    this.#slot = slot;
  }

  /** Amount that all projects hold. */
  get total(): number {
    return this.#total;
  }

  /** Amount that one project holds. */
  of({ slots }: Slotted): number {
    return (slots[this.#slot] as number | undefined) ?? 0;
  }

  /**
   * Adds to the amount that a project holds.
   * @param delta negative to give back
   */
  add(project: Slotted, delta: number): void {
    const before = this.of(project);
    const after = before + delta;
    project.slots[this.#slot] = after;
    this.#total += delta;
    if (before === 0 && after > 0) this.#users++;
    else if (before > 0 && after === 0) this.#users--;
  }

  /**
   * Adds to the amount that a project holds.
   * @returns false when the resource's bound or the project's share is exceeded; the amount is
   * added all the same
   */
  take(project: Slotted, delta: number): boolean {
    this.add(project, delta);
    return this.#total <= this.#max && this.allows(project);
  }

  /** Returns false when the resource is half full and the project holds more than its share. */
  allows(project: Slotted): boolean {
    return 2 * this.#total < this.#max || this.of(project) * (this.#users + 1) <= this.#max;
  }
}
