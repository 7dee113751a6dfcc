import type { Category } from '../../../lib/item-types.ts';

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
export const categoryHint = (seconds: number, category: Category): string =>
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
