/** A bucket that is away, or refuses writes, holds the stream; nothing is lost, and what waits is bounded. */
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  envelope,
  eventually,
  Harness,
  hexId,
  item,
  type RunningProcessor,
} from '../../../processor/harness.ts';
import { end, startProcessor } from '../../../processor/kills.ts';
import { StepClock } from '../../../support/step-clock.ts';
import { TcpProxy } from '../../../support/tcp-proxy.ts';
import { S3UnderTest } from '../under-test.ts';

const HOUR_MS = 3_600_000;

/** A processor fetches so many frames of a stream ahead, and an object holds so many (docs/sinks.md). */
const FRAMES_AHEAD = 2_000;
const FRAMES_OF_AN_OBJECT = 2_500;

let harness: Harness;
let sink: S3UnderTest;
let processor: RunningProcessor | undefined;
beforeEach(async () => {
  const both = [Harness.start({ ackWaitMs: 10_000 }), S3UnderTest.start()] as const;
  [harness, sink] = await Promise.all(both);
});
afterEach(async () => {
  await processor?.stop();
  processor = undefined;
  await harness.close();
  await sink.close();
});

const run = async (setting = sink.setting): Promise<void> => {
  processor = await harness.run({ SLUICE_SINK: setting });
};
const publish = (n: number) =>
  harness.publish([envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n) })]);
const isFailing = async (): Promise<boolean> => {
  const answer = await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`);
  return ((await answer.json()) as { checks: { sink: string } }).checks.sink === 'failing';
};
const pending = async () => harness.manager.consumers.info('SLUICE_EVENTS', 'processor');

async function expectEachOnce(count: number): Promise<void> {
  await harness.drained();
  const numbers = (await sink.records()).map(({ payload }) => (payload as { n: number }).n);
  expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: count }, (_, n) => n + 1));
  expect((await harness.manager.streams.info('SLUICE_DEAD_LETTERS')).state.messages).toBe(0);
}

it('a bucket that is away at the start, and one that goes away, is waited for', async () => {
  await sink.server.kill();
  await run();
  await publish(1);
  await eventually(async () => (await publish(1).catch(() => 0)) && (await isFailing()));
  await sink.server.restart();
  await harness.drained();
  await sink.server.kill();
  await publish(2);
  let n = 2;
  await eventually(async () => (await publish(++n)) && (await isFailing()));
  await sink.server.restart();
  await expectEachOnce(n);
});

it('a bucket that goes away is told of although nothing further comes, until it is back', async () => {
  await run();
  await publish(1);
  await harness.drained();
  expect(await isFailing()).toBe(false);
  await sink.server.kill();
  await publish(2);
  await eventually(isFailing);
  expect(await harness.metric('sluice_processing_lag_seconds')).toBeGreaterThan(0);
  await sink.server.restart();
  await expectEachOnce(2);
  expect(await isFailing()).toBe(false);
  expect(await harness.metric('sluice_processing_lag_seconds')).toBe(0);
});

it('a bucket that stands still is told of while it does: metric, readiness and one line', async () => {
  const proxy = await TcpProxy.start(sink.server.port);
  const lines: string[] = [];
  const setting = sink.server.url({ port: proxy.port });
  const to = pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) });
  processor = await harness.run({ SLUICE_SINK: setting }, {}, to);
  const failing = () => harness.metric('sluice_sink_failing', '{sink="s3://archive/sluice"}');
  try {
    await publish(1);
    await harness.drained();
    expect(await failing()).toBe(0);
    proxy.weather = { blackhole: true };
    await publish(2);
    await eventually(async () => (await failing()) === 1, 30_000);
    expect(await isFailing()).toBe(true);
    expect(lines.filter((line) => line.includes('nothing can be stored'))).toEqual([
      expect.stringContaining('no answer for 5 s'),
    ]);
    proxy.weather = {};
    await expectEachOnce(2);
    await eventually(async () => (await failing()) === 0);
  } finally {
    await proxy.close();
  }
});

it('while the bucket is away the processor takes no more frames than it may, and loses none', async () => {
  await run();
  await sink.server.kill();
  let n = 0;
  await eventually(async () => (await publish(++n)) && (await isFailing()));
  for (const until = n + FRAMES_AHEAD + 500; n < until; )
    await Promise.all(Array.from({ length: 100 }, () => publish(++n)));
  const bound = FRAMES_AHEAD + FRAMES_OF_AN_OBJECT;
  await eventually(async () => (await pending()).num_pending > 0);
  expect((await pending()).num_ack_pending).toBeLessThanOrEqual(bound);
  await sink.server.restart();
  await expectEachOnce(n);
});

it('credentials that may not write hold the stream', async () => {
  await run(sink.server.url({ keys: sink.server.readerKeys }));
  let n = 0;
  await eventually(async () => (await publish(++n)) && (await isFailing()));
  expect(await sink.lines()).toEqual([]);
  await processor?.stop();
  await run();
  await expectEachOnce(n);
});

it('a processor whose clock is an hour off stores all the same, from its start on', async () => {
  const clock = new StepClock();
  clock.step(HOUR_MS);
  const child = await startProcessor(harness, { SLUICE_SINK: sink.setting, ...clock.env });
  try {
    await publish(1);
    await harness.drained();
    clock.step(-2 * HOUR_MS);
    await publish(2);
    await expectEachOnce(2);
    expect(await end(child, 'SIGTERM')).toBe(0);
  } finally {
    child.kill('SIGKILL');
    clock.close();
  }
});

it('frames wait without an acknowledgement until their object is stored, and a processor that stops stores it', async () => {
  await run(sink.setting.replace('seconds=1', 'seconds=3600'));
  await publish(1);
  await eventually(
    async () => (await harness.metric('sluice_processed_total', '{type="event",result="stored"}')) === 1,
  );
  expect((await pending()).num_ack_pending).toBe(1);
  expect(await sink.lines()).toEqual([]);
  await processor?.stop();
  processor = undefined;
  expect(await sink.lines()).toHaveLength(1);
  await expectEachOnce(1);
});

it.each([
  [
    'wrong credentials',
    () => sink.server.url({ keys: 'test:wrong' }),
    /^SLUICE_SINK: s3: SignatureDoesNotMatch/,
  ],
  ['a missing bucket', () => sink.server.url({ bucket: 'no-such-bucket' }), /^SLUICE_SINK: s3: NoSuchBucket/],
  ['an unknown option', () => sink.server.url({ options: 'acl=public' }), /knows the options .*, not acl$/],
  ['no credentials', () => sink.setting.replace('test:secret@', ''), /needs AWS_ACCESS_KEY_ID/],
])('%s end the start with one clear line', async (_what, setting, line) => {
  const error = await run(setting()).then(
    () => undefined,
    (found: Error) => found,
  );
  expect(error).toMatchObject({ name: 'SinkSettingError', message: expect.stringMatching(line) });
  expect(error?.message).not.toContain('\n');
});
