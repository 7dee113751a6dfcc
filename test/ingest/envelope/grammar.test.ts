/** Envelopes of the grammar (bench/hostile/grammar.ts): what is sound is taken as it was derived, all else is refused. */
import { expect, it } from 'vitest';
import { derivedEnvelope } from '../../../bench/hostile/grammar.ts';
import { seededRandom } from '../../../bench/random.ts';
import { givenSeed, rounds } from '../../support/rounds.ts';
import { cutAtRandom, feedAll, shapeOf, startUpload, testBudget } from './bodies.ts';

it('an envelope is taken as it was derived, or refused, however it is cut, and nothing of it stays', async () => {
  const { seed = Math.floor(Math.random() * 0x1_0000_0000) } = givenSeed;
  const random = seededRandom(seed);
  // One for all, as a worker has it: each budget declares slots that every later project carries.
  const budget = testBudget();
  const told = { taken: 0, refused: 0 };
  for (let round = 0; round < rounds(100_000, 3_000); round++) {
    const { body, encoding, stored, eventId, how } = derivedEnvelope(random);
    const { upload, result } = startUpload(encoding, budget);
    feedAll(upload, cutAtRandom(body, random));
    const verdict = await result;
    const name = `${how}; round ${round} of seed ${seed}`;
    if (stored === undefined) {
      expect(verdict.ok ? 'taken' : verdict.failure.kind, name).toBe('invalid');
      told.refused++;
    } else {
      if (!verdict.ok) throw new Error(`${name}: ${verdict.failure.detail}`);
      const { items } = (await shapeOf(verdict.envelope)) as { items: { type: string; payload: string }[] };
      expect(
        items.map(({ type, payload }) => ({ type, payload })),
        name,
      ).toEqual(stored);
      if (eventId !== undefined) expect(verdict.envelope.eventId, name).toBe(eventId);
      told.taken++;
    }
    upload.dispose();
    expect(budget.heldBytes, name).toBe(0);
  }
  console.log(`seed ${seed}: ${told.taken} taken, ${told.refused} refused`);
  expect(Math.min(told.taken, told.refused)).toBeGreaterThan(1_000);
});
