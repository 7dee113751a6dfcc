import { afterEach, beforeEach, expect, it } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { entryOf } from '../../src/management/dead-letters/replay.ts';
import { openSinks } from '../../src/sink/open-sinks.ts';
import { SeveralSinks } from '../../src/sink/several.ts';
import type { RefusedRow, Sink, SinkBatch } from '../../src/sink/sink.ts';
import { FailingSink } from '../processor/failing-sink.ts';
import {
  envelope,
  event,
  eventually,
  Harness,
  item,
  log,
  numbersIn,
  type RunningProcessor,
} from '../processor/harness.ts';
import { NdjsonUnderTest } from './sinks.ts';

let harness: Harness;
let one: NdjsonUnderTest;
let other: NdjsonUnderTest;
let processor: RunningProcessor | undefined;
beforeEach(async () => {
  harness = await Harness.start();
  [one, other] = [new NdjsonUnderTest(), new NdjsonUnderTest()];
});
afterEach(async () => {
  await processor?.stop();
  processor = undefined;
  await harness.close();
  await one.close();
  await other.close();
});

const dirOf = ({ setting }: NdjsonUnderTest): string => setting.slice('ndjson:'.length);
const publish = (n: number) => harness.publish([event(n)]);
const numbersOf = async (sink: NdjsonUnderTest): Promise<number[]> => numbersIn(await sink.records());
const checks = async () => (await harness.readiness()).checks;

/** The healthy one, and one that fails on demand. */
async function runWithFailing(): Promise<FailingSink> {
  const failing = await FailingSink.wrap(dirOf(other));
  const healthy = await openSinks([{ kind: 'ndjson', dir: dirOf(one) }], { clock, log });
  const sink = new SeveralSinks(
    [
      { name: 'healthy', sink: healthy },
      { name: 'away', sink: failing },
    ],
    { log, clock },
  );
  processor = await harness.run({}, { sink });
  return failing;
}

it('a frame is acknowledged when all sinks have it: one that is away holds the stream and is named', async () => {
  const failing = await runWithFailing();
  failing.failing = 'commit';
  await publish(1);
  await eventually(() => failing.failures > 2);
  expect(await numbersOf(one)).toEqual([1]); // stored once, however often the other was tried
  expect(await harness.messages('SLUICE_EVENTS')).toBe(1);
  // A sink that is away takes no endpoint away.
  expect(await harness.readiness()).toMatchObject({
    code: 200,
    status: 'ready',
    checks: { nats: 'ok', sink: 'failing', healthy: 'ok', away: 'failing' },
  });
  await publish(2);
  failing.failing = undefined;
  await harness.drained();
  expect([await numbersOf(one), await numbersOf(other)]).toEqual([
    [1, 2],
    [1, 2],
  ]);
  expect(await checks()).toMatchObject({ sink: 'ok', healthy: 'ok', away: 'ok' });
  expect(await harness.metric('sluice_processed_total', '{type="event",result="stored"}')).toBe(2);
});

it('an attempt that is stored by all and fails all the same is stored once', async () => {
  const failing = await runWithFailing();
  failing.failing = 'after commit';
  await publish(1);
  await eventually(() => failing.failures > 1);
  failing.failing = undefined;
  await harness.drained();
  expect([await numbersOf(one), await numbersOf(other)]).toEqual([[1], [1]]);
});

it('a bug of one ends the process, as it does alone', async () => {
  const failing = await FailingSink.wrap(dirOf(other));
  failing.failing = 'bug';
  const healthy = await openSinks([{ kind: 'ndjson', dir: dirOf(one) }], { clock, log });
  const bugs: unknown[] = [];
  processor = await harness.run(
    {},
    {
      sink: new SeveralSinks(
        [
          { name: 'healthy', sink: healthy },
          { name: 'broken', sink: failing },
        ],
        { log, clock },
      ),
      onBug: (error) => bugs.push(error),
    },
  );
  await publish(1);
  await eventually(() => bugs.length > 0);
  expect(bugs[0]).toBeInstanceOf(TypeError);
});

it('sinks that are opened beside one that cannot be had are closed again', async () => {
  const taken = await openSinks([{ kind: 'ndjson', dir: dirOf(other) }], { clock, log });
  const settings = [one, other].map((sink) => ({ kind: 'ndjson' as const, dir: dirOf(sink) }));
  await expect(openSinks(settings, { clock, log })).rejects.toThrow('another processor');
  await taken.close();
  const opened = await openSinks(settings, { clock, log });
  expect(opened.guarantee).toBe('exactly once');
  await opened.close();
});

