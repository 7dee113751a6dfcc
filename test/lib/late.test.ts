import { expect, it } from 'vitest';
import { orLate } from '../../src/lib/late.ts';

it('gives what comes in time, also a failure, and else what stands for it', async () => {
  expect(await orLate(Promise.resolve(1), 60_000, 'late')).toBe(1);
  expect(await orLate(new Promise(() => undefined), 1, 'late')).toBe('late');
  await expect(orLate(Promise.reject(new Error('no')), 60_000, 'late')).rejects.toThrow('no');
});
