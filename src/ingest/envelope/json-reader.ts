/**
 * Reads a body that is JSON, not an envelope: one event, one report of a browser, or a list of
 * reports. Each becomes an item. Payloads are passed on as they come, while a JsonWalk checks the
 * JSON.
 */
import type { ItemType } from '../../lib/item-types.ts';
import { ITEMS_MAX } from '../../limits.ts';
import { ByteQueue } from './byte-queue.ts';
import { type Malformed, readEventId } from './header.ts';
import { type JsonReceiver, JsonWalk, type NoJson } from './json-walk.ts';
import type { ItemReader, ItemReceiver, NewItemReader } from './parser.ts';

/** What differs between the kinds of JSON bodies. */
type Kind = {
  readonly type: ItemType;
  /** The header of each item. */
  readonly header: Uint8Array;
  /** Whether the body may be a list of objects. */
  readonly isList: boolean;
  /** Whether the object's member `event_id` is the id under which the event is stored. */
  readonly hasId: boolean;
  /** The reason with which a body is refused that is not JSON of this kind. */
  readonly notThis: Malformed;
};

const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const NOTHING = Buffer.alloc(0);

/**
 * Most bytes of a name or value that are kept to be read. An id takes fewer, even if all its
 * characters are escaped.
 */
const READ_BYTES_MAX = 256;
const ID_NAME = 'event_id';
const ID_NAME_JSON = Buffer.from(JSON.stringify(ID_NAME));

/** Whether a JSON string says `event_id`, perhaps with escapes. */
function isIdName(json: Buffer): boolean {
  if (json.length === ID_NAME_JSON.length && json.equals(ID_NAME_JSON)) return true;
  return json.includes(BACKSLASH) && JSON.parse(json.toString('utf8')) === ID_NAME;
}

class JsonReader implements ItemReader, JsonReceiver {
  readonly #kind: Kind;
  readonly #receiver: ItemReceiver;
  readonly #isStored: boolean;
  readonly #walk = new JsonWalk(this);
  #malformed: Malformed | undefined;
  /** The chunk that is being fed; empty between calls. */
  #chunk: Buffer = NOTHING;
  #isEmpty = true;
  /** Depth of the objects that are items: 1 in a list, else 0. */
  #itemDepth = 0;
  #items = 0;
  /** Where in the chunk the payload of the current item goes on; undefined outside stored items. */
  #payloadFrom: number | undefined;
  /**
   * Where in the chunk a name or value that is to be read begins; undefined when none is being
   * read.
   */
  #textFrom: number | undefined;
  /** The bytes of the name or value (`#textFrom`) that came in earlier chunks. */
  readonly #text = new ByteQueue(READ_BYTES_MAX);
  /** Whether the name before the next value is `event_id`. */
  #isId = false;
  /** The id; undefined when there is none, or when the last `event_id` has the wrong shape. */
  #eventId: string | undefined;

  constructor(kind: Kind, receiver: ItemReceiver, storedTypes: ReadonlySet<string>) {
    this.#kind = kind;
    this.#receiver = receiver;
    this.#isStored = storedTypes.has(kind.type);
  }

