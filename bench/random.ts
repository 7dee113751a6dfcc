/** Seeded randomness: two runs of the same seed send the same bytes in the same order. */

/** Uniform in [0, 1). */
export type Random = () => number;

/** A counter that is hashed (splitmix32): fast, and good enough to choose what is sent next. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 0x1_0000_0000;
  };
}

export const integer = (random: Random, min: number, max: number): number =>
  min + Math.floor(random() * (max - min + 1));

export const pick = <T>(random: Random, list: readonly T[]): T =>
  list[Math.floor(random() * list.length)] as T;

export function hex(random: Random, length: number): string {
  let text = '';
  while (text.length < length) text += Math.floor(random() * 16).toString(16);
  return text;
}

/** A table from which a uniform index draws ranks with the given weights, in constant time and without a search. */
export function drawTable(weights: readonly number[], entries: number): Uint16Array {
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const table = new Uint16Array(entries);
  let at = 0;
  let passed = 0;
  weights.forEach((weight, rank) => {
    passed += weight;
    const end = Math.round((passed / sum) * entries);
    // Every rank is drawn at least once as long as there is room: the thin end of Zipf must not vanish.
    const last = Math.min(entries, Math.max(end, at + 1));
    while (at < last) table[at++] = rank;
  });
  return table;
}

/** Weights of Zipf's law with exponent 1: the project of rank r gets 1/r of what the first gets. */
export const zipf = (ranks: number): number[] => Array.from({ length: ranks }, (_, rank) => 1 / (rank + 1));
