import type { Clock } from '../../../lib/clock.ts';
import type { Category } from '../../../lib/item-types.ts';
import { RETRY_AFTER_SEC } from '../../../limits.ts';
import type { RateDecision } from '../../limit/admission.ts';

/**
 * X-Sentry-Rate-Limits: what SDKs are to stop sending, and for how long. They prefer it to
 * Retry-After. Each limit is `seconds:categories:scope`; no category means all of them.
 */
export const RATE_HINT = 'X-Sentry-Rate-Limits';

/** On 429: everything of this project waits. */
export const projectHint = (seconds: number): string => `${seconds}::project`;

const LIMITED_NAMES: Readonly<Record<Category, string>> = {
  errors: 'error',
  transactions: 'transaction',
  spans: 'span',
  logs: 'log_item',
  replays: 'replay',
};

/** Over the limit of a category: it waits, and the rest of the project goes on. */
const categoryHint = (seconds: number, category: Category): string =>
  `${seconds}:${LIMITED_NAMES[category]}:project`;

/** Categories by item type: notes of the convention's public documentation. */
const HINTED_OF_TYPE: Readonly<Record<string, readonly string[]>> = {
  session: ['session'],
  sessions: ['session'],
  client_report: ['internal'],
  check_in: ['monitor'],
  profile: ['profile', 'profile_chunk'],
  profile_chunk: ['profile', 'profile_chunk'],
  feedback: ['feedback'],
  user_report: ['default'],
  attachment: ['attachment'],
  statsd: ['metric_bucket'],
  // JavaScript SDKs of version 10 know it as `metric`.
  trace_metric: ['trace_metric', 'metric'],
  // A client that sends these sends no other replays.
  replay_video: ['replay'],
  raw_security: ['security'],
};

const HINT_SEC = 86_400;

const categoriesOf = (type: string): readonly string[] =>
  Object.hasOwn(HINTED_OF_TYPE, type) ? (HINTED_OF_TYPE[type] ?? []) : [];

/**
 * The value of X-Sentry-Rate-Limits for an envelope that held items of these types, none of which
 * is stored.
 */
export type UnsupportedHint = (skipped: Iterable<string>) => string | undefined;

/**
 * Makes hints that never silence a stored type: they leave out each category that a stored type
 * belongs to. Where no category is left there is no hint: an empty list would silence everything.
 */
export function unsupportedHintFor(stored: ReadonlySet<string>): UnsupportedHint {
  const spared = new Set([...stored].flatMap(categoriesOf));
  return (skipped) => {
    const categories = new Set([...skipped].flatMap(categoriesOf).filter((one) => !spared.has(one)));
    if (categories.size === 0) return undefined;
    return `${HINT_SEC}:${[...categories].join(';')}:organization:unsupported`;
  };
}

// ---- Headers about a limit ----

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
