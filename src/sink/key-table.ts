/**
 * A table of millions of 128-bit keys, each with a time and a number, in one flat array. A key
 * takes 32 bytes. In a Map of strings, the nine million keys of fifteen minutes at 10,000 events a
 * second would take a gigabyte.
 *
 * A key's first word picks its slot. If the slot is taken, the key gets the next free one (open
 * addressing). When three quarters of the slots are taken, the table is rebuilt without keys that
 * are too old, and becomes larger or smaller as needed. Keys are not removed in any other way.
 */
import { assert } from '../lib/assert.ts';
import { KEY_BYTES } from './item-key.ts';

const KEY_WORDS = KEY_BYTES / 4;
const SLOTS_MIN = 1024;
const FULL_SHARE = 0.75;
/** Largest part of the slots that is taken after a rebuild. Less would make the table larger. */
const REBUILT_SHARE = 0.6;

/** Words of a slot: four of key, two of time (a double), the value, and whether it is taken. */
const SLOT_WORDS = 8;
const VALUE = 6;
const TAKEN = 7;
/** The layout in doubles: size of a slot, and index of the time. */
const SLOT_DOUBLES = 4;
const TIME = 2;

export class KeyTable {
  #slots = SLOTS_MIN;
  #words = new Uint32Array(SLOTS_MIN * SLOT_WORDS);
  /** The memory of #words as doubles. */
  #doubles = new Float64Array(this.#words.buffer);
  #used = 0;
  readonly #floor: () => number;

  /** @param floor returns the moment before which keys need not be kept */
  constructor(floor: () => number) {
    this.#floor = floor;
  }

  /** Number of keys in the table, including old ones that the next rebuild will drop. */
  get size(): number {
    return this.#used;
  }

  get(key: Buffer): { time: number; value: number } | undefined {
    const slot = this.#find(key);
    const at = slot * SLOT_WORDS;
    if (this.#words[at + TAKEN] === 0) return undefined;
    return {
      time: this.#doubles[slot * SLOT_DOUBLES + TIME] as number,
      value: this.#words[at + VALUE] as number,
    };
  }

  /** Adds the key, or replaces its time and number. */
  set(key: Buffer, time: number, value = 0): void {
    if (this.#used >= this.#slots * FULL_SHARE) this.#rebuild();
    const slot = this.#find(key);
    const at = slot * SLOT_WORDS;
    if (this.#words[at + TAKEN] === 0) {
      this.#used++;
      for (let i = 0; i < KEY_WORDS; i++) this.#words[at + i] = key.readUInt32LE(i * 4);
      this.#words[at + TAKEN] = 1;
    }
    this.#doubles[slot * SLOT_DOUBLES + TIME] = time;
    this.#words[at + VALUE] = value;
  }

  /** Returns the key's slot, or the free slot where the key belongs. */
  #find(key: Buffer): number {
    assert(key.length === KEY_BYTES, 'a key has 128 bits');
    const words = this.#words;
    const a = key.readUInt32LE(0);
    const b = key.readUInt32LE(4);
    const c = key.readUInt32LE(8);
    const d = key.readUInt32LE(12);
    for (let slot = this.#home(a); ; slot = this.#next(slot)) {
      const at = slot * SLOT_WORDS;
      if (words[at + TAKEN] === 0) return slot;
      if (words[at] === a && words[at + 1] === b && words[at + 2] === c && words[at + 3] === d) return slot;
    }
  }

  #home(firstWord: number): number {
    return firstWord & (this.#slots - 1);
  }

  #next(slot: number): number {
    return (slot + 1) & (this.#slots - 1);
  }

  #rebuild(): void {
    const floor = this.#floor();
    const [words, doubles, slots] = [this.#words, this.#doubles, this.#slots];
    const isKept = (slot: number): boolean =>
      words[slot * SLOT_WORDS + TAKEN] === 1 && (doubles[slot * SLOT_DOUBLES + TIME] as number) >= floor;
    let kept = 0;
    for (let slot = 0; slot < slots; slot++) if (isKept(slot)) kept++;
    this.#slots = SLOTS_MIN;
    while (kept > this.#slots * REBUILT_SHARE) this.#slots *= 2;
    this.#words = new Uint32Array(this.#slots * SLOT_WORDS);
    this.#doubles = new Float64Array(this.#words.buffer);
    this.#used = kept;
    for (let slot = 0; slot < slots; slot++) if (isKept(slot)) this.#move(words, slot * SLOT_WORDS);
  }

  /** Moves a key from the old table into a free slot. All keys differ, so none is compared. */
  #move(from: Uint32Array, at: number): void {
    let slot = this.#home(from[at] as number);
    while (this.#words[slot * SLOT_WORDS + TAKEN] === 1) slot = this.#next(slot);
    for (let i = 0; i < SLOT_WORDS; i++) this.#words[slot * SLOT_WORDS + i] = from[at + i] as number;
  }
}
