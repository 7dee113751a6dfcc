/** The queries of docs/clickhouse.md, on items that clients sent. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { envelope, Harness, hexId, item, type RunningProcessor } from '../../../processor/harness.ts';
import { TestClickHouse } from '../../../support/sinks/clickhouse.ts';
import { QUERIES } from '../under-test.ts';

const TRACE = 'c'.repeat(32);
const AT = Date.UTC(2026, 0, 2, 3) / 1000;

let server: TestClickHouse;
let harness: Harness;
let processor: RunningProcessor;
let n = 0;
const json = JSON.stringify;

const error = (release: string, type: string, value: string, user: string) =>
  item(
    'event',
    json({
      timestamp: AT + 60 * n++,
      level: 'error',
      release,
      user: { id: user },
      contexts: { trace: { trace_id: TRACE } },
      exception: { values: [{ type, value }] },
    }),
  );
const transaction = (name: string, ms: number) =>
  item(
    'transaction',
    json({
      transaction: name,
      start_timestamp: AT,
      timestamp: AT + ms / 1000,
      contexts: { trace: { trace_id: TRACE, op: 'http.server' } },
    }),
  );
const attribute = (value: string) => ({ type: 'string', value });

beforeAll(async () => {
  [server, harness] = await Promise.all([TestClickHouse.start(), Harness.start()]);
  processor = await harness.run({ SLUICE_SINK: server.url() });
  const send = (...items: ReturnType<typeof item>[]) => envelope(items, { eventId: hexId(++n) });
  await harness.publish([
    send(error('shop@1.1.0', 'TypeError', 'old', 'u1')),
    send(error('shop@1.2.0', 'TypeError', 'old', 'u1')),
    send(error('shop@1.2.0', 'TypeError', 'old', 'u2')),
    send(error('shop@1.2.0', 'RangeError', 'new', 'u3')),
    ...[10, 20, 30, 1000].map((ms) => send(transaction('GET /checkout', ms))),
    send(transaction('GET /cart', 5)),
  ]);
  const spans = [
    { op: 'db', ms: 30 },
    { op: 'db', ms: 12 },
    { op: 'http', ms: 7 },
  ].map(({ op, ms }, at) => ({
    trace_id: TRACE,
    span_id: hexId(at).slice(16),
    start_timestamp: AT,
    end_timestamp: AT + ms / 1000,
    attributes: { 'sentry.op': attribute(op) },
  }));
  const logs = ['a timeout', 'fine', 'Timeout again'].map((body, at) => ({
    timestamp: AT + 1 + at,
    trace_id: TRACE,
    level: body === 'fine' ? 'info' : 'warn',
    body,
    attributes: { 'server.address': attribute('app-1') },
  }));
  await harness.publish([send(item('span', json({ items: spans })))], { stream: 'transactions' });
  await harness.publish([send(item('log', json({ items: logs })))], { stream: 'logs' });
  const replay = (segment: number) =>
    send(
      item('replay_event', json({ replay_id: 'r1', segment_id: segment, timestamp: AT, user: { id: 'u1' } })),
    );
  await harness.publish([replay(0), replay(1)], { stream: 'replays' });
  const now = Date.now();
  await harness.publish(
    [
      { kind: 'heartbeat', token: 'late', receivedAt: now - 600_000 },
      { kind: 'heartbeat', token: 'alive', receivedAt: now },
    ],
    { stream: 'heartbeats' },
  );
  await harness.drained();
});
afterAll(async () => {
  await processor?.stop();
  await harness?.close();
  await server?.close();
});

/** What each query finds, by its title: of each row some columns. */
const EXPECTED: Record<string, object[]> = {
  'Top errors of a release': [
    { exception_type: 'TypeError', exception_value: 'old', times: 2, users: 2 },
    { exception_type: 'RangeError', times: 1 },
  ],
  'Errors by hour, and how many users saw one': [{ hour: '2026-01-02 03:00:00', errors: 4, users: 3 }],
  'Errors that are new in a release': [{ exception_type: 'RangeError', times: 1 }],
  'p50 and p95 of a transaction by hour': [{ hour: '2026-01-02 03:00:00', times: 4, p50: 25, p95: 854.5 }],
  'The slowest transactions, by the time that they take together': [
    { name: 'GET /checkout', times: 4, total_ms: 1060 },
    { name: 'GET /cart', total_ms: 5 },
  ],
  'Where the time of a trace goes, by spans': [
    { op: 'db', spans: 2, total_ms: 42, longest_ms: 30 },
    { op: 'http', spans: 1 },
  ],
  'Logs of a trace, beside its errors': [
    { what: 'event', text: 'old' },
    { what: 'log', text: 'a timeout' },
    { what: 'log', text: 'fine' },
    { what: 'log', text: 'Timeout again' },
    ...['old', 'old', 'new'].map((text) => ({ what: 'event', text })),
  ],
  'Logs that hold a word, by an attribute': [{ server: 'app-1', times: 2 }],
  'The latest replay of a user, and how many events that user has had in all': [
    { replay_id: 'r1', segments: 2, errors: 2 },
  ],
  'Heartbeats that are late: no ping for five minutes': [{ token: 'late' }],
};

it('are ten', () => {
  expect(QUERIES.map(({ title }) => title)).toEqual(Object.keys(EXPECTED));
  expect(QUERIES).toHaveLength(10);
});

it.each(QUERIES)('$title', async ({ title, sql }) => {
  const rows = await server.query(sql);
  expect(rows).toMatchObject(EXPECTED[title] ?? []);
  expect(rows).toHaveLength(EXPECTED[title]?.length ?? 0);
});
