import { containerOf } from '../../sink/containers.ts';
import type { RefusedRow } from '../../sink/sink.ts';
import type { DeadLetter } from '../../stream/dead-letter-format.ts';
import { decodeFrame, type EnvelopeEntry } from '../../stream/frame.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { assemble } from '../decode/assemble.ts';
import type { Delivery } from '../delivery.ts';
import { entryFacts, envelopeDeadLetter, itemDeadLetter, type Place } from './compose.ts';

/** An item of a frame with the rows of it that were refused. */
export type RefusedItem = RefusedRow & { parts: number[] };

/** A dead letter is known by its item: what is refused of a container is one. */
export function refusedItems(rows: readonly RefusedRow[]): RefusedItem[] {
  const items = new Map<string, RefusedItem>();
  for (const row of rows) {
    const place = `${row.frameId}\n${row.entry}\n${row.item}`;
    const item = items.get(place) ?? { ...row, parts: [] };
    items.set(place, item);
    if (row.part !== undefined && !item.parts.includes(row.part)) item.parts.push(row.part);
  }
  return [...items.values()];
}

/**
 * The dead letter of an item that the sink refused, or of a container what it refused of it: the
 * rest is stored. The frame is still in hand, and so are its parts.
 * @param deliveries that the batch was written from
 * @throws UnavailableError when the parts of a large entry cannot be read
 */
export async function refusedDeadLetter(
  link: NatsLink,
  deliveries: readonly Delivery[],
  refused: RefusedItem,
): Promise<DeadLetter> {
  const delivery = deliveries.find(({ frameId }) => frameId === refused.frameId);
  const slot = delivery && decodeFrame(delivery.data)[refused.entry];
  if (!delivery || !slot?.ok) throw new RangeError('a refused row belongs to a frame of its batch');
  const place = { delivery, index: refused.entry };
  const reason = `the sink refuses it: ${refused.reason}`;
  if (slot.entry.kind === 'envelope')
    return ofEnvelope(link, place, { entry: slot.entry, bytes: slot.bytes, refused, reason });
  const { receivedAt } = slot.entry;
  return { ...entryFacts(place, reason), type: 'heartbeat', receivedAt, body: slot.bytes };
}

type Refusal = { entry: EnvelopeEntry; bytes: Uint8Array; refused: RefusedItem; reason: string };

async function ofEnvelope(link: NatsLink, place: Place, refusal: Refusal): Promise<DeadLetter> {
  const { entry, bytes, refused, reason } = refusal;
  const assembled = await assemble(link, entry);
  const item = assembled.ok ? assembled.items.find(({ index }) => index === refused.item) : undefined;
  if (!item) return envelopeDeadLetter(place, { entry, bytes, assembled, reason });
  const payload = refused.parts.length === 0 ? item.payload : containerOf(item.payload, refused.parts);
  return itemDeadLetter(place, { entry, item: { ...item, payload, length: payload.length }, reason });
}
