import { setTimeout as pause } from 'node:timers/promises';
import { isOtlp } from '../lib/item-types.ts';
import type { Log } from '../lib/log.ts';
import type { Slices } from '../lib/slices.ts';
import { SINK_BATCH_BYTES_MAX } from '../limits.ts';
import type { CountedUsage, RefusedRow, SinkBatch, SinkCount, StreamSink } from '../sink/sink.ts';
import { orUnavailable } from '../sink/unavailable.ts';
import {
  countOfEntries,
  decodeFrame,
  type Entry,
  type EnvelopeEntry,
  FrameError,
  type FrameSlot,
  type HeartbeatEntry,
} from '../stream/frame.ts';
import type { NatsLink } from '../stream/nats.ts';
import { isHeavy, workOn } from '../stream/work.ts';
import {
  type BadItem,
  entryFacts,
  envelopeDeadLetter,
  frameDeadLetter,
  itemDeadLetter,
  itemsDeadLetter,
  type Place,
  RefusedLetters,
  refusedItems,
} from './dead-letters/compose.ts';
import { BatchLetters, type DeadLetters } from './dead-letters/dead-letters.ts';
import { type Assembled, assemble, JoinedParts } from './decode/assemble.ts';
import { type Decoded, decodeHeartbeat, EnvelopeDecoder, type WholeItem } from './decode/decode.ts';
import type { InflationBudgets } from './decode/inflation-budgets.ts';
import { partsOf } from './decode/otlp/request.ts';
import type { Delivery } from './delivery.ts';
import type { Gate } from './gate.ts';
import type { HeavyFrames } from './heavy-frames.ts';
import type { HeavyProjects } from './heavy-projects.ts';
import type { ProcessorMetrics } from './metrics.ts';

export type FrameWriterOptions = {
  link: NatsLink;
  sink: StreamSink;
  deadLetters: DeadLetters;
  metrics: ProcessorMetrics;
  /**
   * Shared by all writers of the process: they write entries with parts or recordings one at a
   * time.
   */
  largeGate: Gate;
  /** Shared by all writers of the process. */
  slices: Slices;
  budgets: InflationBudgets;
  /** Gets the work on each item that was not decoded in advance (heavy-frames.ts). */
  heavyProjects?: HeavyProjects;
  /** Counts the bytes of decoded heavy entries that wait for their batch. */
  heavyFrames?: HeavyFrames;
  log: Log;
};

/**
 * What is done with a frame at a moment: its bytes are decoded, or its records are made durable.
 */
export type Phase = 'decoding' | 'storing';

export type WriteReport = {
  /** Called with frames that are stored and acknowledged, perhaps after write() has resolved. */
  done(stored: readonly Delivery[]): void;
  /**
   * Called with frames that the sink holds in memory and will store later. Their bytes are not read
   * any more.
   */
  held?(frames: readonly Delivery[]): void;
  /**
   * If true, the sink stores these frames and all frames that it already holds, without waiting for
   * more frames to fill a batch.
   */
  now: boolean;
  /** Called, and awaited, before each phase. */
  entering?(phase: Phase): Promise<void>;
};

/**
 * How often a stream is asked whether a frame is gone, PARTS_LOOK_MS apart. Its replicas may forget
 * an acknowledged frame at slightly different moments.
 */
const GONE_LOOKS = 3;
const PARTS_LOOK_MS = 100;
/**
 * Bad items of one envelope that may get a dead letter each, if their project had few letters
 * lately; the other bad items share one letter. An envelope of 19 KB may have a thousand bad items,
 * and each letter is a message to the broker.
 */
const ITEM_LETTERS_MAX = 10;
/**
 * Work that is added to a project's debt (heavy-projects.ts), as estimated: LETTER_MS for each dead
 * letter, including the wait for the broker, and REFUSED_MS for each row that the sink refuses.
 */
const LETTER_MS = 0.5;
const REFUSED_MS = 2;
/**
 * A bad item of this size or more always has a letter of its own: a shared letter might become too
 * large to keep its bytes.
 */
const SHARED_LETTER_ITEM_BYTES_MAX = 16 * 1024;

