/**
 * Processors that are killed, stopped and woken, on each sink that promises `repeatable`: what a reader has in the end is each item once.
 * KILLS, ITEMS and SEED make a longer run, or the same again.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { envelope, Harness, hexId, item } from '../processor/harness.ts';
import type { SinkUnderTest, StartSink } from '../sink/sinks.ts';
import { lastingPort } from '../support/servers.ts';
import { ClickHouseUnderTest, S3UnderTest } from './under-test.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url);
const KILLS = Number(process.env.KILLS ?? 8);
const ITEMS = Number(process.env.ITEMS ?? 6_000);
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const FRAME_ENTRIES_MOST = 40;
const UPTIME_MS_MAX = 1_500;
const ACK_WAIT_MS = 1_500;
const MONTH = '2026-01';

/** mulberry32: the same numbers for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}
const random = randomOf(SEED);

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
    const settings = {
      SLUICE_SINK: sink.setting,
      SLUICE_LOG_LEVEL: 'fatal',
      SLUICE_ADMIN_PORT: `${await lastingPort()}`,
    };
    const child = fork(CLI, ['processor'], {
      env: { ...process.env, ...harness.environment(settings) },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    children.push(child);
    return child;
  }

  async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<unknown> {
    const ended = once(child, 'exit');
    child.kill(signal);
    return (await ended)[0];
  }

  /** Publishes items from `from` on in frames of random size: events, and now and then a container of two logs. */
  async function publishSome(from: number, count: number): Promise<number> {
    let next = from;
    while (next < from + count) {
      const entries: Uint8Array[] = [];
      for (
        let left = 1 + Math.floor(random() * FRAME_ENTRIES_MOST);
        left > 0 && next < from + count;
        left--
      ) {
        const items = [item('event', `{"n":${next}}`)];
        if (next % 7 === 0) items.push(item('log', `{"items":[{"n":${next}},{"n":${next}}]}`, { index: 1 }));
        const more = { eventId: hexId(next), month: MONTH, position: next + 1 };
        entries.push(encodeEntry(envelope(items, more)));
        next++;
      }
      await harness.publishBytes(encodeFrame(entries));
    }
    return next;
  }

  async function expectEachOnce(count: number): Promise<void> {
    const { messages } = (await harness.manager.streams.info('SLUICE_DEAD_LETTERS')).state;
    expect(messages, `seed ${SEED}`).toBe(0);
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
      let next = 0;
      for (let kill = 0; kill < KILLS; kill++) {
        const child = await startChild();
        const publishing = publishSome(next, Math.floor(ITEMS / (KILLS + 1)));
        await pause(random() * UPTIME_MS_MAX);
        await end(child, 'SIGKILL');
        next = await publishing;
      }
      const child = await startChild();
      await publishSome(next, ITEMS - next);
      await harness.drained();
      expect(await end(child, 'SIGTERM'), `seed ${SEED}`).toBe(0);
      await expectEachOnce(ITEMS);
    },
    90_000 + KILLS * 6_000,
  );

  it('of two processors one may be stopped beyond the ack wait and woken: each item once', async () => {
    const both = [await startChild(), await startChild()];
    let next = 0;
    for (const victim of both) {
      const publishing = publishSome(next, 500);
      await pause(200 + random() * 1_000);
      victim.kill('SIGSTOP');
      await publishSome(next + 500, 500);
      await pause(ACK_WAIT_MS + 700);
      victim.kill('SIGCONT');
      await publishing;
      next += 1_000;
    }
    await harness.drained();
    for (const child of both) expect(await end(child, 'SIGTERM'), `seed ${SEED}`).toBe(0);
    await expectEachOnce(next);
  });
});
