import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { lockFolder } from '../../src/lib/files/folder-lock.ts';
import { ACK_WAIT_MS } from '../../src/limits.ts';
import { FolderTakenError } from '../../src/sink/ndjson/ndjson.ts';
import { readTally } from '../../src/sink/ndjson/tally.ts';
import { UnavailableError } from '../../src/sink/unavailable.ts';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { CONSUMER } from '../../src/stream/topology.ts';
import { FailingSink } from './failing-sink.ts';
import { envelope, eventually, Harness, hexId, item, RECEIVED_AT } from './harness.ts';

const MINUTE_MS = 60_000;
let harness: Harness;
afterEach(() => harness.close());

const event = (n: number, more = {}) =>
  envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n), ...more });

describe("a client's own resend", () => {
  it('of an event or a transaction within ten minutes is written once', async () => {
    harness = await Harness.start();
    await harness.process();
    const of = (receivedAt: number) =>
      envelope([item('transaction', '{}'), item('event', '{}', { index: 2 })], { receivedAt });
    await harness.publish([of(RECEIVED_AT), of(RECEIVED_AT + 5)]);
    await harness.storedOnce(2);
    await harness.publish([of(RECEIVED_AT + 10 * MINUTE_MS)]);
    await harness.drained();
    expect(harness.stored().map(({ type }) => type)).toEqual(['transaction', 'event']);
    expect(await harness.metric('sluice_processed_total', '{type="event",result="resent"}')).toBe(2);
  });

  it('later than ten minutes is written again, however soon it is processed', async () => {
    harness = await Harness.start();
    await harness.process();
    const times = [0, 10 * MINUTE_MS + 1, 20 * MINUTE_MS];
    for (const after of times) await harness.publish([event(1, { receivedAt: RECEIVED_AT + after })]);
    await harness.drained();
    expect(harness.stored().map(({ received_at }) => received_at)).toEqual([
      '2026-01-02T03:04:05.678Z',
      '2026-01-02T03:14:05.679Z',
    ]);
  });

  it('is known to the next process', async () => {
    harness = await Harness.start();
    const first = await harness.process();
    await harness.publish([event(1)]);
    await harness.drained();
    await first.stop();
    await harness.process();
    await harness.publish([event(1, { receivedAt: RECEIVED_AT + MINUTE_MS }), event(2)]);
    await harness.drained();
    expect(harness.stored().map(({ payload }) => payload)).toEqual([{ n: 1 }, { n: 2 }]);
  });

  it('is told from another project, place or type under the same event id', async () => {
    harness = await Harness.start();
    await harness.process();
    await harness.publish([
      envelope([item('event', '{}')]),
      envelope([item('event', '{}')], { projectId: '43' }),
      envelope([item('event', '{}', { index: 1 })]),
      envelope([item('transaction', '{}')]),
    ]);
    expect(await harness.storedOnce(4)).toHaveLength(4);
  });

  it('is not what the segments of a replay or the containers of logs are', async () => {
    harness = await Harness.start();
    await harness.process();
    for (let segment = 0; segment < 3; segment++) {
      const recording = item('replay_recording', `{"segment_id":${segment}}\n[]`, { index: 1 });
      await harness.publish([envelope([item('replay_event', '{}'), recording])], { stream: 'replays' });
      await harness.publish([envelope([item('log', '{"items":[]}')])], { stream: 'logs' });
    }
    await harness.drained();
    const stored = harness.stored();
    const segments = stored.filter(({ type }) => type === 'replay_recording').map(({ payload }) => payload);
    expect(segments).toEqual([0, 1, 2].map((segment_id) => ({ segment_id, recording: [] })));
    expect(stored.filter(({ type }) => type === 'replay_event')).toHaveLength(3);
    expect(stored.filter(({ type }) => type === 'log')).toHaveLength(3);
  });
});

