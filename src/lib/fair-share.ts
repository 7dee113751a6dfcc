/**
 * Fair shares of what all projects use together.
 *
 * One rule: once a resource is half full, a project that holds more than its share gets no more of
 * it, and the others go on. A share is the resource divided by the projects that use it now and the
 * next one to come. Without that one a single project could take all of it before another asks. So
 * no request of a project begins once it has half; bodies under way may take three quarters of the
 * memory.
 *
 * A resource is declared where it lives: `new FairShare(` finds them all. Three things are none and
 * have bounds of another kind: bodies that swell (InflationQueue) and work for the processors
 * (stream/work.ts) are debts that time pays, and dead letters go when there are too many.
 */

import { newSlot, type Slotted } from './slots.ts';

/** Of those that wait, the oldest of the project that has the least at work. */
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

  /** @param slot in which it is noted what each project holds */
  constructor(max: number, slot = newSlot(isHeld)) {
    this.#max = max;
    this.#slot = slot;
  }

  /** Held by all projects. */
  get total(): number {
    return this.#total;
  }

  /** Held by one project. */
  of({ slots }: Slotted): number {
    return (slots[this.#slot] as number | undefined) ?? 0;
  }

  /** @param delta negative to give back */
  add(project: Slotted, delta: number): void {
    const before = this.of(project);
    const after = before + delta;
    project.slots[this.#slot] = after;
    this.#total += delta;
    if (before === 0 && after > 0) this.#users++;
    else if (before > 0 && after === 0) this.#users--;
  }

  /** Adds. @returns false beyond the bound or the project's share; it counts all the same */
  take(project: Slotted, delta: number): boolean {
    this.add(project, delta);
    return this.#total <= this.#max && this.allows(project);
  }

  /** False: the resource is at least half full, and the project holds more than its share. */
  allows(project: Slotted): boolean {
    return 2 * this.#total < this.#max || this.of(project) * (this.#users + 1) <= this.#max;
  }
}
