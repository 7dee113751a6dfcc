import { randomUUID } from 'node:crypto';

const STORED = new Set(['event', 'transaction', 'log', 'replay_event', 'replay_recording']);

function lineEnd(body, from) {
  const at = body.indexOf(10, from);
  return at < 0 ? body.length : at;
}

/** @throws when it is none */
export function parseEnvelope(body) {
  let end = lineEnd(body, 0);
  const header = JSON.parse(body.toString('utf8', 0, end));
  const items = [];
  for (let at = end + 1; at < body.length; at = end + 1) {
    end = lineEnd(body, at);
    const item = JSON.parse(body.toString('utf8', at, end));
    at = Math.min(end + 1, body.length);
    end = item.length === undefined ? lineEnd(body, at) : at + item.length;
    if (end > body.length) throw new Error('cut short');
    if (STORED.has(item.type)) items.push({ header: item, payload: body.subarray(at, end) });
  }
  return { eventId: header.event_id ?? randomUUID().replaceAll('-', ''), items };
}
