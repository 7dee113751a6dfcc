/** Envelopes of the grammar (bench/hostile/grammar.ts): what is sound is taken as it was derived, all else is refused. */
import { expect, it } from 'vitest';
import { derivedEnvelope } from '../../../bench/hostile/grammar.ts';
import { seededRandom } from '../../../bench/random.ts';
import { givenSeed, rounds } from '../../support/rounds.ts';
import { cutAtRandom, shapeOf, uploadOf } from './bodies.ts';

it('an envelope is taken as it was derived, or refused, however it is cut', async () => {
  const { seed = Math.floor(Math.random() * 0x1_0000_0000) } = givenSeed;
  const random = seededRandom(seed);
  const told = { taken: 0, refused: 0 };
  for (let round = 0; round < rounds(100_000, 3_000); round++) {
    const { body, encoding, stored, eventId, how } = derivedEnvelope(random);
    const result = await uploadOf(cutAtRandom(body, random), encoding);
    const name = `${how}; round ${round} of seed ${seed}`;
    if (stored === undefined) {
      expect(result.ok ? 'taken' : result.failure.kind, name).toBe('invalid');
      told.refused++;
      continue;
    }
    if (!result.ok) throw new Error(`${name}: ${result.failure.detail}`);
    const { items } = (await shapeOf(result.envelope)) as { items: { type: string; payload: string }[] };
    expect(
      items.map(({ type, payload }) => ({ type, payload })),
      name,
    ).toEqual(stored);
    if (eventId !== undefined) expect(result.envelope.eventId, name).toBe(eventId);
    told.taken++;
  }
  console.log(`seed ${seed}: ${told.taken} taken, ${told.refused} refused`);
  expect(Math.min(told.taken, told.refused)).toBeGreaterThan(1_000);
});
