/**
 * The interface between ingest and processor: only this file encodes and decodes frames.
 *
 * A frame is one stream message: MessagePack, `[VERSION, entry, entry, …]`. An entry is one
 * envelope (or one heartbeat ping), as a MessagePack array inside a byte string of its own. So an
 * entry that cannot be decoded can be named, kept and replayed apart from its neighbours. Arrays
 * have no field names: any change here needs a new version. A further kind of entry needs none: a
 * processor that does not know it makes it a dead letter.
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
 *
 * The trace of a sampled entry is beside the frame, in a header of its message. So a processor that
 * knows nothing of traces reads the frame, and other frames are as long as ever.
 *
 *     Sluice-Trace   <place of the entry, from 0> <traceparent>        one line for each
 */
import { Decoder } from '@msgpack/msgpack';
import { ITEM_TYPES, type ItemType } from '../lib/item-types.ts';
import { MessagePackWriter, SCALAR_BYTES_MAX } from '../lib/msgpack-writer.ts';

export const FRAME_VERSION = 1;

export type EntryItem = {
  /** Position among all items of the envelope, skipped ones included, from 0. */
  index: number;
  type: ItemType;
  /** The item header line as sent: JSON, UTF-8. Empty when it was moved into the parts. */
  header: Uint8Array;
  /**
   * Set when the item headers were moved into the parts, behind the payloads: the header's length.
   * A hundred headers may exceed a frame.
   */
  headerLength?: number;
  /** Bytes of the payload. In a large entry they are in the parts, one payload after the other. */
  length: number;
  /** The payload; undefined in a large entry. */
  payload?: Uint8Array;
};

/** The place of a large entry's payloads in the chunks stream. */
export type PartsRef = {
  /** Stream sequence numbers in order. */
  sequences: number[];
  /** Bytes of all parts together. */
  length: number;
  /** SHA-256 over all parts in order. */
  sha256: Uint8Array;
};

/**
 * Kinds of data that the processor removes from payloads (docs/privacy.md). A new kind is added at
 * the end.
 */
export const SCRUBS = ['emails', 'cards', 'ips', 'user-ip', 'keys'] as const;
export type Scrub = (typeof SCRUBS)[number];

/**
 * Changes to the payloads before they are stored. Ingest decides when it accepts the envelope, so
 * that every delivery makes the same record, whatever becomes of the project.
 */
export type Privacy = {
  scrub: readonly Scrub[];
  /** Names of members whose values are removed, beside those of `keys`. */
  names: readonly string[];
  /** Takes the place of `{{auto}}` as the user's address. */
  clientAddress?: string | undefined;
  /** User-Agent of the request, for containers whose SDK asks for it. */
  userAgent?: string | undefined;
};

export type EnvelopeEntry = {
  kind: 'envelope';
  projectId: string;
  /** 32 lower-case hex. */
  eventId: string;
  /** Unix milliseconds, the worker's clock. */
  receivedAt: number;
  /** The envelope header's sent_at, as sent. */
  sentAt?: string;
  /**
   * Who sent it, `name/version`: by the envelope header, else by the key's header or query, else by
   * the User-Agent.
   */
  sdk?: string;
  /** UTC month of the usage, `YYYY-MM` by Redis's clock; absent when it was not counted. */
  month?: string;
  /** This envelope's position in the month's usage, from 1. */
  position?: number;
  items: EntryItem[];
  parts?: PartsRef;
  /** Absent: payloads are stored byte for byte. */
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
 * One place of a frame. `bytes` is the encoded entry (a view into the frame), good for {@link
 * encodeFrame}.
 */
export type FrameSlot =
  | { ok: true; entry: Entry; bytes: Uint8Array }
  | { ok: false; error: FrameError; bytes: Uint8Array };

export const TRACE_HEADER = 'Sluice-Trace';
/** Entries of one frame with a trace; these headers fit FRAME_OVERHEAD_BYTES. */
export const FRAME_TRACES_MAX = 32;

/** Undefined: no entry has a trace. */
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

/** A line of {@link traceLines}; the traceparent is checked by its reader. */
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

/** Earlier builds read three fields, so the fourth is written only where there is one. */
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

/** At least as many bytes as {@link encodeEntry} makes of it; text is counted at its worst. */
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

/** One MessagePack array, ready for {@link encodeFrame}. Copies the payloads. */
export function encodeEntry(entry: Entry): Uint8Array {
  const out = new MessagePackWriter(encodedBytesBound(entry));
  writeEntry(out, entry);
  return out.written;
}

/**
 * One stream message. Copies the payloads.
 * @param entries an encoded one is of {@link encodeEntry}, or the `bytes` of a decoded slot
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
 * How many entries a frame of {@link encodeFrame} has, read from its first bytes alone. Undefined
 * for other bytes and for a frame without entries.
 */
export function countOfEntries(frame: Uint8Array): number | undefined {
  const [tag = 0, high = 0, low = 0] = frame;
  const length = tag === 0xdc ? high * 256 + low : tag >>> 4 === 9 ? tag & 0x0f : 0;
  return length > 1 ? length - 1 : undefined;
}

/** Nil fields are left out. They are set one by one: spreads cost more than the decoding. */
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

/** Payloads are all in the entry, or all in parts of the items' lengths; headers likewise. */
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

/** Bounds of arrays: far above what we write, far below what a forged header could ask for. */
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
 * Every place of a frame in order. An entry that cannot be decoded takes only its own place.
 * Payloads are views into `frame`.
 * @throws FrameError when the whole is not a frame of this version
 */
export function decodeFrame(frame: Uint8Array): FrameSlot[] {
  const value = decodeValue(frame, 'frame');
  if (!Array.isArray(value)) return fail('frame: array', value);
  const [version, ...entries] = value;
  if (version !== FRAME_VERSION) throw new FrameError(`frame of version ${FRAME_VERSION} expected`);
  return list(entries, bytes, 'entry as byte string').map(readSlot);
}

/**
 * Shapes of decoded MessagePack values, field by field; each complaint names the field and what was
 * found. Pure.
 */

/**
 * Bytes that are not a frame of this version, or not an entry. `message` says what was expected and
 * what was found.
 */
export class FrameError extends Error {
  override name = 'FrameError';
}

/** Returns the value as a T, or throws FrameError with `what`. */
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
