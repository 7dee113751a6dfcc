import { availableParallelism } from 'node:os';
import { fileText } from './setting-files.ts';

/**
 * Returns how many CPUs a cgroup's quota allows; undefined when there is no quota.
 * @param cpuMax text of the file `cpu.max`: `150000 100000` (quota and period, in µs), or `max
 * 100000` without a quota
 */
export function cpusOfQuota(cpuMax: string): number | undefined {
  const [quota, period] = cpuMax.split(' ').map(Number);
  return quota && period && quota > 0 ? quota / period : undefined;
}

/**
 * Number of CPUs that this process may use by its affinity and its cgroup's quota, at least 1. In
 * Node 20, availableParallelism ignores the quota.
 */
export function allowedCpus(): number {
  const v2 = fileText('/sys/fs/cgroup/cpu.max');
  const [quotaV1, periodV1] = ['quota', 'period'].map((name) =>
    fileText(`/sys/fs/cgroup/cpu/cpu.cfs_${name}_us`),
  );
  const quota = cpusOfQuota(v2 ?? `${quotaV1} ${periodV1}`) ?? Number.POSITIVE_INFINITY;
  return Math.max(1, Math.min(availableParallelism(), Math.ceil(quota)));
}
