/** Dead letters that a test files itself, as a processor does. */
import { createLog } from '../../src/lib/log.ts';
import { DeadLetters } from '../../src/processor/dead-letters/dead-letters.ts';
import { deadLetterId } from '../../src/stream/dead-letter-format.ts';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import type { NatsLink } from '../../src/stream/nats.ts';

/** A frame with one event, which a processor stores when it is replayed. */
export function frameOf(projectId: string, eventId: string): Uint8Array {
  const payload = Buffer.from(JSON.stringify({ event_id: eventId, message: 'replayed' }));
  const item = {
    index: 0,
    type: 'event',
    header: Buffer.from('{"type":"event"}'),
    length: payload.length,
    payload,
  } as const;
  return encodeFrame([
    encodeEntry({ kind: 'envelope', projectId, eventId, receivedAt: Date.now(), items: [item] }),
  ]);
}

/** A letter that is a whole frame of the events. @returns its id */
export async function fileLetter(
  link: NatsLink,
  frameId: string,
  {
    reason = 'it is no frame',
    body = `bytes of ${frameId}`,
    projectId,
    eventId,
  }: { reason?: string; body?: string | Uint8Array; projectId?: string; eventId?: string } = {},
): Promise<string> {
  const letters = new DeadLetters({ link, log: createLog('silent') });
  const place = { kind: 'frame', reason, subject: 'sluice.events.0', frameId } as const;
  const facts = {
    ...place,
    ...(projectId !== undefined && { projectId }),
    ...(eventId !== undefined && { eventId }),
  };
  const [report] = await letters.publish([{ ...facts, body: Buffer.from(body) }]);
  if (report?.lost !== undefined) throw new Error(report.lost);
  return deadLetterId(facts);
}
