/**
 * How SDKs read an answer about limits, as the tests of their own repositories ask for it
 * (docs/sdk-tests.md names the commits). For JavaScript it is the SDK's own code.
 */
import { envelopeItemTypeToDataCategory, updateRateLimits } from '@sentry/core';

/** What an SDK looks at; `hint` is the header X-Sentry-Rate-Limits. */
export type LimitAnswer = { status: number; hint?: string; retryAfter?: string; body?: string };

/** Seconds of silence by category. The category `all` covers every category. */
export type Silence = Record<string, number>;

type Sdk = {
  read(answer: LimitAnswer): Silence;
  /** The categories that this SDK looks up before it sends an item of this type; none: it always sends. */
  categoriesOf(type: string): readonly string[];
};

// ---- The header X-Sentry-Rate-Limits ----

type Rules = {
  /** What is left of a group without blanks that the SDK ignores. */
  clean(group: string): string;
  /** undefined: the group is ignored. */
  seconds(text: string): number | undefined;
  /** A group with fewer fields is ignored. */
  fieldsMin: number;
  /** An empty category means all, also beside others; otherwise only an empty list does. */
  emptyIsAll: boolean;
  /** Other categories are ignored. undefined: none is. */
  known?: readonly string[];
  /** Which of two limits for one category counts. */
  kept: 'last' | 'longest';
  /** The statuses whose Retry-After counts when the header is missing. A 429 without one means 60. */
  retryAfter: 'of a 429' | 'of a 200 or 429' | 'of any';
  /** A 429 with a body is an error like any other, and its headers are not read. */
  needsEmptyBody?: true;
};

const trim = (text: string): string => text.trim();
const signed = (text: string): number | undefined =>
  /^\s*[+-]?\d+\s*$/.test(text) ? Number(text) : undefined;
const decimal = (text: string): number | undefined =>
  /^[+-]?\d+(\.\d*)?$/.test(text) ? Math.max(Math.ceil(Number(text)), 0) : undefined;

/** Java reads a decimal number, and takes 60 for anything else. */
const orMinute = (text: string): number => (/^\d+(\.\d*)?$/.test(text) ? Number(text) : 60);

const RULES = {
  python: {
    clean: trim,
    seconds: signed,
    fieldsMin: 2,
    emptyIsAll: false,
    kept: 'last',
    retryAfter: 'of a 429',
  },
  go: {
    clean: trim,
    seconds: (text) => decimal(text.trim()),
    fieldsMin: 1,
    emptyIsAll: true,
    known: ['error', 'transaction', 'log_item', 'monitor', 'trace_metric'],
    kept: 'longest',
    retryAfter: 'of a 429',
  },
  java: {
    clean: (group) => group.replaceAll(' ', ''),
    seconds: orMinute,
    fieldsMin: 2,
    emptyIsAll: false,
    known: [
      ...['default', 'error', 'feedback', 'session', 'attachment', 'monitor', 'transaction', 'replay'],
      ...['span', 'security', 'profile', 'profile_chunk', 'profile_chunk_ui', 'log_item', 'log_byte'],
      ...['trace_metric', 'trace_metric_byte', 'user_report'],
    ],
    kept: 'longest',
    retryAfter: 'of a 429',
  },
  rust: {
    clean: trim,
    seconds: decimal,
    fieldsMin: 3,
    emptyIsAll: false,
    known: ['error', 'session', 'transaction', 'attachment', 'log_item', 'trace_metric'],
    kept: 'last',
    retryAfter: 'of any',
  },
  ruby: {
    // Ruby's `split` drops empty fields at the end.
    clean: (group) => group.trim().replace(/:+$/, ''),
    seconds: (text) => Number.parseInt(text, 10) || 0,
    fieldsMin: 2,
    emptyIsAll: false,
    kept: 'last',
    retryAfter: 'of a 200 or 429',
  },
  php: {
    clean: (group) => group,
    seconds: (text) => (/^\d+$/.test(text) ? Number(text) : 60),
    fieldsMin: 2,
    emptyIsAll: true,
    kept: 'last',
    retryAfter: 'of any',
    needsEmptyBody: true,
  },
  dotnet: {
    clean: (group) => group,
    seconds: signed,
    fieldsMin: 2,
    emptyIsAll: true,
    kept: 'longest',
    retryAfter: 'of a 429',
  },
  native: {
    clean: trim,
    seconds: (text) => (/^\d+$/.test(text) ? Math.min(Number(text), 86_400) : undefined),
    fieldsMin: 2,
    emptyIsAll: false,
    known: ['error', 'session', 'transaction', 'replay'],
    kept: 'last',
    retryAfter: 'of any',
  },
  cocoa: {
    clean: (group) => group.replace(/\s/g, ''),
    seconds: (text) => (/^\d+$/.test(text) && Number(text) > 0 ? Number(text) : undefined),
    fieldsMin: 2,
    emptyIsAll: true,
    known: [
      ...['default', 'error', 'session', 'transaction', 'attachment', 'profile', 'profile_chunk_ui'],
      ...['metric_bucket', 'replay', 'feedback', 'span', 'log_item', 'log_byte', 'trace_metric'],
      'trace_metric_byte',
    ],
    kept: 'longest',
    retryAfter: 'of a 429',
  },
} as const satisfies Record<string, Rules>;

