import type { RateDecision } from '../limit/admission.ts';
import { RETRY_AFTER_SEC } from '../limits.ts';

/** X-RateLimit-* of an answer (spec 4.1), as header lines. A refusal's row in REFUSALS already says that nothing remains. */
export const rateHeaders = {
  of(decision: Exclude<RateDecision, { kind: 'unavailable' }>): string {
    const reset = `\r\nX-RateLimit-Reset: ${decision.resetSec}`;
    return decision.kind === 'refused' ? reset : `\r\nX-RateLimit-Remaining: ${decision.remaining}${reset}`;
  },
  /** The limiter was asked but knows nothing: the reset that goes with Retry-After. @param now Unix ms */
  unavailable(now: number): string {
    return `\r\nX-RateLimit-Reset: ${Math.ceil(now / 1000) + RETRY_AFTER_SEC}`;
  },
};

/** Percent of the quota in use, rounded down (contract part 2, Quota). */
function usagePercent(current: number, quota: number | undefined): number {
  if (quota === undefined) return 0;
  return quota === 0 ? 100 : Math.floor((100 * current) / quota);
}

/** X-Service-Usage, its percentage, and the warning above 75 % (spec 4.1), as header lines. `quota` undefined: unlimited. */
export function quotaHeaders(current: number, quota: number | undefined): string {
  const warns = quota !== undefined && 4 * current > 3 * quota;
  return (
    `\r\nX-Service-Usage: ${current}/${quota ?? 'unlimited'}` +
    `\r\nX-Service-Usage-Percent: ${usagePercent(current, quota)}` +
    (warns ? '\r\nX-Service-Quota-Warning: true' : '')
  );
}
