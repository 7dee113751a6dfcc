/** What is said of a sink that is away or stuck: one line of the log a minute, `/readyz`, metrics. */
import { setTimeout as pause } from 'node:timers/promises';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { envelope, event, eventually, Harness, item, type RunningProcessor } from '../processor/harness.ts';
import { PostgresUnderTest } from './sinks.ts';

let harness: Harness;
let sink: PostgresUnderTest;
let processor: RunningProcessor | undefined;
let minutes = 0;
const said: Record<string, unknown>[] = [];
const log = pino({ base: null }, { write: (line: string) => said.push(JSON.parse(line)) });
/** Its minutes pass when the test says so. */
const clock = { now: () => Date.now(), monotonic: () => performance.now() + minutes * 60_000 };

beforeEach(async () => {
  [harness, sink] = await Promise.all([Harness.start({ ackWaitMs: 10_000 }), PostgresUnderTest.start()]);
  said.length = 0;
  minutes = 0;
});
afterEach(async () => {
  vi.useRealTimers();
  await processor?.stop();
  await harness.close();
  await sink.close();
});

const run = async (): Promise<void> => {
  processor = await harness.run({ SLUICE_SINK: sink.setting }, { clock }, log);
};
const publish = (n: number) => harness.publish([event(n)]);
const loud = () => said.filter(({ level }) => Number(level) >= 40);
const checks = async () => (await harness.readiness()).checks;
const name = () => `postgres://${new URL(sink.setting).host}/postgres`;
const failing = () => harness.metric('sluice_sink_failing', `{sink="${name()}"}`);
const writes = () => harness.metric('sluice_sink_write_seconds_count', `{sink="${name()}"}`);

it('a sink that is away is one line a minute without a stack, a metric, and a line when it is back', async () => {
  await run();
  await publish(1);
  await harness.drained();
  expect([await failing(), await writes()]).toEqual([0, 1]);
  await sink.server.stop();
  for (let n = 2; n < 20; n++) {
    await publish(n);
    await harness.publish([envelope([item('log', '{"items":[]}')])], { stream: 'logs' });
  }
  await eventually(async () => (await failing()) === 1);
  await pause(3_000); // both streams try again, several times
  expect(loud()).toEqual([
    {
      ...{ level: 50, time: expect.any(Number), sink: name() },
      ...{
        reason: expect.stringMatching(/^postgres: /),
        seconds: 0,
        failures: 1,
        streams: [expect.any(String)],
      },
      msg: 'processor: nothing can be stored, trying again',
    },
  ]);
  expect(await checks()).toMatchObject({ sink: 'failing' });
  minutes++;
  await eventually(() => loud().length === 2);
  expect(Number(loud()[1]?.failures)).toBeGreaterThan(2);
  await sink.server.restart();
  await harness.drained();
  await eventually(() => said.some(({ msg }) => msg === 'processor: stores again'));
  expect(loud()).toHaveLength(2);
  expect([await failing(), await checks()]).toMatchObject([0, { sink: 'ok' }]);
});

it('a table that is locked is told while the write waits for it', async () => {
  await run();
  await publish(1);
  await harness.drained();
  const other = await sink.server.client();
  await other.query('BEGIN; LOCK TABLE sluice.items');
  await publish(2);
  await eventually(async () => (await failing()) === 1);
  expect(await checks()).toMatchObject({ sink: 'failing' });
  expect(loud()).toMatchObject([{ sink: name(), reason: 'no answer for 5 s' }]);
  await other.end();
  await harness.drained();
  expect([await failing(), await writes()]).toEqual([0, 2]);
  expect(await sink.records()).toHaveLength(2);
});
