import type { Clock } from '../../../lib/clock.ts';
import type { Category } from '../../../lib/item-types.ts';
import { RETRY_AFTER_SEC } from '../../../limits.ts';
import type { RateDecision } from '../../limit/admission.ts';

/**
 * The header that tells SDKs what to stop sending and for how long. SDKs prefer it to Retry-After.
 * Each limit has the form `seconds:categories:scope`. Without categories it covers all categories.
 * The scope here is a word of the header, such as `project`, not the scope of the glossary.
 */
export const RATE_HINT = 'X-Sentry-Rate-Limits';

/** Joins limits without a blank: for a limit after a blank, sentry-php would always take 60 s. */
export const joinHints = (hints: readonly string[]): string => hints.join(',');

/** Limit for all categories of the project; sent with a 429. */
export const projectHint = (seconds: number): string => `${seconds}::project`;

const LIMITED_NAMES: Readonly<Record<Category, string>> = {
  errors: 'error',
  transactions: 'transaction',
  spans: 'span',
  logs: 'log_item',
  replays: 'replay',
};

/** Limit for one category of the project; items of other categories may go on. */
const categoryHint = (seconds: number, category: Category): string =>
  `${seconds}:${LIMITED_NAMES[category]}:project`;

/** Names of an SDK's categories by item type, as in the public documentation of this header. */
const HINTED_OF_TYPE: Readonly<Record<string, readonly string[]>> = {
  session: ['session'],
  sessions: ['session'],
  client_report: ['internal'],
  check_in: ['monitor'],
  // SDKs of phones call parts of profiles `profile_chunk_ui`.
  profile: ['profile', 'profile_chunk', 'profile_chunk_ui'],
  profile_chunk: ['profile', 'profile_chunk', 'profile_chunk_ui'],
  feedback: ['feedback'],
  user_report: ['default'],
  attachment: ['attachment'],
  statsd: ['metric_bucket'],
  // JavaScript SDKs of version 10 call this category `metric`.
  trace_metric: ['trace_metric', 'metric'],
  // The category covers all replays, but a client that sends replay videos sends no other replays.
  replay_video: ['replay'],
  raw_security: ['security'],
};

const HINT_SEC = 86_400;

const categoriesOf = (type: string): readonly string[] =>
  Object.hasOwn(HINTED_OF_TYPE, type) ? (HINTED_OF_TYPE[type] ?? []) : [];

/**
 * Returns the value of X-Sentry-Rate-Limits for an envelope with items of these types, which are
 * not stored; undefined: no such header.
 */
export type UnsupportedHint = (skipped: Iterable<string>) => string | undefined;

/**
 * Makes an {@link UnsupportedHint} that never silences a stored type: categories to which a stored
 * type belongs are left out. When no category is left there is no hint, because a limit without
 * categories would silence everything.
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
 * Seconds until a window has room. The clock of Redis or of the worker may be wrong, so the result
 * is kept from 1 to RETRY_AFTER_SEC + 1.
 */
function secondsUntil(resetSec: number, now: number): number {
  return Math.min(Math.max(Math.ceil(resetSec - now / 1000), 1), RETRY_AFTER_SEC + 1);
}

/** A category over its limit, and when its window has room again, Unix seconds. */
type Dropped = { resetSec: number; category: Category };

export const categoryHints = (dropped: readonly Dropped[], clock: Pick<Clock, 'now'>): string[] =>
  dropped.map(({ resetSec, category }) => categoryHint(secondsUntil(resetSec, clock.now()), category));

/**
 * The X-RateLimit- headers of an answer, as header lines. A refusal already has
 * X-RateLimit-Remaining from its row in REFUSALS.
 */
export const rateHeaders = {
  of(decision: Exclude<RateDecision, { kind: 'unavailable' }>, clock: Pick<Clock, 'now'>): string {
    const reset = `\r\nX-RateLimit-Reset: ${decision.resetSec}`;
    if (decision.kind === 'admitted') return `\r\nX-RateLimit-Remaining: ${decision.remaining}${reset}`;
    return `${reset}\r\n${RATE_HINT}: ${projectHint(secondsUntil(decision.resetSec, clock.now()))}`;
  },
  /**
   * Headers for a refused envelope whose items are all of these categories. The reset is that of
   * the first category to have room.
   */
  ofCategories(dropped: readonly Dropped[], clock: Pick<Clock, 'now'>): string {
    const reset = Math.min(...dropped.map(({ resetSec }) => resetSec));
    return `\r\nX-RateLimit-Reset: ${reset}\r\n${RATE_HINT}: ${joinHints(categoryHints(dropped, clock))}`;
  },
  /**
   * Headers for a refusal because the limiter did not answer. The reset agrees with Retry-After.
   * @param now Unix ms
   */
  unavailable(now: number): string {
    return `\r\nX-RateLimit-Reset: ${Math.ceil(now / 1000) + RETRY_AFTER_SEC}`;
  },
};

/** Percentage of the quota that is used, rounded down. */
function usagePercent(current: number, quota: number | undefined): number {
  if (quota === undefined) return 0;
  return quota === 0 ? 100 : Math.floor((100 * current) / quota);
}

/**
 * X-Service-Usage, its percentage, and above 75 % the warning, as header lines.
 * @param quota undefined: unlimited
 */
export function quotaHeaders(current: number, quota: number | undefined): string {
  const warns = quota !== undefined && 4 * current > 3 * quota;
  return (
    `\r\nX-Service-Usage: ${current}/${quota ?? 'unlimited'}` +
    `\r\nX-Service-Usage-Percent: ${usagePercent(current, quota)}` +
    (warns ? '\r\nX-Service-Quota-Warning: true' : '')
  );
}
