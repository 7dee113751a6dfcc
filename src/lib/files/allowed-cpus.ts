import { availableParallelism } from 'node:os';
import { fileText } from './setting-files.ts';

/**
 * CPUs that a cgroup's quota allows, by the text of `cpu.max` (`max 100000` or `150000 100000`).
 */
export function cpusOfQuota(cpuMax: string): number | undefined {
  const [quota, period] = cpuMax.split(' ').map(Number);
  return quota && period && quota > 0 ? quota / period : undefined;
}

/** CPUs by affinity and by the cgroup's quota, which Node 20 ignores; at least 1. */
export function allowedCpus(): number {
  const v2 = fileText('/sys/fs/cgroup/cpu.max');
  const [quotaV1, periodV1] = ['quota', 'period'].map((name) =>
    fileText(`/sys/fs/cgroup/cpu/cpu.cfs_${name}_us`),
  );
  const quota = cpusOfQuota(v2 ?? `${quotaV1} ${periodV1}`) ?? Number.POSITIVE_INFINITY;
  return Math.max(1, Math.min(availableParallelism(), Math.ceil(quota)));
}
