import { expect, it } from 'vitest';
import { SpoolDisk } from '../../src/envelope/spool-disk.ts';
import { ANSWER_MS_MAX } from '../../src/limits.ts';

it('is late, and then hangs, as long as its oldest call does not return', () => {
  let now = 0;
  const disk = new SpoolDisk('/tmp', { monotonic: () => now });
  const returns: (() => void)[] = [];
  const state = (): unknown => [disk.isLate, disk.hangs];
  disk.run((returned) => returns.push(returned));
  now = ANSWER_MS_MAX / 2;
  disk.run((returned) => returns.push(returned));
  expect(state()).toEqual([false, false]);
  now++;
  expect(state()).toEqual([true, false]);
  now = ANSWER_MS_MAX + 1;
  expect(state()).toEqual([true, true]);
  returns[0]?.();
  expect(state()).toEqual([true, false]);
  returns[1]?.();
  expect(state()).toEqual([false, false]);
});
