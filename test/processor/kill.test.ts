/**
 * A processor on ndjson that is killed. A longer run:
 *
 *     KILLS=200 ITEMS=100000 npx vitest run --config test/vitest.config.ts test/processor/kill.test.ts
 */
import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { rounds } from '../support/rounds.ts';
import { Harness, numbersIn } from './harness.ts';
import { ACK_WAIT_MS, end, MONTH, numberFrom, publishSome, random, SEED, startProcessor } from './kills.ts';

const KILLS = numberFrom('KILLS', rounds(15, 5));
const ITEMS = numberFrom('ITEMS', rounds(20_000, 4_000));
const UPTIME_MS_MAX = 900;

let harness: Harness;
const children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  await harness.close();
});

async function startChild(): Promise<ChildProcess> {
  const child = await startProcessor(harness, {});
  children.push(child);
  return child;
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
  harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
  const files = new Map<string, string>();
  let next = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    const child = await startChild();
    const publishing = publishSome(harness, { from: next, count: Math.floor(ITEMS / (KILLS + 1)) });
    // Every other time when a file has just appeared and its frames may not be acknowledged yet.
    if (kill % 2 === 0) await pause(random() * UPTIME_MS_MAX);
    else await untilNewFile();
    await end(child, 'SIGKILL');
    for (const [name, digest] of digests()) files.set(name, files.get(name) ?? digest);
    next = await publishing;
  }
  const child = await startChild();
  await publishSome(harness, { from: next, count: ITEMS - next });
  await harness.drained();
  expect(await end(child, 'SIGTERM'), `seed ${SEED}`).toBe(0);

  const numbers = numbersIn(harness.stored());
  expect(numbers.length, `seed ${SEED}`).toBe(ITEMS);
  expect(new Set(numbers).size, `seed ${SEED}`).toBe(ITEMS);
  const now = digests();
  for (const [name, digest] of files) expect(now.get(name), `seed ${SEED}: ${name}`).toBe(digest);
  expect(await harness.messages('SLUICE_DEAD_LETTERS'), `seed ${SEED}`).toBe(0);
  expect(await harness.tally('42', MONTH), `seed ${SEED}`).toEqual({
    count: ITEMS,
    position: ITEMS,
  });
}

it(
  `a processor that is killed at any moment writes each of ${ITEMS} items exactly once`,
  survives,
  120_000 + KILLS * 4_000,
);
