/** Our own processes and Redis die, stand still and come back; a short seeded mix of everything. The long run is `npm run test:faults`. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { pick, seededRandom } from '../../bench/random.ts';
import { rounds } from '../support/rounds.ts';
import { fits } from './fault.ts';
import { FAULTS } from './faults.ts';
import { PRIMARY_FROZEN, PRIMARY_KILLED, ROLLING } from './process-faults.ts';
import { REDIS_EMPTY } from './redis-faults.ts';
import { runScenario } from './scenario.ts';
import { Stand } from './stand.ts';

/** Half the requests of the long run, and half of its quota. */
const PACE = rounds({ thinkMs: 40, quota: 500 }, { thinkMs: 80, quota: 250 });
let stand: Stand;
beforeAll(async () => {
  stand = await Stand.start();
});
afterAll(() => stand.close());

const random = seededRandom(9);

it('a primary that stood still for seven seconds keeps its workers, and no request goes unanswered', async () => {
  const workers = stand.ingest.flatMap((part) => part.children);
  const { judgement, recoveries } = await runScenario(stand, [PRIMARY_FROZEN], { ...PACE, random });
  expect(judgement.broken, JSON.stringify(recoveries)).toEqual([]);
  expect(stand.ingest.flatMap((part) => part.children)).toEqual(workers);
});

/** In `npm run test:long`: test/deploy/rolling-restart and test/system/empty-redis are in `npm test`. */
const LONG = [
  {
    title: 'a killed primary and a rolling restart cost no request its answer',
    faults: [PRIMARY_KILLED, ROLLING],
  },
  {
    title:
      'a Redis that comes back empty costs what the contract says, and its counts are right again by themselves',
    faults: [REDIS_EMPTY],
  },
];
it.each(rounds(LONG, []))('$title', async ({ faults }) => {
  const { judgement, recoveries } = await runScenario(stand, faults, { ...PACE, random });
  expect(judgement.broken, JSON.stringify(recoveries)).toEqual([]);
});

it('faults of a seeded mix, one after the other', async () => {
  const seed = 11; // fixed: what explores is `npm run test:faults`, with a seed of its own
  const chosen = seededRandom(seed);
  const possible = FAULTS.filter((fault) => fits(fault, stand) && fault.holdMs < 5_000);
  const faults = Array.from({ length: rounds(3, 1) }, () => pick(chosen, possible));
  const { judgement, recoveries } = await runScenario(stand, faults, { ...PACE, random: chosen });
  expect(judgement.broken, `seed ${seed}: ${JSON.stringify(recoveries)}`).toEqual([]);
});
