/** Which projects a processor names to the workers. */
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/lib/clock.ts';
import { WORK_BEHIND_MS, WORK_HEAVY_MS, WORK_NAMED_EVERY_MS, WORK_OTHERS_MS } from '../../src/limits.ts';
import { HeavyProjects } from '../../src/processor/heavy-projects.ts';
import { HEAVY_SUBJECT } from '../../src/stream/work.ts';
import { envelope, Harness, hexId, item, log } from './harness.ts';

const MIB = 1024 * 1024;
let harness: Harness;
let named: string[];
beforeAll(async () => {
  harness = await Harness.start();
  harness.link.subscribe(HEAVY_SUBJECT, ({ data }) => named.push(Buffer.from(data).toString()));
});
beforeEach(() => {
  named = [];
});
afterAll(() => harness.close());

describe('a processor that is late', () => {
  const STORED_AT = 5_000_000;
  let now: number;
  let heavy: HeavyProjects;
  beforeEach(() => {
    now = STORED_AT + WORK_BEHIND_MS;
    const clock = { now: () => now, monotonic: () => now };
    heavy = new HeavyProjects({ link: harness.link, clock, log });
    note('other', 1, STORED_AT);
  });
  const note = (projectId: string, workMs: number, storedAt: number, stream = 'A'): void =>
    heavy.note(projectId, workMs, { stream, storedAt });
  const namedNow = async (): Promise<string[]> => {
    await harness.link.connection.flush();
    return named.splice(0);
  };

  it('names a project that sent more than there is time for', async () => {
    for (let count = 0; count < 5; count++) note('1', WORK_HEAVY_MS / 8, STORED_AT);
    expect(await namedNow()).toEqual(['1']);
  });

  it('names it again after a moment, while that lasts', async () => {
    note('1', WORK_HEAVY_MS, STORED_AT);
    now += WORK_NAMED_EVERY_MS - 1;
    note('1', 1, STORED_AT);
    expect(await namedNow()).toEqual(['1']);
    now += 1;
    note('1', 1, STORED_AT);
    expect(await namedNow()).toEqual(['1']);
  });

  it('names nobody who sent no more than could be processed in time, however old that is', async () => {
    now = STORED_AT + 3_600_000;
    for (let second = 0; second < 60; second++) note('1', 100, STORED_AT + second * 1_000);
    expect(await namedNow()).toEqual([]);
  });

  it('names a project that needs more than half of its time', async () => {
    now = STORED_AT + 60_000;
    for (let item = 0; item < 60; item++) note('1', 60, STORED_AT + item * 100);
    expect(await namedNow()).toEqual(['1']);
  });

  it('a stream that is later than another one is no debt', async () => {
    now = STORED_AT + 10_000;
    for (let second = 0; second < 8; second++) {
      note('1', 20, STORED_AT + second * 1_000 + 2_000, 'ahead');
      note('1', 20, STORED_AT + second * 1_000, 'late');
    }
    expect(await namedNow()).toEqual([]);
  });

  it('a frame that is redelivered is no older debt', async () => {
    now = STORED_AT + 10_000;
    for (const seconds of [5, 0, 1, 2]) note('1', 20, STORED_AT + seconds * 1_000);
    expect(await namedNow()).toEqual([]);
  });

  it('names a project that needs more than half of its time in two streams together', async () => {
    now = STORED_AT + 60_000;
    for (let item = 0; item < 60; item++)
      for (const stream of ['A', 'B']) note('1', 30, STORED_AT + item * 100, stream);
    expect(await namedNow()).toEqual(['1']);
  });

  it('names nobody while it keeps up', async () => {
    now = STORED_AT + WORK_BEHIND_MS - 1;
    note('1', 10 * WORK_HEAVY_MS, STORED_AT);
    expect(await namedNow()).toEqual([]);
  });

  it('names nobody who has been alone for long', async () => {
    now += WORK_OTHERS_MS;
    for (let count = 0; count < 5; count++) note('1', WORK_HEAVY_MS, now - WORK_BEHIND_MS);
    expect(await namedNow()).toEqual([]);
  });
});

it('what a recording inflates to is work, and only the project that sent it is named', async () => {
  const late = { ...systemClock, now: () => systemClock.now() + 60_000 };
  await harness.process({ clock: late });
  const recording = Buffer.concat([
    Buffer.from('{"segment_id":0}\n'),
    gzipSync(`["${'x'.repeat(28 * MIB)}"]`),
  ]);
  const light = (number: number) =>
    envelope([item('event', '{}')], { eventId: hexId(number), projectId: 'light' });
  await harness.publish([light(1)], { stream: 'replays' });
  await harness.drained();
  const recordings = [0, 1].map((index) => item('replay_recording', recording, { index }));
  await harness.publish(
    [light(2), envelope(recordings, { eventId: hexId(3), projectId: 'heavy' }), light(4)],
    { stream: 'replays' },
  );
  await harness.drained();
  await expect.poll(() => new Set(named)).toEqual(new Set(['heavy']));
});
