import type { Clock } from '../../../lib/clock.ts';
import type { Category } from '../../../lib/item-types.ts';
import { RETRY_AFTER_SEC } from '../../../limits.ts';
import type { RateDecision } from '../../limit/admission.ts';
import { categoryHint, projectHint, RATE_HINT } from './rate-hints.ts';

/**
 * Seconds until a window has room. A reset is never further away, but a clock of ours may be wrong.
 */
function secondsUntil(resetSec: number, now: number): number {
  return Math.min(Math.max(Math.ceil(resetSec - now / 1000), 1), RETRY_AFTER_SEC + 1);
}

/** A category over its limit, until a moment in Unix seconds. */
type Dropped = { resetSec: number; category: Category };

export const categoryHints = (dropped: readonly Dropped[], clock: Pick<Clock, 'now'>): string[] =>
  dropped.map(({ resetSec, category }) => categoryHint(secondsUntil(resetSec, clock.now()), category));

/**
 * X-RateLimit-* of an answer, as header lines. A refusal's row in REFUSALS already says that
 * nothing remains.
 */
export const rateHeaders = {
  of(decision: Exclude<RateDecision, { kind: 'unavailable' }>, clock: Pick<Clock, 'now'>): string {
    const reset = `\r\nX-RateLimit-Reset: ${decision.resetSec}`;
    if (decision.kind === 'admitted') return `\r\nX-RateLimit-Remaining: ${decision.remaining}${reset}`;
    return `${reset}\r\n${RATE_HINT}: ${projectHint(secondsUntil(decision.resetSec, clock.now()))}`;
  },
  /**
   * Headers for an envelope that holds these categories alone: the first of them to have room
   * decides.
   */
  ofCategories(dropped: readonly Dropped[], clock: Pick<Clock, 'now'>): string {
    const reset = Math.min(...dropped.map(({ resetSec }) => resetSec));
    return `\r\nX-RateLimit-Reset: ${reset}\r\n${RATE_HINT}: ${categoryHints(dropped, clock).join(', ')}`;
  },
  /**
   * The limiter was asked but knows nothing: the reset that goes with Retry-After. @param now Unix
   * ms
   */
  unavailable(now: number): string {
    return `\r\nX-RateLimit-Reset: ${Math.ceil(now / 1000) + RETRY_AFTER_SEC}`;
  },
};

/** Percent of the quota in use, rounded down. */
function usagePercent(current: number, quota: number | undefined): number {
  if (quota === undefined) return 0;
  return quota === 0 ? 100 : Math.floor((100 * current) / quota);
}

/**
 * X-Service-Usage, its percentage, and the warning above 75 %, as header lines. `quota` undefined:
 * unlimited.
 */
export function quotaHeaders(current: number, quota: number | undefined): string {
  const warns = quota !== undefined && 4 * current > 3 * quota;
  return (
    `\r\nX-Service-Usage: ${current}/${quota ?? 'unlimited'}` +
    `\r\nX-Service-Usage-Percent: ${usagePercent(current, quota)}` +
    (warns ? '\r\nX-Service-Quota-Warning: true' : '')
  );
}
