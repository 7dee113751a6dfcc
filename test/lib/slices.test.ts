import { setImmediate as turnOfLoop } from 'node:timers/promises';
import { beforeEach, expect, it } from 'vitest';
import { Slices, type Steps } from '../../src/lib/slices.ts';
import { SLICE_MS_MAX } from '../../src/limits.ts';

let ms = 0;
let log: string[] = [];
let slices: Slices;
beforeEach(() => {
  ms = 0;
  log = [];
  slices = new Slices({ now: () => ms, spent: (projectId, took) => log.push(`${projectId} ${took}`) });
});

/** Steps of a millisecond each. */
function* steps(count: number): Steps<string> {
  for (let step = 0; step < count; step++) {
    ms++;
    yield;
  }
  return 'done';
}

/** How often the loop turned meanwhile. */
async function turnsDuring(work: Promise<unknown>): Promise<number> {
  let turns = 0;
  let isOver = false;
  void work.finally(() => {
    isOver = true;
  });
  for (; !isOver; turns++) await turnOfLoop();
  return turns;
}

it('gives the loop its turn after each slice, and says whose it was and how long it took', async () => {
  const work = slices.run('7', steps(4 * SLICE_MS_MAX));
  expect(await turnsDuring(work)).toBeGreaterThanOrEqual(4);
  expect(await work).toBe('done');
  expect(log).toEqual([...Array(4).fill(`7 ${SLICE_MS_MAX}`), '7 0']);
});

it('does small work at once', async () => {
  const work = slices.run('7', steps(SLICE_MS_MAX - 1));
  expect(log).toEqual([`7 ${SLICE_MS_MAX - 1}`]);
  await work;
});

it('runs one slice in a turn of the loop, for each work in its turn', async () => {
  const works = ['1', '2', '3'].map((id) => slices.run(id, steps(2 * SLICE_MS_MAX + 1)));
  const begun = log.length;
  expect(await turnsDuring(Promise.all(works))).toBeGreaterThanOrEqual(6);
  expect(begun).toBe(3);
  expect(log.map((line) => line.split(' ')[0]).join('')).toBe('123123123');
});

it('ends with what a step throws', async () => {
  function* broken(): Steps<void> {
    yield;
    throw new Error('broken');
  }
  await expect(slices.run('7', broken())).rejects.toThrow('broken');
});

it('pauses a loop over small works when they took a slice together', async () => {
  const pause = slices.pauses();
  expect(pause()).toBeUndefined();
  ms += SLICE_MS_MAX;
  const paused = pause();
  expect(paused).toBeInstanceOf(Promise);
  await paused;
  expect(pause()).toBeUndefined();
});