describe('a frame that is delivered again', () => {
  it('is not written again, be it the same message or a second one under the same id', async () => {
    harness = await Harness.start();
    const first = await harness.process();
    const frame = encodeFrame([1, 2, 3].map((n) => encodeEntry(envelope([item('log', `{"n":${n}}`)]))));
    await harness.publishBytes(frame, { stream: 'logs', id: 'w:1' });
    await harness.drained();
    await first.stop();
    // The broker's memory of ids does not survive a restart of a stream that is empty by then.
    await harness.publishAgain(frame, { stream: 'logs', id: 'w:1' });
    expect((await harness.manager.streams.info('SLUICE_LOGS')).state.messages).toBe(1);
    await harness.process();
    await harness.drained();
    expect(harness.stored()).toHaveLength(3);
  });

  it('is written although its entries look alike: only clients resend, and only events', async () => {
    harness = await Harness.start();
    await harness.process();
    const frame = encodeFrame([1, 1].map((n) => encodeEntry(envelope([item('log', `{"n":${n}}`)]))));
    await harness.publishBytes(frame, { stream: 'logs', id: 'a' });
    await harness.publishBytes(frame, { stream: 'logs', id: 'b' });
    await harness.drained();
    expect(harness.stored()).toHaveLength(4);
  });
});

describe('a processor that stops', () => {
  it('loses nothing: what it had in hand is delivered to the next one at once', async () => {
    harness = await Harness.start({ ackWaitMs: 60_000 });
    const first = await harness.process();
    const publishing = (async () => {
      for (let n = 0; n < 300; n++) await harness.publish([event(n)]);
    })();
    await harness.storedOnce(1);
    await first.stop();
    await publishing;
    await harness.process();
    await harness.drained();
    const numbers = harness.stored().map(({ payload }) => (payload as { n: number }).n);
    expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, n) => n));
  });
});

describe('a sink that fails', () => {
  it('is tried again until it recovers; meanwhile nothing is acknowledged, and nothing is written twice after', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    const sink = await FailingSink.wrap(harness.dir);
    await harness.process({ sink });
    sink.failing = 'commit';
    for (let n = 0; n < 20; n++) await harness.publish([event(n)]);
    await eventually(() => sink.failures > 4);
    expect((await harness.manager.streams.info('SLUICE_EVENTS')).state.messages).toBe(20);
    const ready = await (await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`)).json();
    expect(ready).toEqual({
      status: 'ready',
      checks: { nats: 'ok', streams: 'ok', sink: 'failing', dead_letters: 'ok' },
    });
    sink.failing = undefined;
    await harness.drained();
    expect(harness.stored()).toHaveLength(20);
  });

  it('after it stored a batch does not store it again', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    const sink = await FailingSink.wrap(harness.dir);
    await harness.process({ sink });
    sink.failing = 'after commit';
    await harness.publish([event(1), event(2)]);
    await eventually(() => sink.failures > 0);
    sink.failing = undefined;
    await harness.drained();
    expect(harness.stored()).toHaveLength(2);
  });

  it('because its folder is no folder any more goes on when it is one again', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    await harness.process();
    await harness.publish([event(1)]);
    await harness.drained();
    const folder = join(harness.dir, 'SLUICE_EVENTS');
    renameSync(folder, `${folder}.away`);
    writeFileSync(folder, 'in the way');
    await harness.publish([event(2)]);
    await eventually(async () => {
      const page = await (await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`)).text();
      return page.includes('failing');
    });
    renameSync(folder, `${folder}.file`);
    renameSync(`${folder}.away`, folder);
    await harness.drained();
    expect(harness.stored().map(({ payload }) => payload)).toEqual([{ n: 1 }, { n: 2 }]);
  });

  it('does not keep the processor from stopping, and what it held is not lost', async () => {
    harness = await Harness.start({ ackWaitMs: 60_000 });
    const sink = await FailingSink.wrap(harness.dir);
    sink.failing = 'commit';
    const first = await harness.process({ sink });
    await harness.publish([event(1)]);
    await eventually(() => sink.failures > 0);
    await first.stop();
    await harness.process();
    await harness.drained();
    expect(harness.stored()).toHaveLength(1);
  });
});

describe('a frame that waits longer than the broker does', () => {
  it('is not delivered again meanwhile: the broker hears that somebody is at it', async () => {
    harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
    const sink = await FailingSink.wrap(harness.dir);
    await harness.process({ sink });
    sink.failing = 'commit';
    await harness.publish([event(1)]);
    await eventually(() => sink.failures > 0);
    await new Promise((resolve) => setTimeout(resolve, ACK_WAIT_MS + 3_000));
    const { num_redelivered, num_ack_pending } = await harness.manager.consumers.info(
      'SLUICE_EVENTS',
      CONSUMER,
    );
    expect({ num_redelivered, num_ack_pending }).toEqual({ num_redelivered: 0, num_ack_pending: 1 });
    sink.failing = undefined;
    await harness.drained();
    expect(harness.stored()).toHaveLength(1);
  });
});

