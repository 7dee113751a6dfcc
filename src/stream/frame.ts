/**
 * The interface between ingest and processor: only this file encodes and decodes frames.
 *
 * A frame is one stream message in MessagePack: `[VERSION, entry, entry, …]`. An entry is one
 * envelope or one heartbeat ping. It is a MessagePack array inside a byte string of its own. So an
 * entry that cannot be decoded can be kept and replayed apart from the others.
 *
 * Arrays have no field names, so any change to a layout below needs a new version. A new kind of
 * entry needs none: a processor that does not know the kind makes the entry a dead letter.
 *
 *     envelope   [0, projectId, eventId, receivedAt, sentAt | nil, sdk | nil,
 *                 month | nil, position | nil, [item, …], parts | nil]
 *     item       [index, position of the type in ITEM_TYPES, header | its length, length,
 *                 payload | nil]
 *     parts      [[sequence, …], length, sha256]
 *     heartbeat  [1, token, receivedAt, body | nil]
 *     envelope of a project with privacy settings
 *                [2, … as above …, privacy]
 *     privacy    [[position in SCRUBS, …], [name, …], client's address | nil]
 *                or the same with a fourth element, the User-Agent
 *
 * The trace of a sampled entry is not in the frame but in a header of its message. So a frame
 * without traces has no bytes for them. There is one header for each sampled entry:
 *
 *     Sluice-Trace   <position of the entry, from 0> <traceparent>
 */
import { Decoder } from '@msgpack/msgpack';
import { ITEM_TYPES, type ItemType } from '../lib/item-types.ts';
import { MessagePackWriter, SCALAR_BYTES_MAX } from '../lib/msgpack-writer.ts';

export const FRAME_VERSION = 1;

export type EntryItem = {
  /** Position among all items of the envelope, including skipped ones, from 0. */
  index: number;
  type: ItemType;
  /**
   * The item header line as sent (JSON, UTF-8). Empty when the item headers are in the entry's
   * parts.
   */
  header: Uint8Array;
  /**
   * The header's length, set when the item headers are in the entry's parts, behind the payloads.
   * Long headers become parts, because a hundred headers may exceed a frame.
   */
  headerLength?: number;
  /** Bytes of the payload. In a large entry the payloads are in the parts, one after the other. */
  length: number;
  /** The payload; undefined in a large entry. */
  payload?: Uint8Array;
};

/** Where a large entry's payloads are in the chunks stream. */
export type PartsRef = {
  /** Sequence numbers of the parts in the stream, in order. */
  sequences: number[];
  /** Bytes of all parts together. */
  length: number;
  /** SHA-256 over all parts in order. */
  sha256: Uint8Array;
};

/**
 * Kinds of data that the processor removes from payloads (docs/privacy.md). A new kind goes to the
 * end of the list.
 */
export const SCRUBS = ['emails', 'cards', 'ips', 'user-ip', 'keys'] as const;
export type Scrub = (typeof SCRUBS)[number];

/**
 * How payloads are changed before they are stored. Ingest takes these settings from the project
 * when it accepts the envelope, so a change of the project does not change envelopes that are
 * queued.
 */
export type Privacy = {
  scrub: readonly Scrub[];
  /** Names of JSON members whose values are removed. The scrub `keys` adds further names. */
  names: readonly string[];
  /**
   * The client's address. It replaces the user's address where an SDK sent the text `{{auto}}`.
   */
  clientAddress?: string | undefined;
  /** User-Agent of the request. It is filled into containers whose SDK asks for it. */
  userAgent?: string | undefined;
};

export type EnvelopeEntry = {
  kind: 'envelope';
  projectId: string;
  /** 32 lower-case hex digits. */
  eventId: string;
  /** When ingest received the envelope, Unix milliseconds by the worker's clock. */
  receivedAt: number;
  /** The sent_at of the envelope header, as sent. */
  sentAt?: string;
  /**
   * The client as `name/version`: from the envelope header, else from the header or query with the
   * key, else from the User-Agent.
   */
  sdk?: string;
  /**
   * UTC month in which the envelope was counted, `YYYY-MM` by Redis's clock; absent when it was not
   * counted.
   */
  month?: string;
  /** Position of this envelope in the month's usage, from 1. */
  position?: number;
  items: EntryItem[];
  parts?: PartsRef;
  /** Absent: nothing is removed from payloads or filled into them. */
  privacy?: Privacy | undefined;
};

export type HeartbeatEntry = {
  kind: 'heartbeat';
  token: string;
  receivedAt: number;
  body?: Uint8Array;
};

export type Entry = EnvelopeEntry | HeartbeatEntry;

/**
 * One decoded entry of a frame, or why it cannot be decoded. `bytes` is the encoded entry, a view
 * into the frame.
 */
