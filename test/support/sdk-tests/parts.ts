/** What the tables of requests of SDKs are made of. */
/** What is stored of an item: its type and its JSON, or its bytes. */
export type StoredItem = readonly [type: string, payload: unknown];

export type SdkRequest = {
  /** What is special about the request. */
  it: string;
  body: string | Uint8Array;
  /** How the key travels; KEY stands for it. Without this, as the SDK of the table sends it. */
  auth?: string;
  headers?: Readonly<Record<string, string>>;
  status: 200 | 400;
  /** The id that is answered; without it any made one, or none on 400. */
  id?: string;
  stored?: readonly StoredItem[];
  /** Items that become dead letters. */
  letters?: number;
  /** The time of sending that is stored. */
  sentAt?: string;
  /** The value of X-Service-Empty. */
  empty?: 'no-items' | 'unstored-types';
};

export const ID = '7d1f3a5c9e2b4c6d8f0a1b3c5d7e9f02';
export const DASHED = '7d1f3a5c-9e2b-4c6d-8f0a-1b3c5d7e9f02';
export const TRACE = '4fd0b6131f19f39af59518d127b0cafe';
export const SPAN = '0102030405060708';
export const AT = 1_790_000_000.5;

export const json = JSON.stringify;
/** Lines of text or JSON with `\n` between them and none at the end. */
export const lines = (...parts: readonly unknown[]): string =>
  parts.map((part) => (typeof part === 'string' ? part : json(part))).join('\n');
export const bytesOf = (text: string): number => Buffer.byteLength(text);
export const bytes = (...parts: readonly (string | Uint8Array | readonly number[])[]): Uint8Array =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))));

/** An item whose header gives the length of its payload, as most SDKs write it. */
export function sized(type: string, payload: unknown, header: object = {}): string {
  const text = typeof payload === 'string' ? payload : json(payload);
  return lines({ type, length: bytesOf(text), ...header }, text);
}

export const OF_ITEMS = {
  log: 'application/vnd.sentry.items.log+json',
  span: 'application/vnd.sentry.items.span.v2+json',
  trace_metric: 'application/vnd.sentry.items.trace-metric+json',
} as const;
export const container = (type: keyof typeof OF_ITEMS, count: number): object => ({
  type,
  item_count: count,
  content_type: OF_ITEMS[type],
});

export const EVENT = { event_id: ID };
export const EVENT_WITH_TIME = { event_id: ID, timestamp: AT };
export const SESSION = { sid: DASHED, init: true, started: '2026-11-28T06:00:00Z', status: 'ok', errors: 0 };
export const REPORT = {
  timestamp: AT,
  discarded_events: [{ reason: 'before_send', category: 'error', quantity: 30 }],
};
export const LOG = { timestamp: AT, level: 'info', body: 'a line', trace_id: TRACE };
export const METRIC = { timestamp: AT, trace_id: TRACE, name: 'jobs', type: 'counter', value: 1 };
export const SPAN_V2 = {
  trace_id: TRACE,
  span_id: SPAN,
  name: 'GET /',
  start_timestamp: AT,
  end_timestamp: AT + 1,
};
export const CHECK_IN = { check_in_id: ID, monitor_slug: 'nightly', status: 'ok', duration: 10 };
export const TEXT = Buffer.from('\ufeffHello\r\n');

/** Both forms of an envelope: without and with the line feed at its end. */
export const withAndWithoutEnd = (one: SdkRequest): SdkRequest[] => [
  { ...one, it: `${one.it}, at the end of the body` },
  { ...one, it: `${one.it}, with a line feed at the end`, body: bytes(one.body, '\n') },
];
export const refused = (it: string, body: string | Uint8Array): SdkRequest => ({ it, body, status: 400 });
