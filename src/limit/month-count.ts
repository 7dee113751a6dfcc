/**
 * The month's count of one project, as commands read and set it. The hot path counts in
 * admission.ts.
 */
import { admitArgs } from './admit-call.ts';
import type { LimitRedis } from './redis.ts';
import { quotaKey, rateKey } from './scripts.ts';

/**
 * Usage without counting. `count` undefined: Redis has none for this month. @throws when Redis does
 * not answer
 */
export async function readUsage(
  redis: LimitRedis,
  projectId: string,
): Promise<{ month: string; count: number | undefined }> {
  const keys = [rateKey(projectId), quotaKey(projectId)] as const;
  const reply = await redis.request('admit', keys, admitArgs({ waiting: '' }));
  if (!reply) throw new Error('Redis does not answer');
  const [month, before] = reply[1] as [string, number];
  return { month, count: before < 0 ? undefined : before };
}

/** What {@link setUsage} sets, and the count that its caller saw (undefined: none). */
export type UsageChange = { projectId: string; month: string; count: number; seen: number | undefined };

/**
 * Sets a month's count unless it changed meanwhile. @returns whether it was set, and the count as
 * it is now
 */
export async function setUsage(
  redis: LimitRedis,
  change: UsageChange,
): Promise<{ set: boolean; count: number | undefined }> {
  const { projectId, month, count, seen } = change;
  const reply = await redis.request('setUsage', [quotaKey(projectId)], [month, count, seen ?? '']);
  if (!reply) throw new Error('Redis does not answer');
  const [set, current] = reply as [number, number];
  return { set: set === 1, count: current < 0 ? undefined : current };
}

/**
 * Removes the counts of all months and the rate window. @returns the counts as they were, by month.
 * @throws when Redis does not answer
 */
export async function forgetUsage(redis: LimitRedis, projectId: string): Promise<Map<string, number>> {
  const reply = await redis.request('forgetUsage', [quotaKey(projectId), rateKey(projectId)], []);
  if (!reply) throw new Error('Redis does not answer');
  const months = new Map<string, number>();
  for (let at = 0; at < reply.length; at += 2) months.set(String(reply[at]), Number(reply[at + 1]));
  return months;
}