/**
 * Writes frames into the sink, entry by entry. Each entry becomes records or dead letters, unless
 * the sink knows the entry already. A frame is acknowledged when its last entry is durable, or when
 * the frame is set aside unread. Its parts are removed when the broker has confirmed the
 * acknowledgement, so no redelivery ever needs them.
 *
 * A batch may end in the middle of a frame, because the sink knows how many entries of a frame it
 * has. So a batch stays near SINK_BATCH_BYTES_MAX however far recordings inflate, and a frame makes
 * progress even when the process dies again and again.
 */
export class FrameWriter {
  readonly #options: FrameWriterOptions;
  /** Frames whose entries are all in the open batch or in earlier ones. */
  #complete: Delivery[] = [];
  /** Dead letters of the open batch. They are counted and logged when the batch is committed. */
  #letters: BatchLetters;
  readonly #joined: JoinedParts;
  /** Resolves when the batches that the sink holds are stored and their frames are acknowledged. */
  #stored: Promise<void> = Promise.resolve();
  /** Items that were decoded before the batch of their frame, by frame. */
  readonly #ahead = new WeakMap<Delivery, DecodedAhead>();
  /** Frames whose items were all decoded, perhaps in an attempt that failed later. */
  readonly #attempted = new WeakSet<Delivery>();
  /** Frames of which the sink refused a row, perhaps in an attempt that failed later. */
  readonly #refused = new WeakSet<Delivery>();

  constructor(options: FrameWriterOptions) {
    this.#options = options;
    this.#letters = new BatchLetters(options);
    this.#joined = new JoinedParts(options);
  }

  /**
   * Returns the project of a frame whose only entry is a heavy envelope; undefined for other
   * frames.
   */
  heavyProjectOf({ data }: Delivery): string | undefined {
    const entry = onlyEnvelope(data);
    return entry && isHeavy(entry) ? entry.projectId : undefined;
  }

