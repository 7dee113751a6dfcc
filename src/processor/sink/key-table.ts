/**
 * Millions of 128-bit keys, each with a time and a number, in a few flat arrays.
 *
 * Ten minutes of 10,000 events a second are six million keys. As strings in a Map they would cost a gigabyte; here a
 * slot has 28 bytes and the table is at most three quarters full. Keys are halves of hashes, so their first word
 * picks the slot and the next free one is taken on collision (open addressing). Nothing is removed one by one: when
 * the table is full, it is built anew with what is younger than the given floor, larger or smaller as needed.
 */
import { assert } from '../../lib/assert.ts';
import { KEY_BYTES } from './item-key.ts';

const SLOTS_MIN = 1024;
const FULL_SHARE = 0.75;
/** After a rebuild at most this share is in use, so that the next one is far. */
const REBUILT_SHARE = 0.375;

export class KeyTable {
  #slots: number;
  #words: Uint32Array;
  /** Unix milliseconds; NaN in a free slot. */
  #times: Float64Array;
  #values: Uint32Array;
  #used = 0;
  readonly #floor: () => number;

  /** @param floor keys whose time is before this moment need not be kept */
  constructor(floor: () => number) {
    this.#floor = floor;
    this.#slots = SLOTS_MIN;
    this.#words = new Uint32Array(SLOTS_MIN * 4);
    this.#times = new Float64Array(SLOTS_MIN).fill(Number.NaN);
    this.#values = new Uint32Array(SLOTS_MIN);
  }

  /** Keys in the table, old ones that have not been cleared yet included. */
  get size(): number {
    return this.#used;
  }

  get(key: Buffer): { time: number; value: number } | undefined {
    const slot = this.#find(wordsOf(key));
    const time = this.#times[slot] as number;
    return Number.isNaN(time) ? undefined : { time, value: this.#values[slot] as number };
  }

  /** Adds the key or replaces what it stood for. */
  set(key: Buffer, time: number, value = 0): void {
    assert(!Number.isNaN(time), 'a key has a time');
    if (this.#used >= this.#slots * FULL_SHARE) this.#rebuild();
    this.#put(wordsOf(key), time, value);
  }

  #put(words: Words, time: number, value: number): void {
    const slot = this.#find(words);
    if (Number.isNaN(this.#times[slot])) {
      this.#used++;
      this.#words.set(words, slot * 4);
    }
    this.#times[slot] = time;
    this.#values[slot] = value;
  }

  /** Where the key is, or the free slot where it belongs. */
  #find(words: Words): number {
    const [a, b, c, d] = words;
    for (let slot = a & (this.#slots - 1); ; slot = (slot + 1) & (this.#slots - 1)) {
      if (Number.isNaN(this.#times[slot])) return slot;
      const at = slot * 4;
      const same =
        this.#words[at] === a &&
        this.#words[at + 1] === b &&
        this.#words[at + 2] === c &&
        this.#words[at + 3] === d;
      if (same) return slot;
    }
  }

  #rebuild(): void {
    const floor = this.#floor();
    const old = { words: this.#words, times: this.#times, values: this.#values };
    const kept = old.times.reduce((count, time) => (time >= floor ? count + 1 : count), 0);
    this.#slots = SLOTS_MIN;
    while (kept > this.#slots * REBUILT_SHARE) this.#slots *= 2;
    this.#words = new Uint32Array(this.#slots * 4);
    this.#times = new Float64Array(this.#slots).fill(Number.NaN);
    this.#values = new Uint32Array(this.#slots);
    this.#used = 0;
    old.times.forEach((time, slot) => {
      if (!(time >= floor)) return;
      const [a = 0, b = 0, c = 0, d = 0] = old.words.subarray(slot * 4, slot * 4 + 4);
      this.#put([a, b, c, d], time, old.values[slot] as number);
    });
  }
}

type Words = [number, number, number, number];

function wordsOf(key: Buffer): Words {
  assert(key.length === KEY_BYTES, 'a key has 128 bits');
  return [key.readUInt32LE(0), key.readUInt32LE(4), key.readUInt32LE(8), key.readUInt32LE(12)];
}