export type FrameSlot =
  | { ok: true; entry: Entry; bytes: Uint8Array }
  | { ok: false; error: FrameError; bytes: Uint8Array };

export const TRACE_HEADER = 'Sluice-Trace';
/** Most entries of one frame that have a trace. That many headers fit FRAME_OVERHEAD_BYTES. */
export const FRAME_TRACES_MAX = 32;

/**
 * Values of the trace headers of a frame, for at most FRAME_TRACES_MAX entries; undefined when no
 * entry has a trace.
 */
export function traceLines(entries: readonly { traceparent?: string | undefined }[]): string[] | undefined {
  let lines: string[] | undefined;
  for (let place = 0; place < entries.length; place++) {
    const traceparent = entries[place]?.traceparent;
    if (traceparent === undefined) continue;
    lines ??= [];
    if (lines.push(`${place} ${traceparent}`) === FRAME_TRACES_MAX) break;
  }
  return lines;
}

/** Splits a line of {@link traceLines}. The traceparent is not checked. */
export function readTrace(line: string): { place: number; traceparent: string } {
  const [place, traceparent = ''] = line.split(' ');
  return { place: Number(place), traceparent };
}

const ENVELOPE = 0;
const HEARTBEAT = 1;
const PRIVATE_ENVELOPE = 2;
/** Bytes that {@link encodeFrame} adds to each entry: tag and 32-bit length. */
export const FRAME_BYTES_PER_ENTRY = 5;

const textBound = (text: string | undefined): number => SCALAR_BYTES_MAX + 3 * (text?.length ?? 0);

function envelopeBound(entry: EnvelopeEntry): number {
  const { sequences = [], sha256 } = entry.parts ?? {};
  let bound = (12 + sequences.length) * SCALAR_BYTES_MAX + (sha256?.length ?? 0);
  bound += textBound(entry.projectId) + textBound(entry.eventId) + textBound(entry.month);
  bound += textBound(entry.sentAt) + textBound(entry.sdk);
  for (const item of entry.items)
    bound += 6 * SCALAR_BYTES_MAX + item.header.length + (item.payload?.length ?? 0);
  return entry.privacy ? bound + privacyBound(entry.privacy) : bound;
}

function privacyBound({ scrub, names, clientAddress, userAgent }: Privacy): number {
  const bound = (3 + scrub.length) * SCALAR_BYTES_MAX + textBound(clientAddress) + textBound(userAgent);
  return names.reduce((sum, name) => sum + textBound(name), bound);
}

const heartbeatBound = (entry: HeartbeatEntry): number =>
  5 * SCALAR_BYTES_MAX + textBound(entry.token) + (entry.body?.length ?? 0);

function writeEnvelope(out: MessagePackWriter, entry: EnvelopeEntry): void {
  out.array(entry.privacy ? 11 : 10);
  out.uint(entry.privacy ? PRIVATE_ENVELOPE : ENVELOPE);
  out.string(entry.projectId);
  out.string(entry.eventId);
  out.uint(entry.receivedAt);
  writeOptional(out, entry.sentAt);
  writeOptional(out, entry.sdk);
  writeOptional(out, entry.month);
  if (entry.position === undefined) out.nil();
  else out.uint(entry.position);
  out.array(entry.items.length);
  for (const item of entry.items) writeItem(out, item);
  if (entry.parts) writeParts(out, entry.parts);
  else out.nil();
  if (entry.privacy) writePrivacy(out, entry.privacy);
}

/**
 * Writes the privacy settings. Earlier builds read exactly three fields, so the fourth is written
 * only when there is a User-Agent.
 */
function writePrivacy(out: MessagePackWriter, { scrub, names, clientAddress, userAgent }: Privacy): void {
  out.array(userAgent === undefined ? 3 : 4);
  out.array(scrub.length);
  for (const one of scrub) out.uint(SCRUBS.indexOf(one));
  out.array(names.length);
  for (const name of names) out.string(name);
  writeOptional(out, clientAddress);
  if (userAgent !== undefined) out.string(userAgent);
}

function writeOptional(out: MessagePackWriter, text: string | undefined): void {
  if (text === undefined) out.nil();
  else out.string(text);
}

function writeItem(out: MessagePackWriter, item: EntryItem): void {
  out.array(5);
  out.uint(item.index);
  out.uint(ITEM_TYPES.indexOf(item.type));
  if (item.headerLength === undefined) out.bytes(item.header);
  else out.uint(item.headerLength);
  out.uint(item.length);
  if (item.payload) out.bytes(item.payload);
  else out.nil();
}

