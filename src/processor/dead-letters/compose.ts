/** Composes dead letters of frames, entries and items. */

import type { Slices } from '../../lib/slices.ts';
import { containerOf } from '../../sink/containers.ts';
import type { ItemFields, RefusedRow } from '../../sink/sink.ts';
import type { DeadLetter, DeadLetterFacts } from '../../stream/dead-letter-format.ts';
import { decodeFrame, type EnvelopeEntry, encodeEntry, type FrameSlot } from '../../stream/frame.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { type Assembled, assemble } from '../decode/assemble.ts';
import { EnvelopeDecoder, type WholeItem } from '../decode/decode.ts';
import { partsOf } from '../decode/otlp/request.ts';
import { encodeRecording } from '../decode/recording.ts';
import type { Delivery } from '../delivery.ts';

/** Place of an entry in its frame. The sink knows entries by the frame's id and this index. */
export type Place = { delivery: Delivery; index: number };

/** Dead letter of a whole frame that could not be read, or that is set aside unread. */
export const frameDeadLetter = (
  { subject, frameId, data, replay }: Delivery,
  reason: string,
): DeadLetter => ({
  ...replay,
  kind: 'frame',
  reason,
  subject,
  frameId,
  body: data,
});

export const entryFacts = ({ delivery, index }: Place, reason: string): DeadLetterFacts => ({
  ...delivery.replay,
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
 * Dead letter of an envelope that cannot be stored at all. It contains the payloads of a large
 * entry, because their parts are removed when the frame is acknowledged. When the parts cannot be
 * joined, those that were found are the letter's `rest`.
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

/**
 * Encodes an entry with only these items, for a later replay. The new entry has no month and no
 * position, so that the envelope is not counted twice.
 */
function uncounted(entry: EnvelopeEntry, items: readonly WholeItem[]): Uint8Array {
  const { month: _month, position: _position, parts: _parts, ...shared } = entry;
  return encodeEntry({ ...shared, items: [...items] });
}

/**
 * Dead letter of one item. It counts no usage: the envelope's usage is counted with its other
 * items.
 */
export function itemDeadLetter(place: Place, entry: EnvelopeEntry, { item, reason }: BadItem): DeadLetter {
  const facts = { ...entryFacts(place, reason), ...envelopeFacts(entry) };
  const body = uncounted(entry, [item]);
  return { ...facts, kind: 'item', itemIndex: item.index, type: item.type, body };
}

/** Dead letter of several items of an envelope. */
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

/**
 * An item of which the sink refused rows. `elements`: positions of the refused elements, if it is a
 * container.
 */
export type RefusedItem = RefusedRow & { elements: number[] };

/**
 * Groups refused rows by item, so that each item gets one dead letter even when several sinks
 * refuse parts of its container.
 */
export function refusedItems(rows: readonly RefusedRow[]): RefusedItem[] {
  const items = new Map<string, RefusedItem>();
  for (const row of rows) {
    const place = `${row.frameId}\n${row.entry}\n${row.item}`;
    const item = items.get(place) ?? { ...row, elements: [] };
    items.set(place, item);
    if (row.element !== undefined && !item.elements.includes(row.element)) item.elements.push(row.element);
  }
  return [...items.values()];
}

type OpenFrame = { delivery: Delivery; slots: FrameSlot[] };
type OpenEntry = { place: Place; entry: EnvelopeEntry; bytes: Uint8Array; assembled: Assembled };

/**
 * Makes the dead letters for the rows that the sink refused in a batch; the batch's other rows are
 * stored. Each letter contains the record's data, scrubbed as the project wants. The frames are not
 * acknowledged yet, so their parts are still in the chunks stream.
 *
 * An entry may have a thousand items. So a frame is read once for all its refused items, and its
 * parts are joined once.
 */
export class RefusedLetters {
  readonly #link: NatsLink;
  readonly #slices: Slices;
  readonly #deliveries: ReadonlyMap<string, Delivery>;
  #frame: OpenFrame | undefined;
  #entry: OpenEntry | undefined;

  constructor(deliveries: readonly Delivery[], { link, slices }: { link: NatsLink; slices: Slices }) {
    this.#link = link;
    this.#slices = slices;
    this.#deliveries = new Map(deliveries.map((delivery) => [delivery.frameId, delivery]));
  }

  /**
   * Makes the dead letter of a refused heartbeat or item, or of the refused elements of a
   * container.
   * @throws UnavailableError when the parts of a large entry cannot be read
   */
  async letterOf(refused: RefusedItem): Promise<{ letter: DeadLetter; delivery: Delivery }> {
    const { delivery, slots } = this.#frameOf(refused);
    const slot = slots[refused.entry];
    if (!slot?.ok) throw new RangeError('a refused row belongs to an entry of its frame');
    const place = { delivery, index: refused.entry };
    const reason = `the sink refuses it: ${refused.reason}`;
    if (slot.entry.kind === 'heartbeat') {
      const { receivedAt } = slot.entry;
      const facts = entryFacts(place, reason);
      return { delivery, letter: { ...facts, type: 'heartbeat', receivedAt, body: slot.bytes } };
    }
    const entry = await this.#entryOf(place, slot.entry, slot.bytes);
    return { delivery, letter: await this.#ofEnvelope(entry, refused, reason) };
  }

  #frameOf({ frameId }: RefusedItem): OpenFrame {
    if (this.#frame?.delivery.frameId === frameId) return this.#frame;
    const delivery = this.#deliveries.get(frameId);
    if (!delivery) throw new RangeError('a refused row belongs to a frame of its batch');
    this.#frame = { delivery, slots: decodeFrame(delivery.data) };
    return this.#frame;
  }

  async #entryOf(place: Place, entry: EnvelopeEntry, bytes: Uint8Array): Promise<OpenEntry> {
    const open = this.#entry;
    if (open?.place.delivery === place.delivery && open.place.index === place.index) return open;
    this.#entry = { place, entry, bytes, assembled: await assemble(this.#link, entry) };
    return this.#entry;
  }

  async #itemAt(items: readonly WholeItem[], index: number | undefined): Promise<WholeItem | undefined> {
    for (const item of items)
      for await (const { item: part, fault } of partsOf(item, this.#slices))
        if (part.index === index && fault === undefined) return part;
    return undefined;
  }

  async #ofEnvelope(open: OpenEntry, refused: RefusedItem, reason: string): Promise<DeadLetter> {
    const { place, entry, bytes, assembled } = open;
    const item = assembled.ok ? await this.#itemAt(assembled.items, refused.item) : undefined;
    if (!item) return envelopeDeadLetter(place, { entry, bytes, assembled, reason });
    const whole = await cleanPayload(item, entry, this.#slices);
    const { elements } = refused;
    const payload = elements.length === 0 ? whole : containerOf(whole, elements);
    const letter = itemDeadLetter(place, withoutAddress(entry), {
      item: { ...item, payload, length: payload.length },
      reason,
    });
    return elements.length === 0 ? letter : { ...letter, elements: elements.join() };
  }
}

/**
 * Returns the item's payload as its record had it: scrubbed, where the project has privacy rules. A
 * payload that cannot be decoded is returned as it came.
 */
async function cleanPayload(item: WholeItem, entry: EnvelopeEntry, slices: Slices): Promise<Uint8Array> {
  if (!entry.privacy) return item.payload;
  const decoded = await new EnvelopeDecoder(entry, { slices }).decode(item);
  if (!decoded.ok || (decoded.record.fields as ItemFields).isBase64) return item.payload;
  const { json } = decoded.record;
  return item.type === 'replay_recording' ? encodeRecording(json) : json;
}

/**
 * Removes the client's address and User-Agent from the entry. Where the project wants them, they
 * are already in the payload.
 */
function withoutAddress(entry: EnvelopeEntry): EnvelopeEntry {
  if (!entry.privacy) return entry;
  const { scrub, names } = entry.privacy;
  return { ...entry, privacy: { scrub, names } };
}
