/** What the contract says of a Redis that lost its memory: it is noticed, and counts are raised to the tally by themselves. */
import { until } from '../support/system.ts';
import type { ProjectName, Terms, Told } from './ledger.ts';
import type { Stand } from './stand.ts';
import { usageOf } from './usage.ts';

const RAISED_MS_MAX = 90_000;

/**
 * Waits until no count is lower than the accepted requests, with no hand on it.
 * @returns the counts, as they are by then or at the end of the patience
 */
export async function usageOnceRaised(
  stand: Stand,
  projects: Terms['projects'],
  told: readonly Told[],
): Promise<Record<ProjectName, number>> {
  const accepted = (name: string): number =>
    told.filter(({ project, status }) => project === name && status === 200).length;
  let usage = await usageOf(stand, projects);
  const isRaised = async (): Promise<boolean> => {
    usage = await usageOf(stand, projects);
    return Object.entries(usage).every(([name, count]) => count >= accepted(name));
  };
  await until(isRaised, RAISED_MS_MAX).catch(() => undefined);
  return usage;
}

/** For a scenario's end. @returns sentences about what is wrong */
export async function redisForgot(stand: Stand): Promise<string[]> {
  const lost = await stand.metric('sluice_limiter_state_lost_total');
  const restored = await stand.metric('sluice_counters_restored_total');
  return [
    ...(lost > 0 ? [] : ['sluice_limiter_state_lost_total says nothing']),
    ...(restored > 0 ? [] : ['sluice_counters_restored_total says nothing']),
  ];
}