function writeParts(out: MessagePackWriter, parts: PartsRef): void {
  out.array(3);
  out.array(parts.sequences.length);
  for (const sequence of parts.sequences) out.uint(sequence);
  out.uint(parts.length);
  out.bytes(parts.sha256);
}

/**
 * Upper bound of the bytes that {@link encodeEntry} makes of an entry; text is counted at three
 * bytes a character.
 */
export const encodedBytesBound = (entry: Entry): number =>
  entry.kind === 'envelope' ? envelopeBound(entry) : heartbeatBound(entry);

function writeEntry(out: MessagePackWriter, entry: Entry): void {
  if (entry.kind === 'envelope') return writeEnvelope(out, entry);
  out.array(4);
  out.uint(HEARTBEAT);
  out.string(entry.token);
  out.uint(entry.receivedAt);
  if (entry.body) out.bytes(entry.body);
  else out.nil();
}

/**
 * Encodes an entry as one MessagePack array, ready for {@link encodeFrame}. The payloads are
 * copied.
 */
export function encodeEntry(entry: Entry): Uint8Array {
  const out = new MessagePackWriter(encodedBytesBound(entry));
  writeEntry(out, entry);
  return out.written;
}

/**
 * Encodes a frame, which is one stream message. The payloads are copied.
 * @param entries an encoded entry comes from {@link encodeEntry} or is the `bytes` of a decoded
 * slot
 */
export function encodeFrame(entries: readonly (Entry | Uint8Array)[]): Uint8Array {
  let bound = 2 * SCALAR_BYTES_MAX;
  for (const entry of entries)
    bound += FRAME_BYTES_PER_ENTRY + (entry instanceof Uint8Array ? entry.length : encodedBytesBound(entry));
  const out = new MessagePackWriter(bound);
  out.array(entries.length + 1);
  out.uint(FRAME_VERSION);
  for (const entry of entries) {
    if (entry instanceof Uint8Array) out.bytes(entry);
    else out.nested(() => writeEntry(out, entry));
  }
  return out.written;
}

/**
 * Number of entries in a frame that {@link encodeFrame} made, read from its first bytes. Undefined
 * for other bytes and for a frame without entries.
 */
export function countOfEntries(frame: Uint8Array): number | undefined {
  const [tag = 0, high = 0, low = 0] = frame;
  const length = tag === 0xdc ? high * 256 + low : tag >>> 4 === 9 ? tag & 0x0f : 0;
  return length > 1 ? length - 1 : undefined;
}

/**
 * Reads an item. Nil fields are omitted. The fields are set one by one, because spreading objects
 * costs more time than the decoding.
 */
const readItem: Checked<EntryItem> = (value, what) => {
  const [index, type, header, length, payload] = tuple(value, 5, what);
  const item: EntryItem = {
    index: count(index, 'item index'),
    type: ITEM_TYPES[count(type, 'item type')] ?? fail('known item type', type),
    header: typeof header === 'number' ? new Uint8Array() : bytes(header, 'item header'),
    length: count(length, 'item length'),
  };
  if (typeof header === 'number') item.headerLength = count(header, 'header length');
  if (payload !== null) item.payload = bytes(payload, 'payload');
  if (item.payload && item.payload.length !== item.length) fail(`payload of ${item.length} bytes`, payload);
  return item;
};

const readParts: Checked<PartsRef> = (value, what) => {
  const [sequences, length, sha256] = tuple(value, 3, what);
  const parts = {
    sequences: list(sequences, count, 'part sequence'),
    length: count(length, 'length of parts'),
    sha256: bytes(sha256, 'hash of parts'),
  };
  return parts.sha256.length === 32 ? parts : fail('SHA-256 of 32 bytes', sha256);
};

/**
 * Checks that all payloads are in the entry, or all in its parts. The parts must be as long as the
 * payloads and the item headers in them together.
 */
function checkPlaces({ items, parts }: EnvelopeEntry): void {
  let length = 0;
  for (const item of items) {
    if ((item.payload === undefined) !== (parts !== undefined)) fail('payload where parts say', item.payload);
    if (item.headerLength !== undefined && !parts) fail('item header', item.headerLength);
    length += item.length + (item.headerLength ?? 0);
  }
  if (parts && parts.length !== length) fail(`parts of ${length} bytes`, parts.length);
}

const readScrub: Checked<Scrub> = (value, what) => SCRUBS[count(value, what)] ?? fail('known scrub', value);

function readPrivacy(value: unknown): Privacy {
  const length = Array.isArray(value) && value.length === 4 ? 4 : 3;
  const [scrub, names, clientAddress, userAgent] = tuple(value, length, 'privacy');
  return {
    scrub: list(scrub, readScrub, 'scrub'),
    names: list(names, text, 'name'),
    ...(clientAddress !== null && { clientAddress: text(clientAddress, 'client address') }),
    ...(userAgent !== undefined && { userAgent: text(userAgent, 'user agent') }),
  };
}

