/**
 * What the stages of a worker hang to an object that all of them know: a project, or a scope of its
 * limits. A stage declares a slot where it lives, and nobody else sees what is in it.
 */

/** Whether a state must not be forgotten, by the number of its slot. */
const tests: ((state: never) => boolean)[] = [];

/** The number of one more slot. @param mustBeKept whether a state would be missed */
export const newSlot = <T>(mustBeKept: (state: T) => boolean): number => tests.push(mustBeKept) - 1;

/** An object with slots. All states are in one list, so that they share the CPU's caches. */
export class Slotted {
  /** By the numbers of the slots. */
  readonly slots: unknown[] = new Array(tests.length);

  /** Whether a stage has a state in it that must not be forgotten. */
  get isInUse(): boolean {
    return this.slots.some((state, number) => state !== undefined && tests[number]?.(state as never));
  }
}

export class Slot<T extends object, S extends Slotted = Slotted> {
  readonly #number: number;
  readonly #make: (of: S) => T;

  constructor(make: (of: S) => T, mustBeKept: (state: T) => boolean) {
    this.#make = make;
    this.#number = newSlot(mustBeKept);
  }

  /** The state, which is made when there is none. */
  of(of: S): T {
    return this.find(of) ?? this.renew(of);
  }

  find({ slots }: S): T | undefined {
    return slots[this.#number] as T | undefined;
  }

  /** A new state in place of the one before. */
  renew(of: S): T {
    const state = this.#make(of);
    of.slots[this.#number] = state;
    return state;
  }

  clear({ slots }: S): void {
    slots[this.#number] = undefined;
  }
}
