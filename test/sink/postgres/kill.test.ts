/**
 * Processors on postgres that are killed, stopped and woken. A longer run:
 *
 *     KILLS=200 ITEMS=100000 npx vitest run --config test/vitest.config.ts test/sink/postgres/kill.test.ts
 */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { eventually, Harness } from '../../processor/harness.ts';
import {
  ACK_WAIT_MS,
  end,
  killAtAnyMoment,
  MONTH,
  numberFrom,
  publishSome,
  random,
  SEED,
  startProcessor,
} from '../../processor/kills.ts';
import { freeze, thaw } from '../../support/freeze.ts';
import { rounds } from '../../support/rounds.ts';
import { PostgresUnderTest } from '../sinks.ts';

/** PostgreSQL ends a transaction that does nothing for so long (docs/sinks.md). */
const IDLE_MS_MAX = 8_000;
const KILLS = numberFrom('KILLS', rounds(15, 5));
const ITEMS = numberFrom('ITEMS', rounds(20_000, 7_000));
const STOPS = rounds(6, 2);
const UPTIME_MS_MAX = 900;

let harness: Harness;
let sink: PostgresUnderTest;
const children: ChildProcess[] = [];
beforeEach(async () => {
  [harness, sink] = await Promise.all([Harness.start({ ackWaitMs: ACK_WAIT_MS }), PostgresUnderTest.start()]);
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

const publish = (from: number, count: number): Promise<number> => publishSome(harness, { from, count });

async function expectEachOnce(count: number): Promise<void> {
  expect(await harness.messages('SLUICE_DEAD_LETTERS'), `seed ${SEED}`).toBe(0);
  const [stored] = await sink.server.query(
    `SELECT count(*)::int AS rows, count(DISTINCT payload)::int AS items, max((payload::json->>'n')::int) AS last FROM sluice.items`,
  );
  expect(stored, `seed ${SEED}`).toEqual({ rows: count, items: count, last: count - 1 });
  expect(await sink.tally('42', MONTH), `seed ${SEED}`).toEqual({ count, position: count });
}

it(
  `a processor that is killed at any moment writes each of ${ITEMS} items exactly once`,
  async () => {
    await killAtAnyMoment(
      harness,
      { kills: KILLS, items: ITEMS, uptimeMsMax: UPTIME_MS_MAX },
      { start: startChild, publish },
    );
    await expectEachOnce(ITEMS);
  },
  60_000 + KILLS * 4_000,
);

it('of two processors one may be stopped beyond the ack wait and woken, again and again: each item exactly once', async () => {
  const both = [await startChild(), await startChild()];
  let next = 0;
  for (let round = 0; round < STOPS; round++) {
    const victim = both[round % 2] as ChildProcess;
    const publishing = publish(next, 1_000);
    await pause(200 + random() * 1_000);
    await freeze(victim.pid);
    await publish(next + 1_000, 1_000);
    await pause(ACK_WAIT_MS + 700);
    thaw(victim.pid);
    await publishing;
    next += 2_000;
  }
  await harness.drained();
  for (const child of both) expect(await end(child, 'SIGTERM'), `seed ${SEED}`).toBe(0);
  await expectEachOnce(next);
});

it('a processor that is stopped in the middle of its transaction does not keep another from storing its frames', async () => {
  const first = await startChild();
  await publish(0, 10);
  await harness.drained();
  // The rows of its next batch wait for us, its keys are taken.
  const locker = await sink.server.client();
  await locker.query('BEGIN; LOCK TABLE sluice.items IN SHARE MODE');
  await publish(10, 10);
  await eventually(async () => {
    const waiting = await locker.query(
      `SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'sluice.items'::regclass`,
    );
    return waiting.rows.length > 0;
  });
  await freeze(first.pid);
  await locker.query('ROLLBACK');
  await locker.end();
  const stopped = performance.now();
  const second = await startChild();
  await harness.drained(IDLE_MS_MAX + 20_000);
  expect(performance.now() - stopped).toBeGreaterThan(IDLE_MS_MAX / 2); // it did wait for the locks
  await expectEachOnce(20);
  thaw(first.pid);
  await publish(20, 10);
  await harness.drained();
  for (const child of [first, second]) expect(await end(child, 'SIGTERM')).toBe(0);
  await expectEachOnce(30);
});
