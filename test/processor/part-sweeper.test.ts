import { afterEach, describe, expect, it } from 'vitest';
import { CHUNK_SWEEP_DELAY_MS } from '../../src/limits.ts';
import { PartSweeper, SweepPlan } from '../../src/processor/part-sweeper.ts';
import { readBacklog } from '../../src/stream/backlog.ts';
import { keepAcknowledged } from '../stream/leftovers.ts';
import { envelope, eventually, Harness, item, log } from './harness.ts';

const MINUTE_MS = 60_000;
const ends = (first: number, last: number) => ({ first, last });
const frames = (first: number, last: number) => new Map([['SLUICE_EVENTS', ends(first, last)]]);

describe('a plan of what to sweep', () => {
  it('spares parts until ten minutes have passed and every frame stored till then is gone', () => {
    const plan = new SweepPlan();
    expect(plan.next(0, ends(1, 40), frames(1, 5))).toBeUndefined();
    expect(plan.next(CHUNK_SWEEP_DELAY_MS - 1, ends(1, 60), frames(6, 5))).toBeUndefined();
    // Ten minutes later frames up to 9 may name parts up to 40.
    expect(plan.next(CHUNK_SWEEP_DELAY_MS, ends(1, 60), frames(7, 9))).toBeUndefined();
    expect(plan.next(CHUNK_SWEEP_DELAY_MS + MINUTE_MS, ends(1, 60), frames(9, 20))).toBeUndefined();
    expect(plan.next(CHUNK_SWEEP_DELAY_MS + 2 * MINUTE_MS, ends(1, 60), frames(10, 30))).toBe(40);
    expect(plan.next(CHUNK_SWEEP_DELAY_MS + 3 * MINUTE_MS, ends(41, 60), frames(10, 30))).toBeUndefined();
  });

  it('waits for each of several streams', () => {
    const plan = new SweepPlan();
    const both = (events: number, logs: number) =>
      new Map([
        ['SLUICE_EVENTS', ends(events, 9)],
        ['SLUICE_LOGS', ends(logs, 9)],
      ]);
    plan.next(0, ends(1, 4), both(1, 1));
    expect(plan.next(CHUNK_SWEEP_DELAY_MS, ends(1, 4), both(10, 9))).toBeUndefined();
    expect(plan.next(CHUNK_SWEEP_DELAY_MS, ends(1, 4), both(10, 10))).toBe(4);
  });

  it('keeps its watermarks apart: newer parts wait for their own ten minutes', () => {
    const plan = new SweepPlan();
    for (let minute = 0; minute < 30; minute++) {
      const upTo = plan.next(minute * MINUTE_MS, ends(1, 100 + minute), frames(1_000, 999));
      expect(upTo).toBe(minute < 10 ? undefined : 100 + minute - 10);
    }
  });

  it('forgets what it noted of a stream that gives its numbers again', () => {
    const plan = new SweepPlan();
    plan.next(0, ends(1, 40), frames(1, 20));
    plan.next(MINUTE_MS, ends(1, 30), frames(1, 20));
    expect(plan.next(CHUNK_SWEEP_DELAY_MS, ends(1, 50), frames(21, 20))).toBeUndefined();
    expect(plan.next(CHUNK_SWEEP_DELAY_MS + MINUTE_MS, ends(1, 50), frames(21, 20))).toBe(30);
  });
});

describe('the sweeper', () => {
  let harness: Harness;
  afterEach(() => harness.close());

  it.each([
    ['', async () => undefined],
    [', also from a broker that keeps what was acknowledged', keepAcknowledged],
  ])('purges parts whose frames are processed, and no others%s', async (_, prepare) => {
    harness = await Harness.start();
    await prepare(harness.manager, 'SLUICE_EVENTS');
    let now = 0;
    const clock = { now: () => now, monotonic: () => now };
    const sweeper = new PartSweeper({ link: harness.link, clock, log });
    const chunks = async () => (await harness.manager.streams.info('SLUICE_CHUNKS')).state;
    await harness.chunk(Buffer.alloc(300), 100);
    await harness.publish([envelope([item('event', '{}')])]);
    await sweeper.sweep();
    await harness.chunk(Buffer.alloc(200), 100);
    now += CHUNK_SWEEP_DELAY_MS;
    await sweeper.sweep();
    expect((await chunks()).messages).toBe(5); // the frame waits
    await harness.process();
    const backlog = { stream: 'SLUICE_EVENTS', consumer: 'processor' };
    await eventually(async () => (await readBacklog(harness.manager, backlog)).first === 2);
    await sweeper.sweep();
    expect(await chunks()).toMatchObject({ messages: 2, first_seq: 4 });
  });
});