/** An ndjson sink that refuses records that hold the word: of containers the second and third element. */
class RefusingSink implements Sink {
  readonly guarantee = 'repeatable';
  readonly #sink: Sink;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  async open(stream: string) {
    const inner = await this.#sink.open(stream);
    return { begin: async (frameIds: readonly string[]) => refusing(await inner.begin(frameIds)) };
  }

  close(): Promise<void> {
    return this.#sink.close();
  }
}

function refusing(inner: SinkBatch): SinkBatch {
  const refused: RefusedRow[] = [];
  let at = { frameId: '', entry: 0 };
  return {
    get bytes() {
      return inner.bytes;
    },
    entriesKnown: (frameId) => inner.entriesKnown(frameId),
    beginEntry: (entry) => {
      at = { frameId: entry.frameId, entry: entry.index };
      inner.beginEntry(entry);
    },
    add: (record) => {
      const text = Buffer.from(record.json).toString();
      if (!text.includes('refuse')) return inner.add(record);
      const place = 'token' in record.fields ? at : { ...at, item: record.fields.index };
      const elements = record.type === 'log' ? [{ element: 1 }, { element: 2 }] : [{}];
      refused.push(...elements.map((element) => ({ ...place, ...element, reason: 'not this word' })));
    },
    relieve: () => inner.relieve(),
    prepare: async () => refused,
    commit: (options) => inner.commit(options),
    abandon: () => inner.abandon(),
  };
}

it('a row that a sink refuses is a dead letter by itself: the item, the logs of a container, the ping', async () => {
  const ndjson = await openSinks([{ kind: 'ndjson', dir: dirOf(one) }], { clock, log });
  processor = await harness.run({}, { sink: new RefusingSink(ndjson) });
  const large = Buffer.from(`{"refuse":"${'x'.repeat(600_000)}"}`);
  const { payload: _, ...chunked } = item('event', large, { index: 2 });
  await harness.publish([
    envelope([item('event', '{"n":1}'), item('event', '{"refuse":1}', { index: 1 })]),
    envelope([item('log', '{"version":2,"items":[{"n":1},{"refuse":2},{"n":3}, 4]}', { index: 4 })]),
    { kind: 'heartbeat', token: 'tick', receivedAt: 1, body: new Uint8Array(Buffer.from('refuse')) },
    envelope([chunked], { parts: await harness.chunk(large) }),
  ]);
  await harness.drained();
  const box = await harness.letters();
  const letters = (await box.list()).sort((a, b) => (a.entryIndex ?? 0) - (b.entryIndex ?? 0));
  expect(letters.map(({ kind, itemIndex, type }) => [kind, itemIndex, type])).toEqual([
    ['item', 1, 'event'],
    ['item', 4, 'log'],
    ['entry', undefined, 'heartbeat'],
    ['item', 2, 'event'],
  ]);
  expect(new Set(letters.map(({ reason }) => reason))).toEqual(
    new Set(['the sink refuses it: not this word']),
  );
  const entries = await Promise.all(
    letters.map(async (letter) => entryOf(letter, await box.bytesOf(letter))),
  );
  const payloads = entries.map((entry) => entry?.kind === 'envelope' && textOf(entry.items[0]?.payload));
  expect(payloads).toEqual([
    '{"refuse":1}',
    '{"version":2,"items":[{"refuse":2},{"n":3}]}',
    false,
    `${large}`,
  ]);
  expect((await one.records()).map((record) => record.payload)).toEqual([{ n: 1 }]);
  expect(await harness.metric('sluice_processed_total', '{type="log",result="dead_letter"}')).toBe(1);
});

const textOf = (bytes?: Uint8Array): string => Buffer.from(bytes ?? []).toString();

it('ndjson is not opened beside an s3 that may hold frames for longer than it knows them', async () => {
  const { sinks } = loadConfig(
    harness.environment({
      SLUICE_SINK: `${one.setting} s3://key:secret@bucket/?seconds=301`,
    }),
  ).config;
  await expect(openSinks(sinks, { clock, log })).rejects.toThrow(
    'SLUICE_SINK: beside ndjson, seconds of s3:// is at most 300',
  );
});
