/**
 * A processor on ndjson that is killed. KILLS, ITEMS and SEED make a longer run, or the same again:
 *
 *     KILLS=200 ITEMS=100000 npx vitest run --config test/vitest.config.ts test/processor/kill.test.ts
 */
import { type ChildProcess, fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { readTally } from '../../src/sink/tally.ts';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { rounds } from '../support/rounds.ts';
import { envelope, Harness, hexId, item } from './harness.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url);
const KILLS = Number(process.env.KILLS ?? rounds(15, 5));
const ITEMS = Number(process.env.ITEMS ?? rounds(20_000, 7_000));
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const FRAME_ENTRIES_MOST = 40;
const UPTIME_MS_MAX = 900;

let harness: Harness;
const children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  await harness.close();
});

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

function startChild(): { child: ChildProcess; exited: Promise<number | null> } {
  const child = fork(CLI, ['processor'], {
    env: { ...process.env, ...harness.environment({ SLUICE_LOG_LEVEL: 'error' }) },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  children.push(child);
  return { child, exited: new Promise((resolve) => child.once('exit', (code) => resolve(code))) };
}

/** Publishes items from `from` on in frames of random size. @returns the next one */
async function publishSome(from: number, count: number, random: () => number): Promise<number> {
  let next = from;
  while (next < from + count) {
    const entries: Uint8Array[] = [];
    for (let left = 1 + Math.floor(random() * FRAME_ENTRIES_MOST); left > 0 && next < from + count; left--) {
      const position = next + 1;
      const event = item('event', `{"n":${next}}`);
      entries.push(encodeEntry(envelope([event], { eventId: hexId(next++), month: '2026-01', position })));
    }
    await harness.publishBytes(encodeFrame(entries));
  }
  return next;
}

async function untilNewFile(): Promise<void> {
  const before = harness.files().length;
  for (let waited = 0; harness.files().length === before && waited < 2 * UPTIME_MS_MAX; waited++)
    await pause(1);
}

const digests = (): Map<string, string> =>
  new Map(
    harness.files().map((name) => [
      name,
      createHash('sha256')
        .update(readFileSync(join(harness.dir, name)))
        .digest('hex'),
    ]),
  );

async function survives(): Promise<void> {
  const seed = SEED;
  const random = randomOf(seed);
  harness = await Harness.start({ ackWaitMs: 1_500 });
  const files = new Map<string, string>();
  let next = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    const { child, exited } = startChild();
    const publishing = publishSome(next, Math.floor(ITEMS / (KILLS + 1)), random);
    // Every other time when a file has just appeared and its frames may not be acknowledged yet.
    if (kill % 2 === 0) await pause(random() * UPTIME_MS_MAX);
    else await untilNewFile();
    child.kill('SIGKILL');
    await exited;
    for (const [name, digest] of digests()) files.set(name, files.get(name) ?? digest);
    next = await publishing;
  }
  const { child, exited } = startChild();
  await publishSome(next, ITEMS - next, random);
  await harness.drained();
  child.kill('SIGTERM');
  expect(await exited, `seed ${seed}`).toBe(0);

  const numbers = harness.stored().map(({ payload }) => (payload as { n: number }).n);
  expect(numbers.length, `seed ${seed}`).toBe(ITEMS);
  expect(new Set(numbers).size, `seed ${seed}`).toBe(ITEMS);
  const now = digests();
  for (const [name, digest] of files) expect(now.get(name), `seed ${seed}: ${name}`).toBe(digest);
  const { messages } = (await harness.manager.streams.info('SLUICE_DEAD_LETTERS')).state;
  expect(messages, `seed ${seed}`).toBe(0);
  expect(await readTally(harness.dir, '42', '2026-01'), `seed ${seed}`).toEqual({
    count: ITEMS,
    position: ITEMS,
  });
}

it(
  `a processor that is killed at any moment writes each of ${ITEMS} items exactly once`,
  survives,
  120_000 + KILLS * 4_000,
);
