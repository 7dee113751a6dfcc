import { setImmediate as turnOfLoop } from 'node:timers/promises';
import { beforeEach, expect, it } from 'vitest';
import { Slices, type Steps } from '../../src/lib/slices.ts';
import { SLICE_MS_MAX } from '../../src/limits.ts';

let ms = 0;
/** A letter for each step that was done. */
let log = '';
let slices: Slices;
beforeEach(() => {
  ms = 0;
  log = '';
  slices = new Slices(() => ms);
});

/** Steps of a millisecond each. */
function* steps(count: number, name = 'a'): Steps<string> {
  for (let step = 0; step < count; step++) {
    ms++;
    log += name;
    yield;
  }
  return 'done';
}
const slice = (name: string): string => name.repeat(SLICE_MS_MAX);

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

it('gives the loop its turn after each slice', async () => {
  const work = slices.run(steps(4 * SLICE_MS_MAX));
  expect(log).toBe(slice('a'));
  expect(await turnsDuring(work)).toBeGreaterThanOrEqual(4);
  expect(await work).toBe('done');
});

it('does small work at once', async () => {
  const work = slices.run(steps(SLICE_MS_MAX - 1));
  expect(log).toHaveLength(SLICE_MS_MAX - 1);
  await work;
});

it('runs one slice in a turn of the loop, for each work in its turn', async () => {
  const works = ['1', '2', '3'].map((name) => slices.run(steps(2 * SLICE_MS_MAX + 1, name)));
  const round = slice('1') + slice('2') + slice('3');
  expect(log).toBe(round);
  expect(await turnsDuring(Promise.all(works))).toBeGreaterThanOrEqual(6);
  expect(log).toBe(`${round}${round}123`);
});

it('ends with what a step throws', async () => {
  function* broken(): Steps<void> {
    yield;
    throw new Error('broken');
  }
  await expect(slices.run(broken())).rejects.toThrow('broken');
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
