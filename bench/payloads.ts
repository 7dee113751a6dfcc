/** What an application would report: payloads with the sizes and the shape of real ones, and nothing that a filter minds. */
import { gzipSync } from 'node:zlib';
import { hex, integer, pick, type Random } from './random.ts';

const FUNCTIONS = [
  'renderCart',
  'applyDiscount',
  'loadProfile',
  'parseAmount',
  'submitOrder',
  'onClick',
  'next',
];
const FILES = ['cart', 'checkout', 'profile', 'api/client', 'vendor/react-dom', 'router', 'store/reducer'];
export const MESSAGES = [
  'Cannot read properties of undefined',
  'Network request failed',
  'Unexpected token < in JSON',
];
const AGENT =
  'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36';
/** Stands where the id of the envelope goes; rewritten for every request. */
export const ID_PLACEHOLDER = 'deadbeefdeadbeefdeadbeef00000000';
/** When the application says it happened; only its length matters. */
export const TIMESTAMP = 1_790_000_000;

const frame = (random: Random) => ({
  filename: `https://shop.example.com/static/${pick(random, FILES)}.${hex(random, 8)}.js`,
  function: pick(random, FUNCTIONS),
  lineno: integer(random, 1, 4000),
  colno: integer(random, 1, 120),
  in_app: random() < 0.6,
});
export const many = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);

/** An error event of a browser, about 1.9 KB. */
export const eventPayload = (random: Random): string =>
  JSON.stringify({
    event_id: ID_PLACEHOLDER,
    timestamp: TIMESTAMP + random(),
    platform: 'javascript',
    level: 'error',
    environment: 'production',
    release: `shop@${integer(random, 1, 9)}.${integer(random, 0, 40)}.0`,
    exception: {
      values: [
        {
          type: 'TypeError',
          value: `${pick(random, MESSAGES)} (reading '${hex(random, 6)}')`,
          stacktrace: { frames: many(7, () => frame(random)) },
          mechanism: { type: 'onerror', handled: false },
        },
      ],
    },
    breadcrumbs: many(3, () => ({
      timestamp: TIMESTAMP + random(),
      category: 'ui.click',
      message: `div.cart > button#buy-${hex(random, 8)}`,
    })),
    request: { url: `https://shop.example.com/cart/${hex(random, 12)}`, headers: { 'User-Agent': AGENT } },
    user: { id: `${integer(random, 1, 1_000_000)}` },
    tags: { locale: 'en', tier: pick(random, ['free', 'plus']) },
  });

/** A performance transaction with a dozen spans, about 4 KB. */
export function transactionPayload(random: Random): string {
  const trace = hex(random, 32);
  const span = () => ({
    span_id: hex(random, 16),
    parent_span_id: hex(random, 16),
    trace_id: trace,
    op: pick(random, ['db.query', 'http.client', 'cache.get', 'template.render']),
    description: `SELECT * FROM orders WHERE customer = %s AND state = '${hex(random, 10)}'`,
    start_timestamp: TIMESTAMP + random(),
    timestamp: TIMESTAMP + 1 + random(),
    data: { 'db.rows': integer(random, 0, 500), 'server.address': 'db.internal' },
  });
  return JSON.stringify({
    type: 'transaction',
    event_id: ID_PLACEHOLDER,
    transaction: `GET /orders/${hex(random, 4)}`,
    start_timestamp: TIMESTAMP,
    timestamp: TIMESTAMP + 2,
    platform: 'node',
    contexts: { trace: { trace_id: trace, span_id: hex(random, 16), op: 'http.server', status: 'ok' } },
    spans: many(12, span),
  });
}

/** A container of structured logs, about 250 bytes each. */
export const logPayload = (random: Random, count: number): string =>
  JSON.stringify({
    items: many(count, () => ({
      timestamp: TIMESTAMP + random(),
      trace_id: hex(random, 32),
      level: pick(random, ['info', 'warn', 'error']),
      body: `order ${hex(random, 8)} moved to state ${pick(random, ['paid', 'packed', 'sent'])}`,
      severity_number: 9,
      attributes: { 'server.address': { value: `app-${integer(random, 1, 40)}`, type: 'string' } },
    })),
  });

export const replayEventPayload = (random: Random, segment: number): string =>
  JSON.stringify({
    type: 'replay_event',
    replay_id: ID_PLACEHOLDER,
    segment_id: segment,
    replay_type: 'session',
    timestamp: TIMESTAMP + random(),
    urls: [`https://shop.example.com/cart/${hex(random, 12)}`],
  });

