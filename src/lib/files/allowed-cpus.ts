import { availableParallelism } from 'node:os';
import { fileText } from './setting-files.ts';

/**
 * Reads how many CPUs a cgroup's quota allows from the text of `cpu.max` (`max 100000` or `150000
 * 100000`). Undefined: no quota.
 */
export function cpusOfQuota(cpuMax: string): number | undefined {
  const [quota, period] = cpuMax.split(' ').map(Number);
  return quota && period && quota > 0 ? quota / period : undefined;
}

/**
 * CPUs that this process may use by its affinity and its cgroup's quota, at least 1. Node 20
 * ignores the quota.
 */
export function allowedCpus(): number {
  const v2 = fileText('/sys/fs/cgroup/cpu.max');
  const [quotaV1, periodV1] = ['quota', 'period'].map((name) =>
    fileText(`/sys/fs/cgroup/cpu/cpu.cfs_${name}_us`),
  );
  const quota = cpusOfQuota(v2 ?? `${quotaV1} ${periodV1}`) ?? Number.POSITIVE_INFINITY;
  return Math.max(1, Math.min(availableParallelism(), Math.ceil(quota)));
}