  /**
   * Decodes the only entry of a frame before the frame's batch. Does nothing if the frame has
   * several entries or a heartbeat, or if its envelope cannot be stored at all.
   * @throws UnavailableError
   */
  async decodeAhead(delivery: Delivery): Promise<void> {
    const entry = onlyEnvelope(delivery.data);
    if (!entry) return;
    const found = await assemble(this.#options.link, entry);
    const decoder = new EnvelopeDecoder(entry, this.#options);
    if (decoder.fault || !found.ok) return;
    const items: WholeItem[] = [];
    const decoded: Decoded[] = [];
    let bytes = 0;
    for (const item of found.items)
      for await (const { item: part, fault } of partsOf(item, this.#options.slices)) {
        const one = fault === undefined ? await decoder.decode(part) : { ok: false as const, reason: fault };
        if (one.ok) bytes += one.record.json.length;
        decoded.push(one);
        // A decoded item is stored as its record. An item that failed keeps its payload, which goes
        // into the dead letter.
        items.push(one.ok ? { ...part, payload: NOTHING } : part);
      }
    this.#ahead.set(delivery, { found, items, decoded, bytes });
    this.#options.heavyFrames?.decoded(bytes);
  }

  /**
   * Stores the frames in order. Without frames, it makes the sink store what it holds, if the
   * report says `now`.
   * @throws UnavailableError: frames that were not reported as done or held are to be given again
   */
  async write(deliveries: readonly Delivery[], report: WriteReport): Promise<void> {
    const frameIds = deliveries.map(({ frameId }) => frameId);
    let batch = await this.#begin(frameIds);
    const pause = this.#options.slices.pauses();
    try {
      await report.entering?.('decoding');
      for (const delivery of deliveries) {
        const slots = await this.#readSlots(delivery);
        for (let index = batch.entriesKnown(delivery.frameId); index < slots.length; index++) {
          const pending = this.#writeSlot(batch, { delivery, index }, slots[index] as FrameSlot) ?? pause();
          if (pending) await pending;
          if (batch.bytes < SINK_BATCH_BYTES_MAX) continue;
          await this.#commit(batch, deliveries, report);
          batch = await this.#begin(frameIds);
          await report.entering?.('decoding');
        }
        this.#takeAhead(delivery); // drops what was decoded in advance, if the sink had it already
        this.#attempted.add(delivery);
        this.#complete.push(delivery);
      }
      await this.#commit(batch, deliveries, report);
    } finally {
      await batch.abandon();
    }
  }

  /**
   * Acknowledges the frame if the sink has all its entries. Reads only their number from the frame.
   * @returns whether the frame was stored
   * @throws UnavailableError
   */
  async acknowledgeStored(delivery: Delivery): Promise<boolean> {
    const batch = await this.#begin([delivery.frameId]);
    try {
      if (batch.entriesKnown(delivery.frameId) < (countOfEntries(delivery.data) ?? Infinity)) return false;
      // A processor that died may have written these entries and not yet made them durable. This
      // commit adds nothing, and makes everything before it durable.
      await batch.commit({ now: true, held: () => undefined });
      await this.#acknowledge([delivery]);
      return true;
    } finally {
      await batch.abandon();
    }
  }

  /**
   * Sets the frame aside. Usually the frame becomes one dead letter with all its bytes. If some
   * entries are stored already, or an entry names parts, each entry becomes a letter of its own,
   * and the sink notes the entry as done. The entries are read, but their payloads are not decoded.
   * The caller makes sure that no other consumer works meanwhile.
   * @throws UnavailableError
   */
  async setAside(delivery: Delivery, reason: string, report: WriteReport): Promise<void> {
    const batch = await this.#begin([delivery.frameId]);
    try {
      await report.entering?.('decoding');
      const slots = slotsIfReadable(delivery.data);
      const known = batch.entriesKnown(delivery.frameId);
      // A replayed dead letter of the whole frame would store entries again that are stored
      // already, and the parts that its entries name would be lost.
      const isStoredInPart = known > 0 && known <= slots.length;
      if (!isStoredInPart && !slots.some(namesParts)) return await this.setAsideUnread(delivery, reason);
      await report.entering?.('storing');
      for (let index = known; index < slots.length; index++)
        await this.#setSlotAside(batch, { delivery, index }, { slot: slots[index] as FrameSlot, reason });
      this.#complete.push(delivery);
      await this.#commit(batch, [delivery], report);
    } finally {
      await batch.abandon();
    }
  }

  /**
   * Sets the frame aside unread. The parts that it names are lost.
   * @throws UnavailableError
   */
  async setAsideUnread(delivery: Delivery, reason: string): Promise<void> {
    const letters = new BatchLetters(this.#options);
    await letters.file(frameDeadLetter(delivery, reason));
    await letters.filed();
    await this.#acknowledge([delivery]);
    letters.settle();
  }

  async #begin(frameIds: readonly string[]): Promise<SinkBatch> {
    this.#complete = [];
    const batch = await this.#options.sink.begin(frameIds);
    this.#letters = new BatchLetters({ ...this.#options, relieve: () => batch.relieve() });
    return batch;
  }

  /**
   * Commits the batch and acknowledges its frames. Removes their parts once the broker has
   * confirmed this. The promise settles at the first of these events:
   *
   * - *Held*: the sink has taken the batch, and stores it later. The promise resolves, so that the
   *   next batch may begin.
   * - *Stored*: the sink has stored the batch, and its frames are acknowledged. The promise
   *   resolves.
   * - *Failed*: the promise rejects. A failure after *held* is a bug: the error is left unhandled,
   *   and ends the process.
   *
   * With `report.now` the promise also waits until all batches that the sink holds are stored.
   */
  async #commit(batch: SinkBatch, deliveries: readonly Delivery[], report: WriteReport): Promise<void> {
    const letters = this.#letters;
    await letters.filed();
    await report.entering?.('storing');
    await this.#fileRefused((await batch.prepare?.()) ?? [], deliveries);
    await new Promise<void>((resolve, reject) => {
      const complete = this.#complete;
      let isHeld = false;
      const count = (counts: readonly SinkCount[]): void => {
        for (const { type, result, count } of counts) this.#options.metrics.processed(type, result, count);
        letters.settle();
      };
      const held = (counts: readonly SinkCount[]): void => {
        isHeld = true;
        count(counts);
        report.held?.(complete);
        resolve();
      };
      const stored = batch.commit({ now: report.now, held }).then(async (counts) => {
        if (!isHeld) count(counts);
        const isConfirmed = await this.#acknowledge(complete);
        report.done(complete);
        if (isConfirmed) await this.#joined.remove(complete);
      });
      this.#stored = Promise.allSettled([this.#stored, stored]).then(() => undefined);
      stored.then(resolve, (error) => {
        if (isHeld) throw error; // a bug: no caller hears of it any more
        reject(error);
      });
    });
    if (report.now) await this.#stored;
  }

  async #fileRefused(rows: readonly RefusedRow[], deliveries: readonly Delivery[]): Promise<void> {
    const { heavyProjects } = this.#options;
    const before = new Set(deliveries.filter((delivery) => this.#refused.has(delivery)));
    const ofRefused = new RefusedLetters(deliveries, this.#options);
    for (const row of refusedItems(rows)) {
      const { letter, delivery } = await ofRefused.letterOf(row);
      await this.#letters.file(letter);
      this.#refused.add(delivery);
      const { projectId } = letter;
      if (projectId && !before.has(delivery)) heavyProjects?.note(projectId, REFUSED_MS, delivery);
    }
    await this.#letters.filed();
  }

  /**
   * Acknowledges the frames. Only the last acknowledgement is confirmed: the broker handles them in
   * order.
   * @returns whether the confirmation came
   */
  async #acknowledge(deliveries: readonly Delivery[]): Promise<boolean> {
    for (const delivery of deliveries.slice(0, -1)) delivery.ack();
    try {
      await deliveries.at(-1)?.ackConfirmed();
      return true;
    } catch (error) {
      // The frame will be delivered again, and the sink will recognise it.
      this.#options.log.warn({ err: error }, 'processor: acknowledgement not confirmed');
      return false;
    }
  }

  /**
   * Decodes the entries of a frame. Bytes that are no frame become a dead letter, and have no
   * entries.
   */
  async #readSlots(delivery: Delivery): Promise<FrameSlot[]> {
    try {
      return decodeFrame(delivery.data);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      await this.#letters.file(frameDeadLetter(delivery, error.message));
      return [];
    }
  }

  /**
   * Writes one entry. Returns a promise only if something must be waited for: most entries are
   * written at once.
   */
  #writeSlot(batch: SinkBatch, place: Place, slot: FrameSlot): Promise<void> | undefined {
    beginEntry(batch, place, slot);
    if (slot.ok) return this.#writeEntry(batch, place, { entry: slot.entry, bytes: slot.bytes });
    return this.#letters.file({ ...entryFacts(place, slot.error.message), body: slot.bytes });
  }

  async #setSlotAside(
    batch: SinkBatch,
    place: Place,
    { slot, reason }: { slot: FrameSlot; reason: string },
  ): Promise<void> {
    beginEntry(batch, place, slot);
    const why = `its frame ${reason}`;
    if (!slot.ok || slot.entry.kind === 'heartbeat')
      return this.#letters.file({ ...entryFacts(place, why), body: slot.bytes });
    const { entry, bytes } = slot;
    const assembled = await assemble(this.#options.link, entry);
    if (await this.#isDoneElsewhere(place, assembled)) return;
    this.#joined.note(place.delivery, entry, assembled);
    await this.#letters.file(envelopeDeadLetter(place, { entry, bytes, assembled, reason: why }));
  }

  #writeEntry(
    batch: SinkBatch,
    place: Place,
    { entry, bytes }: { entry: Entry; bytes: Uint8Array },
  ): Promise<void> | undefined {
    if (entry.kind === 'heartbeat') return this.#writeHeartbeat(batch, place, { entry, bytes });
    const ahead = this.#takeAhead(place.delivery);
    if (ahead) return this.#writeAhead(batch, place, { entry, ahead });
    if (!isLarge(entry)) return this.#writeEnvelope(batch, place, { entry, bytes });
    return this.#options.largeGate.alone(async () => this.#writeEnvelope(batch, place, { entry, bytes }));
  }

  /**
   * Returns the items of a frame that was decoded in advance; undefined for other frames. Their
   * bytes no longer count as waiting for a batch.
   */
  #takeAhead(delivery: Delivery): DecodedAhead | undefined {
    const ahead = this.#ahead.get(delivery);
    if (!ahead) return undefined;
    this.#ahead.delete(delivery);
    this.#options.heavyFrames?.decoded(-ahead.bytes);
    return ahead;
  }