/** Longer recordings repeat a block of this length: beyond gzip's window, so they compress no better for it. */
const RECORDING_BLOCK_BYTES = 256 * 1024;

/** Mouse moves and mutations, as the inside of a JSON array of about `bytes`. */
function recordingText(random: Random, bytes: number): string {
  const records: string[] = [];
  for (let length = 0; length < bytes; ) {
    const position = {
      x: integer(random, 0, 1920),
      y: integer(random, 0, 1080),
      id: integer(random, 1, 900),
    };
    const text = JSON.stringify({
      type: 3,
      timestamp: TIMESTAMP * 1000 + integer(random, 0, 5000),
      data: { source: 1, positions: [position], text: hex(random, 24) },
    });
    records.push(text);
    length += text.length + 1;
  }
  return records.join(',');
}

/** `{"segment_id":N}\n` and gzip of JSON of about `rawBytes`, or of the next multiple of a block. */
export function recordingPayload(random: Random, segment: number, rawBytes: number): Buffer {
  const block = recordingText(random, Math.min(rawBytes, RECORDING_BLOCK_BYTES));
  const blocks = Array.from({ length: Math.ceil(rawBytes / RECORDING_BLOCK_BYTES) }, () => block);
  const text = `[${blocks.join(',')}]`;
  return Buffer.concat([Buffer.from(`{"segment_id":${segment}}\n`), gzipSync(text, { level: 1 })]);
}

/** A container of spans as SDKs stream them, about 350 bytes each. */
export function spanPayload(random: Random, count: number): string {
  const trace = hex(random, 32);
  return JSON.stringify({
    items: many(count, () => ({
      trace_id: trace,
      span_id: hex(random, 16),
      parent_span_id: hex(random, 16),
      name: `GET /orders/${hex(random, 4)}`,
      status: 'ok',
      is_segment: false,
      start_timestamp: TIMESTAMP + random(),
      end_timestamp: TIMESTAMP + 1 + random(),
      attributes: { 'server.address': { value: `app-${integer(random, 1, 40)}`, type: 'string' } },
    })),
  });
}

export const sessionPayload = (random: Random): string =>
  JSON.stringify({
    sid: hex(random, 32),
    init: true,
    started: '2026-01-01T00:00:00.000Z',
    timestamp: '2026-01-01T00:00:01.000Z',
    status: pick(random, ['ok', 'exited', 'crashed']),
    errors: integer(random, 0, 2),
    attrs: { release: `shop@${integer(random, 1, 9)}.0.0`, environment: 'production' },
  });

export const checkInPayload = (random: Random): string =>
  JSON.stringify({
    check_in_id: hex(random, 32),
    monitor_slug: `job-${integer(random, 1, 40)}`,
    status: pick(random, ['ok', 'in_progress', 'error']),
    duration: random() * 60,
    environment: 'production',
  });

export const feedbackPayload = (random: Random): string =>
  JSON.stringify({
    event_id: ID_PLACEHOLDER,
    timestamp: TIMESTAMP + random(),
    platform: 'javascript',
    contexts: {
      feedback: { message: `The button ${hex(random, 6)} does nothing.`, contact_email: 'ann@example.com' },
    },
  });

export const clientReportPayload = (random: Random): string =>
  JSON.stringify({
    timestamp: TIMESTAMP + random(),
    discarded_events: [
      { reason: 'sample_rate', category: 'transaction', quantity: integer(random, 1, 40) },
      { reason: 'ratelimit_backoff', category: 'error', quantity: integer(random, 1, 4) },
    ],
  });

/** Bytes as a small file has them. */
export const attachmentPayload = (random: Random): Buffer =>
  Buffer.from(Array.from({ length: integer(random, 512, 8_192) }, () => integer(random, 0, 255)));

const PADDING_BLOCK_CHARS = 4_096;

/** A payload of about `bytes`, by one more member; one that is larger already stays as it is. */
export function padded(random: Random, json: string, bytes: number): string {
  const missing = bytes - json.length;
  if (missing <= 0) return json;
  const block = hex(random, Math.min(missing, PADDING_BLOCK_CHARS));
  const text = block.repeat(Math.ceil(missing / block.length)).slice(0, missing);
  return `${json.slice(0, -1)},"extra":{"padding":"${text}"}}`;
}
