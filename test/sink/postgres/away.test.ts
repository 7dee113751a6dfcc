import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  event,
  eventually,
  Harness,
  numbersIn,
  numbersTo,
  type RunningProcessor,
} from '../../processor/harness.ts';
import { PostgresUnderTest } from '../sinks.ts';

let harness: Harness;
let sink: PostgresUnderTest;
let processor: RunningProcessor | undefined;
beforeEach(async () => {
  [harness, sink] = await Promise.all([Harness.start({ ackWaitMs: 10_000 }), PostgresUnderTest.start()]);
});
afterEach(async () => {
  await processor?.stop();
  await harness.close();
  await sink.close();
});

const run = async (): Promise<void> => {
  processor = await harness.run({ SLUICE_SINK: sink.setting });
};
const publish = (n: number) => harness.publish([event(n, { month: '2026-01', position: n })]);
const state = async () => (await harness.readiness()).checks.sink;

async function expectEachOnce(count: number): Promise<void> {
  await harness.drained();
  expect(numbersIn(await sink.records())).toEqual(numbersTo(count));
  expect(await sink.tally('42', '2026-01')).toEqual({ count, position: count });
}

it('a database that is away when the processor starts is waited for', async () => {
  await sink.server.stop();
  await run();
  await publish(1);
  await eventually(async () => (await state()) === 'failing');
  await sink.server.restart();
  await expectEachOnce(1);
  expect(await state()).toBe('ok');
});

it('a database that is killed, shut down and has its connections cut costs nothing but time', async () => {
  await run();
  let n = 0;
  const some = async (): Promise<void> => {
    for (let more = 0; more < 150; more++) await publish(++n);
  };
  await some();
  for (const end of [() => sink.server.kill(), () => sink.server.stop()]) {
    const publishing = some();
    await pause(300);
    await end();
    await publishing;
    await some();
    await eventually(async () => (await state()) === 'failing');
    await sink.server.restart();
    await eventually(async () => (await state()) === 'ok');
  }
  for (let cuts = 0; cuts < 5; cuts++) {
    const publishing = some();
    await sink.server.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sluice'`,
    );
    await publishing;
  }
  await expectEachOnce(n);
});
