/**
 * Processors that are killed, stopped and woken, on each sink that promises `repeatable`: what a reader has in the end is each item once.
 */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Harness } from '../../processor/harness.ts';
import {
  ACK_WAIT_MS,
  end,
  eventAndLogs,
  killAtAnyMoment,
  MONTH,
  numberFrom,
  publishSome,
  random,
  SEED,
  startProcessor,
} from '../../processor/kills.ts';
import { freeze, thaw } from '../../support/freeze.ts';
import type { SinkUnderTest, StartSink } from '../sinks.ts';
import { ClickHouseUnderTest, S3UnderTest } from './under-test.ts';

const KILLS = numberFrom('KILLS', 8);
const ITEMS = numberFrom('ITEMS', 6_000);
const UPTIME_MS_MAX = 1_500;

describe.each<[name: string, start: StartSink]>([
  ['clickhouse', () => ClickHouseUnderTest.start()],
  ['s3', () => S3UnderTest.start()],
])('%s', (_, start) => {
  let harness: Harness;
  let sink: SinkUnderTest;
  const children: ChildProcess[] = [];
  beforeEach(async () => {
    [harness, sink] = await Promise.all([Harness.start({ ackWaitMs: ACK_WAIT_MS }), start()]);
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    await harness.close();
    await sink.close();
  });

  async function startChild(): Promise<ChildProcess> {
    const child = await startProcessor(harness, { SLUICE_SINK: sink.setting });
    children.push(child);
    return child;
  }

  const publish = (from: number, count: number): Promise<number> =>
    publishSome(harness, { from, count }, eventAndLogs);

  async function expectEachOnce(count: number): Promise<void> {
    expect(await harness.messages('SLUICE_DEAD_LETTERS'), `seed ${SEED}`).toBe(0);
    const records = await sink.records();
    const numbersOf = (type: string): number[] =>
      records
        .filter((record) => record.type === type)
        .map(({ payload }) => (payload as { n: number }).n)
        .sort((a, b) => a - b);
    const all = Array.from({ length: count }, (_, n) => n);
    expect(numbersOf('event'), `seed ${SEED}`).toEqual(all);
    const sevenths = all.filter((n) => n % 7 === 0);
    expect(numbersOf('log'), `seed ${SEED}`).toEqual(sevenths.flatMap((n) => [n, n]));
    const tally = await sink.tally('42', MONTH);
    if (tally) expect(tally, `seed ${SEED}`).toEqual({ count, position: count });
  }

  it(
    `a processor that is killed at any moment leaves each of ${ITEMS} items once`,
    async () => {
      await killAtAnyMoment(
        harness,
        { kills: KILLS, items: ITEMS, uptimeMsMax: UPTIME_MS_MAX },
        { start: startChild, publish },
      );
      await expectEachOnce(ITEMS);
    },
    90_000 + KILLS * 6_000,
  );

  it('of two processors one may be stopped beyond the ack wait and woken: each item once', async () => {
    const both = [await startChild(), await startChild()];
    let next = 0;
    for (const victim of both) {
      const publishing = publish(next, 500);
      await pause(200 + random() * 1_000);
      await freeze(victim.pid);
      await publish(next + 500, 500);
      await pause(ACK_WAIT_MS + 700);
      thaw(victim.pid);
      await publishing;
      next += 1_000;
    }
    await harness.drained();
    for (const child of both) expect(await end(child, 'SIGTERM'), `seed ${SEED}`).toBe(0);
    await expectEachOnce(next);
  });
});
