/** Dead letters out of what a frame held: pure. */

import type { DeadLetter, DeadLetterFacts } from '../../stream/dead-letter-format.ts';
import { type EnvelopeEntry, encodeEntry } from '../../stream/frame.ts';
import type { Assembled } from '../decode/assemble.ts';
import type { WholeItem } from '../decode/decode.ts';
import type { Delivery } from '../delivery.ts';

/** One entry's place: what the sink knows it by. */
export type Place = { delivery: Delivery; index: number };

/** A whole frame that no code could read, or was to read. */
export const frameDeadLetter = ({ subject, frameId, data }: Delivery, reason: string): DeadLetter => ({
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

type WholeEntry = {
  entry: EnvelopeEntry;
  bytes: Uint8Array;
  assembled: Assembled;
  reason?: string | undefined;
};

/**
 * An envelope that cannot be stored at all, with its payloads: parts of a large one are removed
 * when its frame is acknowledged. When the parts cannot be joined, the dead letter has their rest.
 */
export function envelopeDeadLetter(
  place: Place,
  { entry, bytes, assembled, reason }: WholeEntry,
): DeadLetter {
  const reasons = [reason, assembled.ok ? undefined : assembled.reason];
  const why = reasons.filter((one) => one !== undefined).join('; ');
  const facts = { ...entryFacts(place, why), ...envelopeFacts(entry) };
  if (!assembled.ok) return { ...facts, body: bytes, rest: assembled.rest };
  const { parts, ...inline } = entry;
  return { ...facts, body: parts ? encodeEntry({ ...inline, items: assembled.items }) : bytes };
}

export type BadItem = { item: WholeItem; reason: string };

/** An entry with these items that can be published again: it does not count the envelope twice. */
function uncounted(entry: EnvelopeEntry, items: readonly WholeItem[]): Uint8Array {
  const { month: _month, position: _position, parts: _parts, ...shared } = entry;
  return encodeEntry({ ...shared, items: [...items] });
}

/** An item alone. The envelope's usage is counted with its other items. */
export function itemDeadLetter(place: Place, entry: EnvelopeEntry, { item, reason }: BadItem): DeadLetter {
  const facts = { ...entryFacts(place, reason), ...envelopeFacts(entry) };
  const body = uncounted(entry, [item]);
  return { ...facts, kind: 'item', itemIndex: item.index, type: item.type, body };
}

/** Several items of an envelope together. */
export function itemsDeadLetter(place: Place, entry: EnvelopeEntry, items: readonly BadItem[]): DeadLetter {
  const [first] = items as [BadItem];
  const reason = `several items cannot be stored; the first: ${first.reason}`;
  const facts = { ...entryFacts(place, reason), ...envelopeFacts(entry) };
  return {
    ...facts,
    type: first.item.type,
    body: uncounted(
      entry,
      items.map(({ item }) => item),
    ),
  };
}
