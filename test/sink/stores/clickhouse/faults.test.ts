/** A ClickHouse that is away, full, read-only, slow or cuts the line holds the stream; what it refuses is a dead letter by itself. */
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock as clock } from '../../../../src/lib/clock.ts';
import { ACK_WAIT_MS, PREFETCH_FRAMES_MAX } from '../../../../src/limits.ts';
import { entryOf, Replay } from '../../../../src/management/dead-letters/replay.ts';
import { openSinks } from '../../../../src/sink/open-sinks.ts';
import { SeveralSinks } from '../../../../src/sink/several.ts';
import { encodeEntry, encodeFrame } from '../../../../src/stream/frame.ts';
import { FailingSink } from '../../../processor/failing-sink.ts';
import {
  envelope,
  eventually,
  Harness,
  hexId,
  item,
  log,
  type RunningProcessor,
} from '../../../processor/harness.ts';
import type { Fault } from '../../../support/sinks/clickhouse.ts';
import { NdjsonUnderTest, PostgresUnderTest } from '../../sinks.ts';
import { ClickHouseUnderTest } from '../under-test.ts';

let harness: Harness;
let sink: ClickHouseUnderTest;
let processor: RunningProcessor | undefined;
beforeEach(async () => {
  const both = [Harness.start({ ackWaitMs: ACK_WAIT_MS }), ClickHouseUnderTest.start()] as const;
  [harness, sink] = await Promise.all(both);
});
afterEach(async () => {
  await processor?.stop();
  processor = undefined;
  await harness.close();
  await sink.close();
});

