import { availableParallelism } from 'node:os';
import { expect, it } from 'vitest';
import { allowedCpus, cpusOfQuota } from '../../../src/lib/files/allowed-cpus.ts';

it('reads the quota of a cgroup', () => {
  expect(cpusOfQuota('150000 100000')).toBe(1.5);
  expect(cpusOfQuota('max 100000')).toBeUndefined();
  expect(cpusOfQuota('-1 100000')).toBeUndefined();
  expect(cpusOfQuota('undefined undefined')).toBeUndefined();
});

it('is at least one and at most what the machine has', () => {
  expect(allowedCpus()).toBeGreaterThanOrEqual(1);
  expect(allowedCpus()).toBeLessThanOrEqual(availableParallelism());
});
