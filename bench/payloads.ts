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
const MESSAGES = [
  'Cannot read properties of undefined',
  'Network request failed',
  'Unexpected token < in JSON',
];
const AGENT =
  'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36';
/** Stands where the id of the envelope goes; rewritten for every request. */
export const ID_PLACEHOLDER = 'deadbeefdeadbeefdeadbeef00000000';
/** When the application says it happened; only its length matters. */
const TIMESTAMP = 1_790_000_000;

const frame = (random: Random) => ({
  filename: `https://shop.example.com/static/${pick(random, FILES)}.${hex(random, 8)}.js`,
  function: pick(random, FUNCTIONS),
  lineno: integer(random, 1, 4000),
  colno: integer(random, 1, 120),
  in_app: random() < 0.6,
});
const many = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);

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
