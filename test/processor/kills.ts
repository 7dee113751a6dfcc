/** What the tests share that kill processors. KILLS, ITEMS and SEED make a longer run, or the same again. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'vitest';
import { seeded } from '../ingest/envelope/bodies.ts';
import { lastingPort } from '../support/servers.ts';
import { envelope, frameOf, type Harness, hexId, item } from './harness.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url);
const FRAME_ENTRIES_MOST = 40;

export const ACK_WAIT_MS = 1_500;
export const MONTH = '2026-01';
export const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
export const random = seeded(SEED);
export const numberFrom = (variable: 'KILLS' | 'ITEMS', otherwise: number): number =>
  Number(process.env[variable] ?? otherwise);

export async function startProcessor(
  harness: Harness,
  settings: Readonly<Record<string, string>>,
): Promise<ChildProcess> {
  const own = { SLUICE_LOG_LEVEL: 'fatal', SLUICE_ADMIN_PORT: `${await lastingPort()}`, ...settings };
  return fork(CLI, ['processor'], {
    env: { ...process.env, ...harness.environment(own) },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
}

/** @returns its exit code */
export async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  const ended = once(child, 'exit');
  child.kill(signal);
  return (await ended)[0] as number | null;
}

/** The items of one envelope: an event, and every seventh time a container of two logs. */
export const eventAndLogs = (n: number): Parameters<typeof envelope>[0] =>
  n % 7 === 0 ? [event(n), item('log', `{"items":[{"n":${n}},{"n":${n}}]}`, { index: 1 })] : [event(n)];

const event = (n: number): ReturnType<typeof item> => item('event', `{"n":${n}}`);

/** Publishes envelopes from `from` on in frames of random size. @returns the next one */
export async function publishSome(
  harness: Harness,
  { from, count }: { from: number; count: number },
  itemsOf: typeof eventAndLogs = (n) => [event(n)],
): Promise<number> {
  const end = from + count;
  let next = from;
  while (next < end) {
    const size = Math.min(1 + Math.floor(random() * FRAME_ENTRIES_MOST), end - next);
    const frame = Array.from({ length: size }, (_, i) => next + i).map((n) =>
      envelope(itemsOf(n), { eventId: hexId(n), month: MONTH, position: n + 1 }),
    );
    await harness.publishBytes(frameOf(...frame));
    next += size;
  }
  return next;
}

/** Kills one processor after another at random moments while items come, and lets the last one end in peace. */
export async function killAtAnyMoment(
  harness: Harness,
  { kills, items, uptimeMsMax }: { kills: number; items: number; uptimeMsMax: number },
  given: { start(): Promise<ChildProcess>; publish(from: number, count: number): Promise<number> },
): Promise<void> {
  let next = 0;
  for (let kill = 0; kill < kills; kill++) {
    const child = await given.start();
    const publishing = given.publish(next, Math.floor(items / (kills + 1)));
    await pause(random() * uptimeMsMax);
    await end(child, 'SIGKILL');
    next = await publishing;
  }
  const child = await given.start();
  await given.publish(next, items - next);
  await harness.drained();
  expect(await end(child, 'SIGTERM'), `seed ${SEED}`).toBe(0);
}
