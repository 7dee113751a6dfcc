/**
 * The envelope parser: bytes in, items out. It knows neither sockets nor memory: `feed` takes a
 * chunk of any size and tells a receiver what it finds. The parser keeps nothing except the
 * beginning of a header line that a chunk border cuts.
 *
 * Rules:
 *
 *     envelope = header [ "\n" *( item ) ]          header: a JSON object
 *     item     = item-header [ "\n" payload ]       item header: a JSON object with a string `type`
 *     payload  = exactly `length` bytes, or, without a `length`, all bytes up to the next newline
 *
 * Items are separated by one "\n". After the last item one "\n" may end the body. An empty line in
 * place of an item header is malformed. "\r" is no newline: it belongs to the line or payload that
 * it ends. The parser never looks into payloads: it finds newlines by memchr (Buffer.indexOf), and
 * passes on a payload with a length without reading it.
 *
 *     envelope-header → item-header → sized-payload → payload-end → item-header …
 *                                   ↘ line-payload ───────────────↗
 *
 * Malformed input gives a value of a closed set, not an exception. From then on the parser returns
 * this value, whatever it is fed.
 */
import type { ItemType } from '../../lib/item-types.ts';
import {
  ENVELOPE_HEADER_BYTES_MAX,
  ITEM_HEADER_BYTES_MAX,
  ITEM_HEADERS_BYTES_MAX,
  ITEMS_MAX,
} from '../../limits.ts';
import { ByteQueue } from './byte-queue.ts';
import { type EnvelopeHeader, type Malformed, parseEnvelopeHeader, parseItemHeader } from './header.ts';

/**
 * Receives what a reader finds, in the order of the body:
 *
 * - For each item that is to be stored: `itemBegin`, then `payload` any number of times (never for
 *   an empty payload), then `itemEnd`. Only then may another item begin.
 * - For each other item: `itemSkipped` alone.
 * - `envelopeHeader` at most once, at any time before `end` returns. The parser calls it first; a
 *   reader that knows the id only at the end of the body calls it last. Without an id the collector
 *   makes one.
 *
 * When a body turns out to be malformed, the calls may stop at any point.
 *
 * All bytes are views of the chunk that is being fed. They may be used after the call only if
 * nobody writes to the chunk again. A reader that makes bytes of its own reports them by `onLine`
 * ({@link NewItemReader}).
 */
export interface ItemReceiver {
  /** @param line the header as sent, without its newline; empty where the body has no such line */
  envelopeHeader(header: EnvelopeHeader, line: Uint8Array): void;
  /** @param item `index`: its place among all items of the body, skipped ones included, from 0 */
  itemBegin(item: { index: number; type: ItemType; header: Uint8Array }): void;
  payload(piece: Uint8Array): void;
  itemEnd(): void;
  /** Called for an item of a type that is not stored. Its payload is not passed on. */
  itemSkipped(type: string): void;
}

/** Reads a body, chunk by chunk, into items. */
export interface ItemReader {
  /**
   * Reads a chunk.
   * @returns why the body is malformed, as soon as that is certain; undefined until then
   */
  feed(chunk: Uint8Array): Malformed | undefined;
  /**
   * Ends the body; its last byte has been fed. The reader may still call `itemEnd` and
   * `envelopeHeader` here, but not `payload`, because the upload checks only after `feed` whether
   * the payloads need the disk.
   * @returns why the body is malformed
   */
  end(): Malformed | undefined;
}
/**
 * Makes a reader.
 * @param receiver told what the reader finds
 * @param storedTypes types whose items the receiver gets
 * @param onLine called with the bytes by which the reader's own memory grows (negative: shrinks).
 * This memory holds the beginning of a cut header line, or bytes that the reader makes
 */
export type NewItemReader = (
  receiver: ItemReceiver,
  storedTypes: ReadonlySet<string>,
  onLine: (bytes: number) => void,
) => ItemReader;

type State = 'envelope-header' | 'item-header' | 'sized-payload' | 'line-payload' | 'payload-end';

const NEWLINE = 0x0a;
const NOTHING = Buffer.alloc(0);
const LINE_BYTES_MAX = Math.max(ENVELOPE_HEADER_BYTES_MAX, ITEM_HEADER_BYTES_MAX);

