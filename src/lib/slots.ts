/**
 * Slots let the stages of a worker attach state to an object that all of them know: a project, or a
 * scope of its limits. A stage declares its slot in its own module, and no other stage sees the
 * slot.
 */

/** For each slot, by its number: a function that tells whether a state in the slot must be kept. */
const tests: ((state: never) => boolean)[] = [];

/**
 * Declares one more slot and returns its number.
 * @param mustBeKept tells whether forgetting a state would lose something
 */
export const newSlot = <T>(mustBeKept: (state: T) => boolean): number => tests.push(mustBeKept) - 1;

/** An object with slots. Its states are in one array, close together for the CPU's caches. */
export class Slotted {
  /** The states, by the numbers of their slots. */
  readonly slots: unknown[] = new Array(tests.length);

  /** Whether a slot holds a state that must be kept. */
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

  /** Returns the state, and makes it when there is none. */
  of(of: S): T {
    return this.find(of) ?? this.renew(of);
  }

  find({ slots }: S): T | undefined {
    return slots[this.#number] as T | undefined;
  }

  /** Puts a new state in place of the present one. */
  renew(of: S): T {
    const state = this.#make(of);
    of.slots[this.#number] = state;
    return state;
  }

  clear({ slots }: S): void {
    slots[this.#number] = undefined;
  }
}
