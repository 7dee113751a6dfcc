/**
 * How often loops of kills, faults and mutations go round: a few times in `npm test`, as often as they should in `npm run test:long`,
 * which runs the files that ask here, and nothing else. The only reader of TEST_ROUNDS and TEST_SEED.
 */
const all = process.env.TEST_ROUNDS === 'all';

export const rounds = <T>(inLongRun: T, otherwise: T): T => (all ? inLongRun : otherwise);

/** Seed of a property whose runs are counted (bench/hostile/README.md), so that one of them can be repeated; else a random one. */
export const givenSeed: { seed?: number } =
  process.env.TEST_SEED === undefined ? {} : { seed: Number(process.env.TEST_SEED) };