  feed(bytes: Uint8Array): Malformed | undefined {
    if (this.#malformed !== undefined) return this.#malformed;
    this.#chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#isEmpty &&= bytes.length === 0;
    if (this.#payloadFrom !== undefined) this.#payloadFrom = 0;
    if (this.#textFrom !== undefined) this.#textFrom = 0;
    this.#judge(this.#walk.feed(bytes));
    if (this.#malformed === undefined) this.#endChunk();
    this.#chunk = NOTHING;
    return this.#malformed;
  }

  end(): Malformed | undefined {
    if (this.#isEmpty) this.#malformed = 'the body is empty';
    this.#judge(this.#walk.end());
    if (this.#malformed === undefined && this.#eventId)
      this.#receiver.envelopeHeader({ eventId: this.#eventId }, NOTHING);
    return this.#malformed;
  }

  #judge(noJson: NoJson | undefined): void {
    if (noJson !== undefined)
      this.#malformed ??= noJson === 'too deep' ? 'the body is nested too deeply' : this.#kind.notThis;
  }

  #endChunk(): void {
    const { length } = this.#chunk;
    this.#passOn(length);
    if (this.#textFrom === undefined) return;
    const piece = this.#chunk.subarray(this.#textFrom);
    if (this.#text.length + piece.length > READ_BYTES_MAX) this.#dropText();
    else this.#text.append(piece);
  }

  // ---- what the walk tells ----

  valueBegin(depth: number, at: number): void {
    if (this.#malformed !== undefined) return;
    const byte = this.#chunk[at];
    if (depth === 0 && byte === OPEN_ARRAY && this.#kind.isList) this.#itemDepth = 1;
    else if (depth === this.#itemDepth) this.#beginItem(byte === OPEN_OBJECT, at);
    else if (this.#isId) this.#textFrom = at;
  }

  valueEnd(depth: number, at: number): void {
    if (this.#malformed !== undefined) return;
    if (depth === this.#itemDepth) this.#endItem(at);
    else if (this.#isId) {
      const json = this.#takeText(at);
      this.#isId = false;
      this.#eventId = json && readEventId(JSON.parse(json.toString('utf8')));
    }
  }

  nameBegin(at: number): void {
    if (this.#kind.hasId) this.#textFrom = at;
  }

  nameEnd(at: number): void {
    const from = this.#textFrom;
    if (from === undefined) return;
    const isShort = this.#text.length + at - from < ID_NAME_JSON.length;
    const json = isShort ? this.#dropText() : this.#takeText(at);
    this.#isId = json !== undefined && isIdName(json);
  }

  // ---- items ----

  #beginItem(isObject: boolean, at: number): void {
    const { type, header, notThis } = this.#kind;
    const index = this.#items++;
    if (!isObject) this.#malformed = notThis;
    else if (index >= ITEMS_MAX) this.#malformed = 'the body has too many reports';
    else if (!this.#isStored) this.#receiver.itemSkipped(type);
    else {
      this.#receiver.itemBegin({ index, type, header });
      this.#payloadFrom = at;
    }
  }

  #passOn(end: number): void {
    const from = this.#payloadFrom;
    if (from !== undefined && from < end) this.#receiver.payload(this.#chunk.subarray(from, end));
  }

  #endItem(at: number): void {
    if (this.#payloadFrom === undefined) return;
    this.#passOn(at);
    this.#payloadFrom = undefined;
    this.#receiver.itemEnd();
  }

  // ---- names and values that are read ----

  /**
   * Returns the name or value that is being read and ends at `at`; undefined when none is being
   * read, or it is longer than READ_BYTES_MAX.
   */
  #takeText(at: number): Buffer | undefined {
    const from = this.#textFrom;
    if (from === undefined) return undefined;
    this.#textFrom = undefined;
    const piece = this.#chunk.subarray(from, at);
    if (this.#text.length === 0) return piece.length > READ_BYTES_MAX ? undefined : piece;
    const json = Buffer.concat([this.#text.take(), piece]);
    return json.length > READ_BYTES_MAX ? undefined : json;
  }

  #dropText(): undefined {
    this.#textFrom = undefined;
    if (this.#text.length > 0) this.#text.take();
  }
}

const newReaderOf =
  (kind: Kind): NewItemReader =>
  (receiver, storedTypes) =>
    new JsonReader(kind, receiver, storedTypes);

export const newEventReader = newReaderOf({
  type: 'event',
  header: Buffer.from('{"type":"event"}'),
  isList: false,
  hasId: true,
  notThis: 'the body is no JSON object',
});

/**
 * Makes a reader of one report of a browser, or a list of reports.
 * @param header the item header of each report, a JSON object with the type raw_security
 */
export const newReportReader = (header: Uint8Array): NewItemReader =>
  newReaderOf({
    type: 'raw_security',
    header,
    isList: true,
    hasId: false,
    notThis: 'the body is neither a JSON object nor a list of them',
  });
