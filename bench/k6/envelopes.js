/**
 * Envelopes for k6 (1.8 or later), for those who have their load tests there:
 *
 *   k6 run -e DSN=http://KEY@HOST:PORT/ID -e STAGES=30s:1000,2m:5000 bench/k6/envelopes.js
 *
 *   DSN       a project, as `sluice project create` prints it
 *   RATE      requests a second (100), DURATION (10s); or STAGES, linear ramps as in `sluice load --stages`
 *   MAX_P99   ms (500), MAX_FAILURES a share (0.001): thresholds; k6 ends with status 99 when one is missed
 *
 * The executor is an arrival rate, so requests are sent at intended moments. But k6 counts latency from the moment of sending: what
 * a busy pool of its users delayed shows as `dropped_iterations`, not as latency. `sluice load` counts it.
 */
import { check } from 'k6';
import crypto from 'k6/crypto';
import http from 'k6/http';
import { Counter } from 'k6/metrics';

const [, scheme, key, host, prefix, project] =
  /^(https?):\/\/([^@/]+)@([^/]+)((?:\/[^/]+)*)\/([^/]+)$/.exec(__ENV.DSN || '') || [];
if (!project) throw new Error('DSN: -e DSN=http://KEY@HOST:PORT/ID');

const url = `${scheme}://${host}${prefix}/api/${project}/envelope/?sentry_version=7&sentry_client=k6%2F1&sentry_key=${key}`;
const accepted = new Counter('accepted');
const limited = new Counter('limited');

function stages() {
  if (!__ENV.STAGES) return [];
  return __ENV.STAGES.split(',').map((part) => {
    const [duration, target] = part.split(':');
    return { duration, target: Number(target) };
  });
}

const rate = Number(__ENV.RATE || 100);
const users = { preAllocatedVUs: Number(__ENV.USERS || 64), maxVUs: Number(__ENV.USERS_MAX || 512) };

export const options = {
  scenarios: {
    envelopes: __ENV.STAGES
      ? { executor: 'ramping-arrival-rate', startRate: 0, timeUnit: '1s', stages: stages(), ...users }
      : {
          executor: 'constant-arrival-rate',
          rate,
          timeUnit: '1s',
          duration: __ENV.DURATION || '10s',
          ...users,
        },
  },
  thresholds: {
    // Refusals are quick: they may not improve the latency.
    'http_req_duration{expected_response:true}': [`p(99)<${__ENV.MAX_P99 || 500}`],
    http_req_failed: [`rate<=${__ENV.MAX_FAILURES || 0.001}`],
  },
};

const hex = (bytes) =>
  Array.from(new Uint8Array(crypto.randomBytes(bytes)), (byte) => byte.toString(16).padStart(2, '0')).join(
    '',
  );

const line = (value) => JSON.stringify(value);

/** 60 % errors, 30 % transactions, 10 % logs, much smaller than those of `sluice load`. */
function envelope() {
  const id = hex(16);
  const now = Date.now() / 1000;
  const draw = Math.random();
  let item;
  let payload;
  if (draw < 0.6) {
    item = { type: 'event' };
    const frames = [
      { filename: 'https://shop.example.com/static/cart.js', function: 'renderCart', lineno: 12 },
    ];
    const value = `Cannot read properties of undefined (reading '${hex(3)}')`;
    const exception = { values: [{ type: 'TypeError', value, stacktrace: { frames } }] };
    payload = { event_id: id, timestamp: now, platform: 'javascript', level: 'error', exception };
  } else if (draw < 0.9) {
    item = { type: 'transaction' };
    const trace = { trace_id: hex(16), span_id: hex(8), op: 'http.server', status: 'ok' };
    payload = {
      type: 'transaction',
      event_id: id,
      transaction: `GET /orders/${hex(2)}`,
      start_timestamp: now - 1,
      timestamp: now,
      platform: 'node',
      contexts: { trace },
      spans: [],
    };
  } else {
    item = { type: 'log', item_count: 1, content_type: 'application/vnd.sentry.items.log+json' };
    payload = { items: [{ timestamp: now, trace_id: hex(16), level: 'info', body: `order ${hex(4)} paid` }] };
  }
  return `${line({ event_id: id, sent_at: new Date().toISOString() })}\n${line(item)}\n${line(payload)}`;
}

export default function () {
  const answer = http.post(url, envelope(), { headers: { 'Content-Type': 'text/plain;charset=UTF-8' } });
  if (answer.status === 200) accepted.add(1);
  if (answer.status === 429) limited.add(1);
  check(answer, { 'status is 200': ({ status }) => status === 200 });
}