function readEnvelope(value: readonly unknown[]): EnvelopeEntry {
  const isPrivate = value[0] === PRIVATE_ENVELOPE;
  const fields = tuple(value, isPrivate ? 11 : 10, 'envelope');
  const [, projectId, eventId, receivedAt, sentAt, sdk, month, position, items, parts] = fields;
  const entry: EnvelopeEntry = {
    kind: 'envelope',
    projectId: text(projectId, 'projectId'),
    eventId: text(eventId, 'eventId'),
    receivedAt: count(receivedAt, 'receivedAt'),
    items: list(items, readItem, 'item'),
  };
  if (sentAt !== null) entry.sentAt = text(sentAt, 'sentAt');
  if (sdk !== null) entry.sdk = text(sdk, 'sdk');
  if (month !== null) entry.month = text(month, 'month');
  if (position !== null) entry.position = count(position, 'position');
  if (parts !== null) entry.parts = readParts(parts, 'parts');
  if (isPrivate) entry.privacy = readPrivacy(fields[10]);
  checkPlaces(entry);
  return entry;
}

function readHeartbeat(value: unknown): HeartbeatEntry {
  const [, token, receivedAt, body] = tuple(value, 4, 'heartbeat');
  const entry: HeartbeatEntry = {
    kind: 'heartbeat',
    token: text(token, 'token'),
    receivedAt: count(receivedAt, 'receivedAt'),
  };
  if (body !== null) entry.body = bytes(body, 'body');
  return entry;
}

/**
 * Longest array that is decoded: far longer than any that sluice writes, far shorter than a forged
 * header could ask for.
 */
const ARRAY_LENGTH_MAX = 100_000;
const decoder = new Decoder({ maxArrayLength: ARRAY_LENGTH_MAX });

function decodeValue(encoded: Uint8Array, what: string): unknown {
  try {
    return decoder.decode(encoded);
  } catch (cause) {
    throw new FrameError(`${what} is no MessagePack`, { cause });
  }
}

function readEntry(encoded: Uint8Array): Entry {
  const value = decodeValue(encoded, 'entry');
  if (!Array.isArray(value)) return fail('entry of a known kind', value);
  const [kind] = value;
  if (kind === ENVELOPE || kind === PRIVATE_ENVELOPE) return readEnvelope(value);
  if (kind === HEARTBEAT) return readHeartbeat(value);
  return fail('entry of a known kind', value);
}

function readSlot(encoded: Uint8Array): FrameSlot {
  try {
    return { ok: true, entry: readEntry(encoded), bytes: encoded };
  } catch (error) {
    if (!(error instanceof FrameError)) throw error;
    return { ok: false, error, bytes: encoded };
  }
}

/**
 * Decodes all entries of a frame, in order. An entry that cannot be decoded affects no other.
 * Payloads are views into `frame`.
 * @throws FrameError when `frame` as a whole is not a frame of this version
 */
export function decodeFrame(frame: Uint8Array): FrameSlot[] {
  const value = decodeValue(frame, 'frame');
  if (!Array.isArray(value)) return fail('frame: array', value);
  const [version, ...entries] = value;
  if (version !== FRAME_VERSION) throw new FrameError(`frame of version ${FRAME_VERSION} expected`);
  return list(entries, bytes, 'entry as byte string').map(readSlot);
}

/**
 * Thrown for bytes that are not a frame of this version, or not an entry. `message` says what was
 * expected and what was found.
 */
export class FrameError extends Error {
  override name = 'FrameError';
}

/** Returns the value as a T, or throws a FrameError that names `what`. */
export type Checked<T> = (value: unknown, what: string) => T;

export function fail(what: string, value: unknown): never {
  const found = value === null ? 'nil' : Array.isArray(value) ? `array of ${value.length}` : typeof value;
  throw new FrameError(`${what} expected, found ${found}`);
}

export const text: Checked<string> = (value, what) => (typeof value === 'string' ? value : fail(what, value));
export const bytes: Checked<Uint8Array> = (value, what) =>
  value instanceof Uint8Array ? value : fail(what, value);
export const count: Checked<number> = (value, what) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : fail(what, value);

export function tuple(value: unknown, length: number, what: string): readonly unknown[] {
  return Array.isArray(value) && value.length === length ? value : fail(`${what}: array of ${length}`, value);
}

export function list<T>(value: unknown, one: Checked<T>, what: string): T[] {
  return Array.isArray(value) ? value.map((each) => one(each, what)) : fail(`${what}: array`, value);
}