function readBy(rules: Rules, { status, hint, retryAfter, body = '' }: LimitAnswer): Silence {
  const silence: Silence = {};
  if (rules.needsEmptyBody && status >= 400 && body !== '') return silence;
  if (!hint) {
    const counts = { 'of a 429': false, 'of a 200 or 429': status === 200, 'of any': true };
    if (status === 429 || (retryAfter !== undefined && counts[rules.retryAfter]))
      silence.all = Number.parseInt(retryAfter ?? '', 10) || 60;
    return silence;
  }
  for (const group of hint.split(',')) {
    const fields = rules.clean(group).split(':');
    const seconds = rules.seconds(fields[0] ?? '');
    if (seconds === undefined || fields.length < rules.fieldsMin) continue;
    const list = fields[1] ?? '';
    for (const name of list.split(';')) {
      const category = name === '' && (rules.emptyIsAll || list === '') ? 'all' : name;
      if (rules.known && category !== 'all' && !rules.known.includes(category)) continue;
      silence[category] = rules.kept === 'last' ? seconds : Math.max(seconds, silence[category] ?? 0);
    }
  }
  return silence;
}

/** The SDK's own code: milliseconds since 0, by category. */
function readByJavaScript({ status, hint, retryAfter }: LimitAnswer): Silence {
  const headers = { 'x-sentry-rate-limits': hint ?? null, 'retry-after': retryAfter ?? null };
  const limits = updateRateLimits({}, { statusCode: status, headers }, 0);
  return Object.fromEntries(Object.entries(limits).map(([name, ms]) => [name, ms / 1000]));
}

// ---- Categories of items ----

type Categories = { of: Readonly<Record<string, string | readonly string[]>>; others: readonly string[] };

const CATEGORIES: Readonly<Record<keyof typeof RULES, Categories>> = {
  python: {
    of: {
      ...{ session: 'session', sessions: 'session', attachment: 'attachment', transaction: 'transaction' },
      ...{ span: 'span', event: 'error', log: 'log_item', trace_metric: 'trace_metric' },
      ...{ client_report: 'internal', profile: 'profile', profile_chunk: 'profile_chunk' },
      check_in: 'monitor',
    },
    others: ['default'],
  },
  go: {
    of: {
      ...{ event: 'error', transaction: 'transaction', log: 'log_item', check_in: 'monitor' },
      trace_metric: 'trace_metric',
    },
    others: ['unknown'],
  },
  java: {
    of: {
      ...{ event: 'error', session: 'session', attachment: 'attachment', profile: 'profile' },
      profile_chunk: ['profile_chunk_ui', 'profile_chunk'],
      ...{ transaction: 'transaction', check_in: 'monitor', replay_video: 'replay', feedback: 'feedback' },
      log: ['log_item', 'log_byte'],
      span: 'span',
      trace_metric: ['trace_metric', 'trace_metric_byte'],
    },
    others: ['unknown'],
  },
  rust: {
    of: {
      ...{ event: 'error', session: 'session', sessions: 'session', transaction: 'transaction' },
      ...{ attachment: 'attachment', log: 'log_item', trace_metric: 'trace_metric' },
    },
    others: ['all'],
  },
  ruby: {
    of: {
      ...{ session: 'session', sessions: 'session', attachment: 'attachment', transaction: 'transaction' },
      ...{ profile: 'profile', span: 'span', trace_metric: 'trace_metric', log: 'log_item' },
      ...{ check_in: 'monitor', event: 'error', client_report: 'internal' },
    },
    others: ['default'],
  },
  php: {
    of: {
      ...{ event: 'error', log: 'log_item', check_in: 'monitor', transaction: 'transaction' },
      ...{ profile: 'profile', trace_metric: 'trace_metric' },
      client_report: [],
    },
    others: ['unknown'],
  },
  dotnet: {
    of: {
      ...{ event: 'error', feedback: 'feedback', transaction: 'transaction', span: 'span' },
      ...{ session: 'session', attachment: 'attachment', profile: 'profile', log: 'log_item' },
      ...{ trace_metric: 'trace_metric', check_in: 'monitor', statsd: 'metric_bucket' },
      client_report: 'internal',
    },
    others: ['default'],
  },
  native: {
    of: {
      ...{ session: 'session', transaction: 'transaction', replay_video: 'replay' },
      client_report: [],
    },
    others: ['error'],
  },
  cocoa: {
    of: {
      ...{ event: 'error', session: 'session', transaction: 'transaction', attachment: 'attachment' },
      ...{ profile: 'profile', profile_chunk: 'profile_chunk_ui', statsd: 'metric_bucket' },
      ...{ replay_video: 'replay', feedback: 'feedback', log: 'log_item', trace_metric: 'trace_metric' },
    },
    others: ['default'],
  },
};

export type SdkName = 'javascript' | keyof typeof RULES;
const byRules = (name: keyof typeof RULES): Sdk => ({
  read: (answer) => readBy(RULES[name], answer),
  categoriesOf: (type) => [CATEGORIES[name].of[type] ?? CATEGORIES[name].others].flat(),
});
export const SDKS: Readonly<Record<SdkName, Sdk>> = {
  javascript: {
    read: readByJavaScript,
    categoriesOf: (type) => [envelopeItemTypeToDataCategory(type as 'event')],
  },
  python: byRules('python'),
  go: byRules('go'),
  java: byRules('java'),
  rust: byRules('rust'),
  ruby: byRules('ruby'),
  php: byRules('php'),
  dotnet: byRules('dotnet'),
  native: byRules('native'),
  cocoa: byRules('cocoa'),
};
export const SDK_NAMES = Object.keys(SDKS) as SdkName[];

/** For how many seconds this SDK then sends no item of this type. */
export function silentFor(name: SdkName, type: string, answer: LimitAnswer): number {
  const categories = SDKS[name].categoriesOf(type);
  const silence = SDKS[name].read(answer);
  if (categories.length === 0) return 0;
  return Math.max(silence.all ?? 0, ...categories.map((category) => silence[category] ?? 0));
}
