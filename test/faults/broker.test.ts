/** The broker stalls, dies, is full, loses its leader: no 200 without the item, none twice, and it serves again by itself. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { seededRandom } from '../../bench/random.ts';
import { rounds } from '../support/rounds.ts';
import { BROKER_FROZEN, BROKER_KILLED, LEADER_KILLED, STREAM_FULL } from './broker-faults.ts';
import type { Fault } from './fault.ts';
import { runScenario } from './scenario.ts';
import { Stand } from './stand.ts';

const SEED = 6;
const MIB = 1024 * 1024;
/** Half the requests of the long run, and half of its quota. */
const PACE = rounds({ thinkMs: 40, quota: 500 }, { thinkMs: 80, quota: 250 });
/** One fault in `npm test`, the others in `npm run test:long`. */
const SINGLE = [
  { fault: BROKER_KILLED, felt: ['503'] },
  ...rounds(
    [
      { fault: BROKER_FROZEN, felt: ['500', '503'] },
      { fault: STREAM_FULL, felt: ['503'] },
    ],
    [],
  ),
];
const CLUSTER = rounds([LEADER_KILLED], []);
let stand: Stand;

/** What must hold of each, and that the fault was felt: a scenario in which all is well shows nothing. */
async function survives(fault: Fault, felt: readonly string[]): Promise<void> {
  const starts = stand.ingest.map((part) => part.starts);
  const { judgement, recoveries } = await runScenario(stand, [fault], {
    ...PACE,
    random: seededRandom(SEED),
  });
  const [recovery] = recoveries;
  expect(judgement.broken, `seed ${SEED}, ${JSON.stringify(recovery)}`).toEqual([]);
  expect(judgement.accepted).toBeGreaterThan(100);
  const refused = Object.keys(recovery?.during ?? {}).filter((status) => felt.includes(status));
  expect(refused.length, JSON.stringify(recovery)).toBeGreaterThan(0);
  expect(stand.ingest.map((part) => part.starts)).toEqual(starts);
}

describe('a single broker', () => {
  beforeAll(async () => {
    stand = await Stand.start({ maxBytes: 24 * MIB });
  });
  afterAll(() => stand.close());

  it.each(SINGLE)('$fault.name', ({ fault, felt }) => survives(fault, felt), 120_000);
});

describe.each(CLUSTER)('a cluster of three with three replicas', (fault) => {
  beforeAll(async () => {
    stand = await Stand.start({ cluster: true, maxBytes: 24 * MIB });
  });
  afterAll(() => stand.close());

  it(fault.name, () => survives(fault, ['500', '503']), 120_000);
});
