/** Dead letters out of what a frame held: pure. */
import { type EnvelopeEntry, encodeEntry } from '../stream/frame.ts';
import type { DeadLetter, DeadLetterFacts } from './dead-letter.ts';
import type { WholeItem } from './decode.ts';
import type { Delivery } from './delivery.ts';

/** One entry's place: what the sink knows it by. */
export type Place = { delivery: Delivery; index: number };

/** A whole frame, which nobody looked into or could. */
export const frameLetter = ({ subject, frameId, data }: Delivery, reason: string): DeadLetter => ({
  kind: 'frame',
  reason,
  subject,
  frameId,
  body: data,
});

export const entryFacts = ({ delivery, index }: Place, reason: string): DeadLetterFacts => ({
  kind: 'entry',
  reason,
  subject: delivery.subject,
  frameId: delivery.frameId,
  entryIndex: index,
});

export const envelopeFacts = ({ projectId, eventId, receivedAt, items }: EnvelopeEntry) => ({
  projectId,
  eventId,
  receivedAt,
  ...(items[0] && { type: items[0].type }),
});

/**
 * An item alone, as an entry that can be published again. What the envelope counted is counted with its other items.
 */
export function itemLetter(
  place: Place,
  { entry, item, reason }: { entry: EnvelopeEntry; item: WholeItem; reason: string },
): DeadLetter {
  const { month: _month, position: _position, parts: _parts, ...shared } = entry;
  const facts = { ...entryFacts(place, reason), ...envelopeFacts(entry) };
  const body = encodeEntry({ ...shared, items: [item] });
  return { ...facts, kind: 'item', itemIndex: item.index, type: item.type, body };
}
