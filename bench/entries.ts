import type { EnvelopeEntry } from '../src/stream/frame.ts';
import { eventPayload } from './payloads.ts';
import { hex, type Random } from './random.ts';

/** An event as the worker queues it. */
export function eventEntry(random: Random): EnvelopeEntry {
  const payload = Buffer.from(eventPayload(random));
  return {
    kind: 'envelope',
    projectId: '4711',
    eventId: hex(random, 32),
    receivedAt: 1_790_000_000_000,
    sdk: 'sentry.javascript.browser/10.0.0',
    month: '2026-01',
    position: 1,
    items: [
      { index: 0, type: 'event', header: Buffer.from('{"type":"event"}'), length: payload.length, payload },
    ],
  };
}