  #writeAhead(
    batch: SinkBatch,
    place: Place,
    { entry, ahead: { found, items: parts, decoded } }: { entry: EnvelopeEntry; ahead: DecodedAhead },
  ): Promise<void> | undefined {
    this.#joined.note(place.delivery, entry, found);
    // Each item leaves the list when it is written, so that its memory is free.
    const decode = (): Decoded => decoded.shift() as Decoded;
    const pause = this.#options.slices.pauses();
    const items = { entry, decode, items: parts, pause, badCount: 0, rest: [] };
    return this.#writeItems(batch, place, { ...items, isAhead: true });
  }

  async #writeHeartbeat(
    batch: SinkBatch,
    place: Place,
    { entry, bytes }: { entry: HeartbeatEntry; bytes: Uint8Array },
  ): Promise<void> {
    const decoded = decodeHeartbeat(entry);
    if (decoded.ok) {
      batch.add(decoded.record);
      return batch.relieve();
    }
    const facts = entryFacts(place, decoded.reason);
    await this.#letters.file({ ...facts, type: 'heartbeat', receivedAt: entry.receivedAt, body: bytes });
  }

  #writeEnvelope(
    batch: SinkBatch,
    place: Place,
    { entry, bytes }: { entry: EnvelopeEntry; bytes: Uint8Array },
  ): Promise<void> | undefined {
    const assembled = assemble(this.#options.link, entry);
    const proceed = (found: Assembled): Promise<void> | undefined => {
      this.#joined.note(place.delivery, entry, found);
      const decoder = new EnvelopeDecoder(entry, this.#options);
      if (decoder.fault || !found.ok)
        return this.#letters.file(
          envelopeDeadLetter(place, { entry, bytes, assembled: found, reason: decoder.fault }),
        );
      const pause = this.#options.slices.pauses();
      const { items } = found;
      const decode = (item: WholeItem): Decoded | Promise<Decoded> => decoder.decode(item);
      return this.#writeItems(batch, place, { entry, decode, items, pause, badCount: 0, rest: [] });
    };
    if (!(assembled instanceof Promise)) return proceed(assembled);
    return assembled.then(async (found) => {
      if (!(await this.#isDoneElsewhere(place, found))) await proceed(found);
    });
  }

  /**
   * Whether parts are missing because another processor has stored the frame. That processor took
   * over while this one stood still, acknowledged the frame and removed its parts.
   * @throws UnavailableError
   */
  async #isDoneElsewhere({ delivery }: Place, found: Assembled): Promise<boolean> {
    if (found.ok || !found.isMissing) return false;
    for (let look = 0; look < GONE_LOOKS; look++) {
      if (look > 0) await pause(PARTS_LOOK_MS);
      if (await orUnavailable('a frame cannot be looked for', () => delivery.isGone())) return true;
    }
    return false;
  }

  /**
   * Writes the items from index `from` on. It returns a promise at the first item that needs a
   * wait, and writes the remaining items after that.
   */
  #writeItems(batch: SinkBatch, place: Place, work: EnvelopeItems, from = 0): Promise<void> | undefined {
    const { decode, items } = work;
    for (let at = from; at < items.length; at++) {
      const item = items[at] as WholeItem;
      const result = isOtlp(item.type) && !work.isAhead ? undefined : decode(item);
      const pending = !result
        ? this.#writeParts(batch, place, work, item)
        : result instanceof Promise
          ? result.then((decoded) => this.#writeItem(batch, place, work, { item, decoded }))
          : (this.#writeItem(batch, place, work, { item, decoded: result }) ?? work.pause());
      if (pending) return pending.then(() => this.#writeItems(batch, place, work, at + 1));
    }
    const { entry, rest } = work;
    if (rest.length === 0) return undefined;
    const types = rest.map(({ item }) => item.type);
    this.#noteWork(place, work, LETTER_MS);
    const [only, another] = rest as [BadItem, BadItem?];
    const letter = another ? itemsDeadLetter(place, entry, rest) : itemDeadLetter(place, entry, only);
    return this.#letters.file(letter, types);
  }

  /** Writes an OTLP request, container by container. */
  async #writeParts(batch: SinkBatch, place: Place, work: EnvelopeItems, request: WholeItem): Promise<void> {
    for await (const { item, fault } of partsOf(request, this.#options.slices)) {
      const decoded = fault === undefined ? await work.decode(item) : { ok: false as const, reason: fault };
      await this.#writeItem(batch, place, work, { item, decoded });
    }
  }

  #writeItem(
    batch: SinkBatch,
    place: Place,
    work: EnvelopeItems,
    { item, decoded }: { item: WholeItem; decoded: Decoded },
  ): Promise<void> | undefined {
    const { deadLetters } = this.#options;
    const bytes = decoded.ok ? decoded.record.json.length : item.payload.length;
    this.#noteWork(place, work, workOn(bytes, work.entry.privacy, decoded.scrubMs));
    if (decoded.ok) {
      batch.add(decoded.record);
      return batch.relieve();
    }
    const badItem = { item, reason: decoded.reason };
    const mayShare = item.payload.length < SHARED_LETTER_ITEM_BYTES_MAX;
    const isAlone = ++work.badCount <= ITEM_LETTERS_MAX && deadLetters.mayBeAlone(work.entry.projectId);
    if (mayShare && !isAlone) {
      work.rest.push(badItem);
      return batch.relieve();
    }
    this.#noteWork(place, work, LETTER_MS);
    const pending = this.#letters.file(itemDeadLetter(place, work.entry, badItem));
    return pending ? pending.then(() => batch.relieve()) : batch.relieve();
  }

  /**
   * Adds `ms` to the work of the item's project, only in the first attempt at the frame. Items that
   * were decoded in advance do not count, because no other frame waited for them.
   */
  #noteWork({ delivery }: Place, { entry, isAhead }: EnvelopeItems, ms: number): void {
    if (isAhead || this.#attempted.has(delivery)) return;
    this.#options.heavyProjects?.note(entry.projectId, ms, delivery);
  }
}

/**
 * The items of a heavy entry, decoded in advance, while later frames of its stream went on. Items
 * that can be stored are without their payloads. `bytes`: size of the records.
 */
type DecodedAhead = {
  found: Assembled & { ok: true };
  items: WholeItem[];
  decoded: Decoded[];
  bytes: number;
};
const NOTHING = new Uint8Array();

type EnvelopeItems = {
  entry: EnvelopeEntry;
  decode: (item: WholeItem) => Decoded | Promise<Decoded>;
  items: readonly WholeItem[];
  /**
   * Called between two items. Returns a promise when the event loop should have a turn: 300 items
   * of 60 KiB, each decoded without a pause, may take two seconds.
   */
  pause: () => Promise<void> | undefined;
  /** Number of items so far that could not be stored. */
  badCount: number;
  /** Bad items that share a dead letter. */
  rest: BadItem[];
  /**
   * Whether the items were decoded in advance, while frames behind theirs went on
   * (heavy-frames.ts).
   */
  isAhead?: true;
};

const isLarge = ({ parts, items }: EnvelopeEntry): boolean =>
  parts !== undefined || items.some(({ type }) => type === 'replay_recording');

/**
 * Returns the envelope of a frame that holds nothing else; undefined when the frame has several
 * entries, or its entry is a heartbeat or cannot be read.
 */
function onlyEnvelope(frame: Uint8Array): EnvelopeEntry | undefined {
  if (countOfEntries(frame) !== 1) return undefined;
  const [slot] = slotsIfReadable(frame);
  return slot?.ok && slot.entry.kind === 'envelope' ? slot.entry : undefined;
}

/** Decodes the entries of a frame; returns none when its layout cannot be read. */
function slotsIfReadable(frame: Uint8Array): FrameSlot[] {
  try {
    return decodeFrame(frame);
  } catch {
    return [];
  }
}

const namesParts = (slot: FrameSlot): boolean =>
  slot.ok && slot.entry.kind === 'envelope' && slot.entry.parts !== undefined;

function beginEntry(batch: SinkBatch, { delivery: { frameId }, index }: Place, slot: FrameSlot): void {
  const usage = slot.ok ? usageOf(slot.entry) : undefined;
  batch.beginEntry(usage ? { frameId, index, usage } : { frameId, index });
}

function usageOf(entry: Entry): CountedUsage | undefined {
  if (entry.kind !== 'envelope' || entry.month === undefined || entry.position === undefined)
    return undefined;
  return { projectId: entry.projectId, month: entry.month, position: entry.position };
}
