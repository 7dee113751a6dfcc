import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined; // no such controller here
  }
};

/**
 * CPUs that a cgroup's quota allows, by the text of `cpu.max` (version 2: `max 100000` or `150000
 * 100000`).
 */
export function cpusOfQuota(cpuMax: string): number | undefined {
  const [quota, period] = cpuMax.split(' ').map(Number);
  return quota && period && quota > 0 ? quota / period : undefined;
}

/**
 * CPUs that this process may use: affinity and the cgroup's quota, which Node 20 ignores; at least
 * 1.
 */
export function allowedCpus(): number {
  const v2 = read('/sys/fs/cgroup/cpu.max');
  const v1 = `${read('/sys/fs/cgroup/cpu/cpu.cfs_quota_us')} ${read('/sys/fs/cgroup/cpu/cpu.cfs_period_us')}`;
  const quota = cpusOfQuota(v2 ?? v1) ?? Number.POSITIVE_INFINITY;
  return Math.max(1, Math.min(availableParallelism(), Math.ceil(quota)));
}