const run = async (to = log): Promise<void> => {
  processor = await harness.run({ SLUICE_SINK: sink.setting }, {}, to);
};
const publish = (n: number) => {
  const of = { eventId: hexId(n), month: '2026-01', position: n };
  return harness.publish([envelope([item('event', `{"n":${n}}`)], of)]);
};
const state = async (): Promise<unknown> => {
  const answer = await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`);
  return ((await answer.json()) as { checks: { sink: string } }).checks.sink;
};
const isFailing = async (): Promise<boolean> => (await state()) === 'failing';
const deadLetters = async () => (await harness.letters()).list();

async function expectEachOnce(count: number): Promise<void> {
  await harness.drained();
  const numbers = (await sink.records()).map(({ payload }) => (payload as { n: number }).n);
  expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: count }, (_, n) => n + 1));
  expect(await sink.tally('42', '2026-01')).toEqual({ count, position: count });
  expect(await deadLetters()).toEqual([]);
}

it('a server that is away when the processor starts, and one that is killed, is waited for', async () => {
  await sink.server.kill();
  await run();
  await publish(1);
  await eventually(isFailing);
  await sink.server.restart();
  await expectEachOnce(1);
  await sink.server.kill();
  await publish(2);
  await eventually(isFailing);
  await sink.server.restart();
  await expectEachOnce(2);
  expect(await state()).toBe('ok');
});

it.each<Fault>(['read-only', 'full', 'cut'])('a server that is %s costs nothing but time', async (fault) => {
  await run();
  await publish(1);
  await harness.drained();
  await sink.server.fault(fault);
  await publish(2);
  await eventually(isFailing);
  await publish(3);
  await sink.server.fault();
  await expectEachOnce(3);
  expect(await state()).toBe('ok');
});

it('a server that is slow holds the stream, and the processor takes no more frames than it may', async () => {
  await run();
  await sink.server.fault('slow');
  const frames = PREFETCH_FRAMES_MAX + 500;
  for (let n = 1; n <= frames; n += 100)
    await Promise.all(Array.from({ length: 100 }, (_, more) => publish(n + more)));
  const consumer = () => harness.manager.consumers.info('SLUICE_EVENTS', 'processor');
  await eventually(async () => (await consumer()).num_ack_pending > 0);
  const { num_ack_pending, num_pending } = await consumer();
  expect(num_ack_pending).toBeLessThanOrEqual(PREFETCH_FRAMES_MAX);
  expect(num_pending).toBe(frames - num_ack_pending);
  await sink.server.fault();
  await expectEachOnce(frames);
});

it('a server that stands still is told of while it does: metric, readiness and one line', async () => {
  const lines: string[] = [];
  await run(pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) }));
  await publish(1);
  await harness.drained();
  const failing = () =>
    harness.metric('sluice_sink_failing', `{sink="${sink.setting.replace(/\/\/.*@/, '//')}"}`);
  expect(await failing()).toBe(0);
  await sink.server.fault('slow');
  await publish(2);
  await eventually(async () => (await failing()) === 1);
  expect(await state()).toBe('failing');
  expect(lines.filter((line) => line.includes('nothing can be stored'))).toEqual([
    expect.stringContaining('no answer for 5 s'),
  ]);
  await sink.server.fault();
  await expectEachOnce(2);
  await eventually(async () => (await failing()) === 0);
});

describe('rows that the server refuses', () => {
  const rule = "CONSTRAINT no_such CHECK payload NOT LIKE '%refuse me%'";

  it('are dead letters by themselves; the others are stored', async () => {
    await run();
    await publish(1);
    await harness.drained();
    await sink.server.run(`ALTER TABLE sluice.events ADD ${rule}`);
    await sink.server.run(`ALTER TABLE sluice.logs ADD ${rule}`);
    const wrong = [3, 64, 65, 199];
    const entries = Array.from({ length: 200 }, (_, n) => {
      const payload = wrong.includes(n) ? `{"n":"refuse me ${n}"}` : `{"n":${n + 2}}`;
      const of = { eventId: hexId(n + 2), month: '2026-01', position: n + 2 };
      return envelope([item('event', payload)], of);
    });
    const logs = '{"items":[{"n":-1},{"n":"refuse me"},{"n":-1}]}';
    await harness.publish([...entries, envelope([item('log', logs, { index: 2 })], { eventId: hexId(999) })]);
    await harness.drained();
    const letters = await deadLetters();
    expect(letters.map(({ entryIndex }) => entryIndex).sort((a, b) => (a ?? 0) - (b ?? 0))).toEqual([
      ...wrong,
      200,
    ]);
    expect(letters[0]?.reason).toMatch(/^the sink refuses it: .*no_such/);
    const box = await harness.letters();
    const ofLog = letters.find(({ type }) => type === 'log');
    const entry = ofLog && entryOf(ofLog, await box.bytesOf(ofLog));
    const [only] = entry?.kind === 'envelope' ? entry.items : [];
    expect(Buffer.from(only?.payload ?? []).toString()).toBe('{"items":[{"n":"refuse me"}]}');
    const stored = (await sink.records())
      .map(({ payload }) => (payload as { n: number }).n)
      .sort((a, b) => a - b);
    const good = Array.from({ length: 200 }, (_, n) => n + 2).filter((n) => !wrong.includes(n - 2));
    expect(stored).toEqual([-1, -1, 1, ...good]);
    expect(await sink.tally('42', '2026-01')).toEqual({ count: 201, position: 201 });
  });

  it.each([
    ['a constraint', `ADD ${rule}`, 'VIOLATED_CONSTRAINT of no_such'],
    ['a number', "ADD COLUMN x UInt8 DEFAULT JSONExtractString(payload, 'n')", 'CANNOT_PARSE_TEXT'],
    ['a UUID', "ADD COLUMN x UUID DEFAULT toUUID(JSONExtractString(payload, 'n'))", 'CANNOT_PARSE_UUID'],
    [
      'a division',
      "ADD COLUMN x Int64 DEFAULT intDiv(1, position(payload, 'refuse') = 0)",
      'ILLEGAL_DIVISION',
    ],
    ['JSON', "ADD COLUMN x JSON DEFAULT JSONExtractString(payload, 'n')::JSON", 'INCORRECT_DATA'],
  ])('tell of none of their values when it is for %s', async (_what, change, reason) => {
    const lines: string[] = [];
    await run(pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) }));
    await publish(1);
    await harness.drained();
    await sink.server.run(`ALTER TABLE sluice.events ${change}`);
    await harness.publish([envelope([item('event', '{"n":"[refuse me]"}')], { eventId: hexId(2) })]);
    await harness.drained();
    const letters = await deadLetters();
    expect(letters.map((letter) => letter.reason)).toEqual([`the sink refuses it: clickhouse: ${reason}`]);
    expect(lines.join('')).toContain(reason);
    expect(lines.join('')).not.toContain('refuse me');
  });

  it.each<[Fault, string]>([
    ['quoting', 'clickhouse: UNKNOWN_EXCEPTION'],
    ['garbled', 'clickhouse: an answer that cannot be read'],
  ])('are told without their values by an error that the sink does not know: %s', async (fault, reason) => {
    const lines: string[] = [];
    await run(pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) }));
    await publish(1);
    await harness.drained();
    await sink.server.fault(fault);
    await publish(2);
    await eventually(isFailing);
    await sink.server.fault();
    await expectEachOnce(2);
    expect(lines.join('')).toContain(reason);
    expect(lines.join('')).not.toContain('refuse me');
  });

  it('of one container are one dead letter, whichever sinks refuse them', async () => {
    const postgres = await PostgresUnderTest.start();
    const setting = `${postgres.setting} ${sink.setting}`;
    processor = await harness.run({ SLUICE_SINK: setting });
    await publish(1);
    await harness.drained();
    await postgres.server.query(
      `ALTER TABLE sluice.logs ADD CONSTRAINT no_such CHECK (payload NOT LIKE '%refuse me%')`,
    );
    await sink.server.run(`ALTER TABLE sluice.logs ADD ${rule}`);
    const container = '{"items":[{"n":2},{"n":"refuse me"},{"n":3}]}';
    await harness.publish([envelope([item('log', container)], { eventId: hexId(2) })]);
    await harness.drained();
    const box = await harness.letters();
    const payloads: string[] = [];
    for (const letter of await box.list()) {
      const entry = entryOf(letter, await box.bytesOf(letter));
      if (entry?.kind === 'envelope') payloads.push(`${Buffer.from(entry.items[0]?.payload ?? [])}`);
    }
    expect(payloads).toEqual(['{"items":[{"n":"refuse me"}]}']);
    const logs = 'SELECT payload FROM sluice.logs ORDER BY payload';
    const both = [await postgres.server.query(logs), await sink.server.query(logs)];
    for (const rows of both) expect(rows).toEqual([{ payload: '{"n":2}' }, { payload: '{"n":3}' }]);
    await processor.stop();
    processor = undefined;
    await postgres.close();
  });

  it('are stored when they are replayed after the server takes them, and once', async () => {
    await run();
    await publish(1);
    await harness.drained();
    await sink.server.run(`ALTER TABLE sluice.events ADD ${rule}`);
    const refused = envelope([item('event', '{"n":"refuse me"}')], { eventId: hexId(2) });
    await harness.publish([refused]);
    await harness.drained();
    await sink.server.run('ALTER TABLE sluice.events DROP CONSTRAINT no_such');
    const box = await harness.letters();
    const [letter] = await box.list();
    if (!letter) throw new Error('no dead letter');
    await new Replay({ link: harness.link, box, shards: 1, clock, log }).run(letter);
    await harness.drained();
    const stored = async () => (await sink.records()).map(({ payload }) => (payload as { n: unknown }).n);
    expect((await stored()).sort()).toEqual([1, 'refuse me']);
    // From now on the item is known, to its client's resends and to further replays.
    await harness.publish([refused]);
    await harness.publish([refused, refused], { id: 'replay.another' });
    await harness.drained();
    expect((await stored()).sort()).toEqual([1, 'refuse me']);
    expect(await deadLetters()).toEqual([]);
  });

  it('are dead letters although another sink failed in the same attempt', async () => {
    const folder = new NdjsonUnderTest();
    const other = await FailingSink.wrap(folder.setting.slice('ndjson:'.length));
    const clickhouse = await openSinks([{ kind: 'clickhouse', url: sink.setting }], { clock, log });
    const both = [
      { name: 'clickhouse', sink: clickhouse },
      { name: 'ndjson', sink: other },
    ];
    processor = await harness.run({}, { sink: new SeveralSinks(both, { clock, log }) });
    await publish(1);
    await harness.drained();
    await sink.server.run(`ALTER TABLE sluice.events ADD ${rule}`);
    other.failing = 'commit';
    await harness.publish([envelope([item('event', '{"n":"refuse me"}')], { eventId: hexId(2) })]);
    await eventually(() => other.failures > 1);
    other.failing = undefined;
    await harness.drained();
    expect((await deadLetters()).map(({ entryIndex }) => entryIndex)).toEqual([0]);
    expect(await folder.records()).toHaveLength(2);
    await processor.stop();
    processor = undefined;
    await folder.close();
  });

  it('are no dead letters when the table is not as the sink made it: the stream is held', async () => {
    await run();
    await publish(1);
    await harness.drained();
    await sink.server.run('ALTER TABLE sluice.events ADD CONSTRAINT nothing CHECK 0');
    await sink.server.run('ALTER TABLE sluice.events MODIFY COLUMN sent_at Nullable(String)');
    await publish(2);
    await eventually(isFailing);
    expect(await deadLetters()).toEqual([]);
    await sink.server.run("ALTER TABLE sluice.events MODIFY COLUMN sent_at Nullable(DateTime64(3, 'UTC'))");
    await sink.server.run('ALTER TABLE sluice.events DROP CONSTRAINT nothing');
    await expectEachOnce(2);
  });
});

it('an item that was set aside after it was noted is stored when it is replayed, whatever its moment', async () => {
  await run();
  const moments = [0, Date.UTC(2026, 0, 2), Date.UTC(9999, 11, 31)];
  const entries = moments.flatMap((receivedAt, n) => {
    const entry = envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n), receivedAt });
    return [entry, envelope([item('transaction', `{"n":${n}}`)], { eventId: hexId(n), receivedAt })];
  });
  await harness.publish(entries);
  await harness.drained();
  // What a processor leaves that dies between the two steps of a batch.
  for (const table of ['events', 'transactions']) await sink.server.run(`TRUNCATE TABLE sluice.${table}`);
  await harness.publish([...entries, ...entries], { id: 'replay.set-aside' });
  await harness.publish(entries, { id: 'replay.again' });
  await harness.drained();
  const found = (await sink.records()).map(({ type, payload }) => `${type} ${(payload as { n: number }).n}`);
  expect(found.sort()).toEqual(
    ['event', 'transaction'].flatMap((type) => [0, 1, 2].map((n) => `${type} ${n}`)),
  );
});

it('a frame that comes twice is two rows at most, one to a reader, and one after a merge', async () => {
  const frame = encodeFrame([
    encodeEntry(envelope([item('event', '{"n":1}')], { eventId: hexId(1), month: '2026-01', position: 1 })),
  ]);
  await run();
  await harness.publishBytes(frame, { id: 'twice' });
  await harness.drained();
  await processor?.stop();
  await run(); // another process does not know what this one stored
  await harness.publishAgain(frame, { id: 'twice' });
  await harness.drained();
  const count = async (rest: string) =>
    (await sink.server.query(`SELECT count() AS rows FROM sluice.events ${rest}`))[0];
  expect(await count('')).toEqual({ rows: 2 });
  expect(await count('FINAL')).toEqual({ rows: 1 });
  await sink.server.run('OPTIMIZE TABLE sluice.events FINAL');
  expect(await count('')).toEqual({ rows: 1 });
  await expectEachOnce(1);
});