const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export class Parser implements ItemReader {
  readonly #receiver: ItemReceiver;
  readonly #storedTypes: ReadonlySet<string>;
  readonly #onLine: (bytes: number) => void;
  #state: State = 'envelope-header';
  /** The beginning of a header line whose end has not come. */
  readonly #line = new ByteQueue(LINE_BYTES_MAX);
  /** The chunk being fed and how far it has been read; empty between calls. */
  #chunk: Buffer = NOTHING;
  #at = 0;
  #malformed: Malformed | undefined;
  #items = 0;
  /** Bytes of all item header lines. */
  #headersBytes = 0;
  /**
   * `#stored`: whether the receiver gets the current item. `#remaining`: in `sized-payload`, the
   * bytes of the item that must still come.
   */
  #stored = false;
  #remaining = 0;

  /** The parameters are those of {@link NewItemReader}. */
  constructor(
    receiver: ItemReceiver,
    storedTypes: ReadonlySet<string>,
    onLine: (bytes: number) => void = () => undefined,
  ) {
    this.#receiver = receiver;
    this.#storedTypes = storedTypes;
    this.#onLine = onLine;
  }

  feed(chunk: Uint8Array): Malformed | undefined {
    this.#chunk = asBuffer(chunk);
    this.#at = 0;
    while (this.#at < this.#chunk.length && this.#malformed === undefined) this.#step();
    this.#chunk = NOTHING;
    return this.#malformed;
  }

  end(): Malformed | undefined {
    if (this.#malformed !== undefined) return this.#malformed;
    if (this.#state === 'envelope-header') this.#endInEnvelopeHeader();
    else if (this.#state === 'item-header' && this.#line.length > 0) this.#readItemHeader(this.#line.take());
    if (this.#state === 'sized-payload') this.#malformed ??= 'the body ends inside a payload';
    else if (this.#state === 'line-payload') this.#endItem();
    return this.#malformed;
  }

  #step(): void {
    switch (this.#state) {
      case 'envelope-header':
        return this.#inEnvelopeHeader();
      case 'item-header':
        return this.#inItemHeader();
      case 'sized-payload':
        return this.#inSizedPayload();
      case 'line-payload':
        return this.#inLinePayload();
      case 'payload-end':
        return this.#inPayloadEnd();
    }
  }

  // ---- envelope-header ----

  #inEnvelopeHeader(): void {
    const line = this.#takeLine(ENVELOPE_HEADER_BYTES_MAX, 'the envelope header is too long');
    if (line) this.#readEnvelopeHeader(line);
  }

  #readEnvelopeHeader(line: Buffer): void {
    const header = parseEnvelopeHeader(line);
    if (typeof header === 'string') {
      this.#malformed = header;
      return;
    }
    this.#receiver.envelopeHeader(header, line);
    this.#state = 'item-header';
  }

  /**
   * Ends a body that has no newline. A header alone is an envelope without items; an empty body is
   * malformed.
   */
  #endInEnvelopeHeader(): void {
    if (this.#line.length === 0) this.#malformed = 'the body is empty';
    else this.#readEnvelopeHeader(this.#line.take());
  }

  // ---- item-header ----

  #inItemHeader(): void {
    const line = this.#takeLine(ITEM_HEADER_BYTES_MAX, 'an item header is too long');
    if (line) this.#readItemHeader(line);
  }

  #readItemHeader(line: Buffer): void {
    const header = parseItemHeader(line);
    if (typeof header === 'string') {
      this.#malformed = header;
      return;
    }
    const index = this.#items++;
    this.#headersBytes += line.length;
    if (index >= ITEMS_MAX) this.#malformed = 'the envelope has too many items';
    else if (this.#headersBytes > ITEM_HEADERS_BYTES_MAX)
      this.#malformed = 'the item headers are too long together';
    if (this.#malformed !== undefined) return;
    this.#beginItem({ index, type: header.type, header: line }, header.length);
  }

  #beginItem(item: { index: number; type: string; header: Uint8Array }, length: number | undefined): void {
    const { index, type, header } = item;
    this.#stored = this.#storedTypes.has(type);
    if (this.#stored) this.#receiver.itemBegin({ index, type: type as ItemType, header });
    else this.#receiver.itemSkipped(type);
    this.#remaining = length ?? 0;
    this.#state = length === undefined ? 'line-payload' : 'sized-payload';
    if (length === 0) this.#endSizedPayload();
  }

  // ---- sized-payload, payload-end ----

  #inSizedPayload(): void {
    const end = Math.min(this.#at + this.#remaining, this.#chunk.length);
    this.#remaining -= end - this.#at;
    this.#passOn(end);
    if (this.#remaining === 0) this.#endSizedPayload();
  }

  #endSizedPayload(): void {
    this.#endItem();
    this.#state = 'payload-end';
  }

  #inPayloadEnd(): void {
    if (this.#chunk[this.#at] === NEWLINE) this.#state = 'item-header';
    else this.#malformed = 'a payload is followed by another byte than a newline';
    this.#at++;
  }

  // ---- line-payload ----

  #inLinePayload(): void {
    const newline = this.#chunk.indexOf(NEWLINE, this.#at);
    this.#passOn(newline === -1 ? this.#chunk.length : newline);
    if (newline === -1) return;
    this.#at++;
    this.#endItem();
    this.#state = 'item-header';
  }

  // ---- all states ----

  /** Passes on the payload bytes up to `end`, if the item is stored. */
  #passOn(end: number): void {
    if (this.#stored && end > this.#at) this.#receiver.payload(this.#chunk.subarray(this.#at, end));
    this.#at = end;
  }

  #endItem(): void {
    if (this.#stored) this.#receiver.itemEnd();
  }

  /**
   * Takes a header line that ends in this chunk, without its newline. Returns undefined when the
   * line has no end yet or exceeds the bound.
   */
  #takeLine(bytesMax: number, tooLong: Malformed): Buffer | undefined {
    const newline = this.#chunk.indexOf(NEWLINE, this.#at);
    const piece = this.#chunk.subarray(this.#at, newline === -1 ? undefined : newline);
    if (this.#line.length + piece.length > bytesMax) {
      this.#malformed = tooLong;
      this.#dropLine();
      return undefined;
    }
    this.#at += piece.length + (newline === -1 ? 0 : 1);
    if (newline !== -1 && this.#line.length === 0) return piece;
    const before = this.#line.capacity;
    this.#line.append(piece);
    this.#onLine(this.#line.capacity - before);
    return newline === -1 ? undefined : this.#dropLine();
  }

  /**
   * Returns the bytes of a header line that were kept from chunk to chunk, and reports their memory
   * as free.
   */
  #dropLine(): Buffer {
    this.#onLine(-this.#line.capacity);
    return this.#line.take();
  }
}

export const newParser: NewItemReader = (receiver, storedTypes, onLine) =>
  new Parser(receiver, storedTypes, onLine);