describe('dead letters that the broker does not take', () => {
  it('keep their frame unacknowledged, if it does after a moment', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: 10 });
    await harness.process();
    await harness.publish([envelope([item('event', 'no JSON')]), event(2)]);
    await eventually(async () => {
      const page = await (await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`)).text();
      return page.includes('failing');
    });
    expect((await harness.manager.streams.info('SLUICE_EVENTS')).state.messages).toBe(1);
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: -1 });
    await harness.drained();
    expect((await harness.manager.streams.info('SLUICE_DEAD_LETTERS')).state.messages).toBe(1);
    expect(harness.stored()).toHaveLength(1);
  });
});

describe('the folder', () => {
  it('belongs to one processor at a time', async () => {
    harness = await Harness.start();
    const first = await harness.process();
    await expect(harness.process()).rejects.toThrow(FolderTakenError);
    await first.stop();
    const lock = await lockFolder(harness.dir, 'sink');
    expect(lock).toBeDefined();
    await lock?.release();
  });

  it('has files that never change, with several frames in one where frames wait', async () => {
    harness = await Harness.start();
    for (let n = 400; n < 600; n++) await harness.publish([event(n)]);
    await harness.process();
    const seen = new Map<string, string>();
    for (let n = 0; n < 400; n++) {
      await harness.publish([event(n)]);
      for (const name of harness.files())
        if (!seen.has(name)) seen.set(name, readFileSync(join(harness.dir, name), 'utf8'));
    }
    await harness.drained();
    for (const [name, text] of seen) expect(readFileSync(join(harness.dir, name), 'utf8')).toBe(text);
    expect(harness.stored()).toHaveLength(600);
    // The other 400 come as slowly as this machine publishes.
    expect(harness.files().length).toBeLessThan(450);
  });

  it('tallies each accepted envelope once by project and month, dead letters and resends included', async () => {
    harness = await Harness.start();
    const first = await harness.process();
    const counted = (position: number, more = {}) => event(position, { month: '2026-01', position, ...more });
    await harness.publish([counted(1), counted(2), counted(3, { items: [item('event', 'no JSON')] })]);
    await harness.publish([counted(4, { eventId: hexId(1) }), counted(5, { month: '2026-02' }), event(6)]);
    await harness.publish([counted(9, { projectId: '43' }), { ...event(7), parts: undefined } as never]);
    await harness.drained();
    expect(await readTally(harness.dir, '42', '2026-01')).toEqual({ count: 4, position: 4 });
    await first.stop();
    await harness.process();
    await harness.publish([counted(6, { month: '2026-02' })]);
    await harness.drained();
    expect(await readTally(harness.dir, '42', '2026-02')).toEqual({ count: 2, position: 6 });
    expect(await readTally(harness.dir, '43', '2026-01')).toEqual({ count: 1, position: 9 });
    expect(await readTally(harness.dir, '44', '2026-01')).toEqual({ count: 0, position: 0 });
    await expect(readTally(join(harness.dir, 'absent'), '42', '2026-01')).rejects.toThrow(/ENOENT/);
  });
});

describe('streams that are missing', () => {
  it('are waited for', async () => {
    harness = await Harness.start();
    const { config } = await harness.manager.streams.info('SLUICE_EVENTS');
    await harness.manager.streams.delete('SLUICE_EVENTS');
    await harness.process();
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    await harness.manager.streams.add(config);
    await harness.publish([event(1)]);
    expect(await harness.storedOnce(1)).toHaveLength(1);
  });
});

describe('an error that is no fault of disk or broker', () => {
  it('is a bug: it ends the process rather than being tried again', async () => {
    harness = await Harness.start();
    const sink = await FailingSink.wrap(harness.dir);
    sink.failing = 'bug';
    const bugs: unknown[] = [];
    await harness.process({ sink, onBug: (error) => bugs.push(error) });
    await harness.publish([event(1)]);
    await eventually(() => bugs.length > 0);
    expect(bugs[0]).toBeInstanceOf(TypeError);
    expect(bugs[0]).not.toBeInstanceOf(UnavailableError);
  });
});
