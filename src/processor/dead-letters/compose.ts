/** Dead letters out of what a frame held, and out of what the sink refused of it. */

import type { Slices } from '../../lib/slices.ts';
import { containerOf } from '../../sink/containers.ts';
import type { ItemFields, RefusedRow } from '../../sink/sink.ts';
import type { DeadLetter, DeadLetterFacts } from '../../stream/dead-letter-format.ts';
import { decodeFrame, type EnvelopeEntry, encodeEntry } from '../../stream/frame.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { type Assembled, assemble } from '../decode/assemble.ts';
import { EnvelopeDecoder, type WholeItem } from '../decode/decode.ts';
import { encodeRecording } from '../decode/recording.ts';
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

/** An item of a frame with the rows of it that were refused. */
export type RefusedItem = RefusedRow & { elements: number[] };

/**
 * One for each item that is refused, and one for parts of its container: one sink may refuse the
 * whole, and another one a part.
 */
export function refusedItems(rows: readonly RefusedRow[]): RefusedItem[] {
  const items = new Map<string, RefusedItem>();
  for (const row of rows) {
    const place = `${row.frameId}\n${row.entry}\n${row.item}\n${row.element === undefined}`;
    const item = items.get(place) ?? { ...row, elements: [] };
    items.set(place, item);
    if (row.element !== undefined && !item.elements.includes(row.element)) item.elements.push(row.element);
  }
  return [...items.values()];
}

/**
 * The dead letter of an item that the sink refused, or of a container what it refused of it: the
 * rest is stored. It has what the record had, without what the project wants to have removed. The
 * frame is still in hand, and its parts are still in the chunks stream.
 * @param deliveries that the batch was written from
 * @throws UnavailableError when the parts of a large entry cannot be read
 */
export async function refusedDeadLetter(
  link: NatsLink,
  deliveries: readonly Delivery[],
  { refused, slices }: { refused: RefusedItem; slices: Slices },
): Promise<DeadLetter> {
  const delivery = deliveries.find(({ frameId }) => frameId === refused.frameId);
  const slot = delivery && decodeFrame(delivery.data)[refused.entry];
  if (!delivery || !slot?.ok) throw new RangeError('a refused row belongs to a frame of its batch');
  const place = { delivery, index: refused.entry };
  const reason = `the sink refuses it: ${refused.reason}`;
  if (slot.entry.kind === 'envelope')
    return ofEnvelope(link, place, { entry: slot.entry, bytes: slot.bytes, refused, slices, reason });
  const { receivedAt } = slot.entry;
  return { ...entryFacts(place, reason), type: 'heartbeat', receivedAt, body: slot.bytes };
}

type Refusal = {
  entry: EnvelopeEntry;
  bytes: Uint8Array;
  refused: RefusedItem;
  slices: Slices;
  reason: string;
};

async function ofEnvelope(link: NatsLink, place: Place, refusal: Refusal): Promise<DeadLetter> {
  const { entry, bytes, refused, slices, reason } = refusal;
  const assembled = await assemble(link, entry);
  const item = assembled.ok ? assembled.items.find(({ index }) => index === refused.item) : undefined;
  if (!item) return envelopeDeadLetter(place, { entry, bytes, assembled, reason });
  const whole = await cleanPayload(item, entry, slices);
  const { elements } = refused;
  const payload = elements.length === 0 ? whole : containerOf(whole, elements);
  const letter = itemDeadLetter(place, withoutAddress(entry), {
    item: { ...item, payload, length: payload.length },
    reason,
  });
  return elements.length === 0 ? letter : { ...letter, elements: elements.join() };
}

/** As its record had it. */
async function cleanPayload(item: WholeItem, entry: EnvelopeEntry, slices: Slices): Promise<Uint8Array> {
  if (!entry.privacy) return item.payload;
  const decoded = await new EnvelopeDecoder(entry, { slices }).decode(item);
  if (!decoded.ok || (decoded.record.fields as ItemFields).isBase64) return item.payload;
  const { json } = decoded.record;
  return item.type === 'replay_recording' ? encodeRecording(json) : json;
}

/** It has been filled in where the project wants it. */
function withoutAddress(entry: EnvelopeEntry): EnvelopeEntry {
  if (!entry.privacy) return entry;
  const { scrub, names } = entry.privacy;
  return { ...entry, privacy: { scrub, names } };
}
