/**
 * Decodes an entry of a frame into records for the sink. For an item that cannot be decoded, the
 * result is a reason.
 */
import { isUtf8 } from 'node:buffer';
import { assert } from '../../lib/assert.ts';
import { isContainerType, isExtraType, isFile } from '../../lib/item-types.ts';
import { jsonText, jsonTextInSteps } from '../../lib/json-text.ts';
import { atOnce, Slices, type Steps } from '../../lib/slices.ts';
import { DATE_MS_MAX, moment, rfc3339, rfc3339OfReceipt } from '../../lib/timestamp.ts';
import { RECORDING_BYTES_MAX, SCRUBBED_BYTES_MAX, SLICED_BYTES_MIN } from '../../limits.ts';
import { filledContainer, isSplit } from '../../sink/containers.ts';
import { resendKey } from '../../sink/item-key.ts';
import type { EnvelopeFields, ItemFields, SinkRecord } from '../../sink/sink.ts';
import type { EntryItem, EnvelopeEntry, HeartbeatEntry, Privacy } from '../../stream/frame.ts';
import { removesAnything, scrubbedInSteps } from '../scrub/scrubber.ts';
import type { InflationBudgets } from './inflation-budgets.ts';
import { decodeRecording, type Packing } from './recording.ts';

/**
 * An item whose payload is at hand. `fromOtlp`: the item is part of an OTLP request, which a client
 * may send again.
 */
export type WholeItem = EntryItem & { payload: Uint8Array; fromOtlp?: true };
/** `scrubMs`: how long scrubbing the item took, in ms; absent when nothing was scrubbed. */
export type Decoded = ({ ok: true; record: SinkRecord } | { ok: false; reason: string }) & {
  scrubMs?: number;
};
/** What all records of one envelope begin with, as text and as values. */
type Shared = Readonly<{ ids: string; origin: string; envelope: EnvelopeFields }>;

const NOT_STORED: Shared = { ids: '', origin: '', envelope: { projectId: '', eventId: '', receivedAt: 0 } };
const isUnbounded = (receivedAt: number): boolean => receivedAt > DATE_MS_MAX;

const AS_IT_CAME = { ok: false, reason: 'kept as it came' } as const;

/**
 * Bytes to which all recordings of one envelope may inflate together. Ingest does not inflate
 * recordings, and 5 MiB may inflate to 5 GiB.
 */
const RECORDINGS_BYTES_MAX = 2 * RECORDING_BYTES_MAX;
const TOO_MUCH = `recordings before it in the envelope took the ${RECORDINGS_BYTES_MAX} bytes that all may inflate to`;

/** Reason of the dead letter, when an item is too long once it is scrubbed. */
const GROWN = `payload without what is private has more than ${SCRUBBED_BYTES_MAX} bytes`;

export type DecoderParts = {
  slices?: Slices;
  /**
   * Bounds how far each project's recordings inflate. Without it, each recording may inflate to
   * RECORDING_BYTES_MAX.
   */
  budgets?: InflationBudgets;
};

/**
 * Decodes the items of one envelope one after the other, so that only one inflated recording is in
 * memory at a time. Small items are decoded at once, large ones in slices with pauses between them.
 */
export class EnvelopeDecoder {
  readonly #entry: EnvelopeEntry;
  readonly #slices: Slices;
  readonly #budgets: InflationBudgets | undefined;
  readonly #shared: Shared;
  #recordingBytesLeft = RECORDINGS_BYTES_MAX;
  /** Why no item of the entry can be stored; undefined when items can. */
  readonly fault: string | undefined;

  constructor(entry: EnvelopeEntry, { slices = new Slices(), budgets }: DecoderParts = {}) {
    this.#entry = entry;
    this.#slices = slices;
    this.#budgets = budgets;
    this.fault = isUnbounded(entry.receivedAt) ? 'receivedAt is no moment' : undefined;
    this.#shared = this.fault ? NOT_STORED : sharedFields(entry);
  }

  decode(item: WholeItem): Decoded | Promise<Decoded> {
    const header = headerText(item.header);
    if (!header.ok) return header;
    if (item.type === 'replay_recording') return this.#recording(item, header.text);
    const decoding = this.#decoding(item, header.text);
    return item.payload.length < SLICED_BYTES_MIN ? atOnce(decoding) : this.#inSlices(decoding);
  }

  #inSlices<T>(steps: Steps<T>): Promise<T> {
    return this.#slices.run(steps);
  }

  *#decoding(item: WholeItem, header: string): Steps<Decoded> {
    const { privacy } = this.#entry;
    const removes = privacy !== undefined && removesAnything(privacy);
    const isKept = isFile(item.type);
    const payload = isOwnJson(item)
      ? { ok: true as const, line: item.payload }
      : isKept && !removes
        ? AS_IT_CAME
        : yield* jsonTextInSteps(item.payload);
    if (payload.ok && !isKept)
      return yield* this.#scrubbedRecord(item, header, this.#filled(item, payload.line));
    if (!payload.ok && !isExtraType(item.type)) return { ok: false, reason: `payload is ${payload.reason}` };
    if (!payload.ok && removes)
      return { ok: false, reason: `payload is ${payload.reason}: it cannot be scrubbed` };
    if (!removes) return { ok: true, record: this.#base64Record(item, header, item.payload) };
    return yield* this.#scrubbed(item.payload, privacy, (bytes) => this.#base64Record(item, header, bytes));
  }

  #filled({ type, index }: WholeItem, json: Uint8Array): Uint8Array {
    const { privacy } = this.#entry;
    return privacy && isContainerType(type) ? filledContainer(json, index, privacy) : json;
  }

  async #recording(item: WholeItem, header: string): Promise<Decoded> {
    if (this.#recordingBytesLeft === 0) return { ok: false, reason: TOO_MUCH };
    const { projectId, privacy } = this.#entry;
    const mayInflate = this.#budgets?.draft(projectId, item.payload.length);
    const recording = await decodeRecording(item.payload, {
      inSlices: (steps) => this.#inSlices(steps),
      bytesMax: Math.min(RECORDING_BYTES_MAX, this.#recordingBytesLeft),
      ...(mayInflate && { mayInflate }),
    });
    this.#recordingBytesLeft -= recording.bytes;
    if (recording.ok) return this.#inSlices(this.#scrubbedRecord(item, header, recording.json));
    if (!recording.packed) return recording;
    if (privacy && removesAnything(privacy))
      return { ok: false, reason: `${recording.reason}, and it cannot be scrubbed packed` };
    return { ok: true, record: this.#base64Record(item, header, item.payload, recording.packed) };
  }

  *#scrubbedRecord(item: WholeItem, header: string, json: Uint8Array): Steps<Decoded> {
    const { privacy } = this.#entry;
    if (!privacy) return { ok: true, record: this.#record(item, header, json) };
    return yield* this.#scrubbed(json, privacy, (clean) => this.#record(item, header, clean));
  }

  *#scrubbed(json: Uint8Array, privacy: Privacy, record: (clean: Uint8Array) => SinkRecord): Steps<Decoded> {
    const { result, ms: scrubMs } = yield* this.#slices.timed(scrubbedInSteps(json, privacy));
    return result ? { ok: true, record: record(result), scrubMs } : { ok: false, reason: GROWN, scrubMs };
  }

  /** Makes a record whose payload is stored unparsed, in base64. */
  #base64Record(item: WholeItem, header: string, payload: Uint8Array, encoding?: Packing): SinkRecord {
    const { buffer, byteOffset, length } = payload;
    const json = Buffer.from(`"${Buffer.from(buffer, byteOffset, length).toString('base64')}"`, 'latin1');
    const { head, fields, ...record } = this.#record(item, header, json);
    const packing = encoding ? `"payload_encoding":"${encoding}",` : '';
    const named = `${head.slice(0, -'"payload":'.length)}${packing}"payload_base64":`;
    const form = { isBase64: true, ...(encoding && { encoding }) };
    return { ...record, head: named, fields: { ...(fields as ItemFields), ...form } };
  }

  #record(item: WholeItem, header: string, payload: Uint8Array): SinkRecord {
    const { ids, origin, envelope } = this.#shared;
    const { type } = item;
    assert(type !== 'otlp_traces' && type !== 'otlp_logs', 'an OTLP request is cut into containers first');
    const place = `"item_index":${item.index},"type":"${type}"`;
    const head = `${ids},${place},${origin},"item_header":${header},"payload":`;
    const fields = { envelope, index: item.index, header };
    const record: SinkRecord = { type, head, fields, json: payload };
    if (type === 'event' || type === 'transaction' || item.fromOtlp)
      record.resend = { key: resendKey(this.#entry, item), receivedAt: this.#entry.receivedAt };
    return record;
  }
}

/** Whether the payload is a container that the processor has made, which needs no check. */
const isOwnJson = ({ type, fromOtlp }: WholeItem): boolean => fromOtlp === true && isSplit(type);

type HeaderText = { ok: true; text: string } | { ok: false; reason: string };

/**
 * The last item header that was read. Many SDKs send `{"type":"event"}` every time, which is then
 * not parsed again.
 */
let lastHeader: { bytes: Buffer; text: HeaderText } | undefined;
/** Longest item header that is remembered. */
const HEADER_BYTES_KEPT_MAX = 256;

/** Returns an item header as JSON on one line. */
function headerText(header: Uint8Array): HeaderText {
  if (lastHeader && lastHeader.bytes.length === header.length && lastHeader.bytes.equals(header))
    return lastHeader.text;
  const text = readHeader(header);
  if (header.length <= HEADER_BYTES_KEPT_MAX) lastHeader = { bytes: Buffer.from(header), text };
  return text;
}

function readHeader(header: Uint8Array): HeaderText {
  const json = jsonText(header);
  if (!json.ok) return { ok: false, reason: `item header is ${json.reason}` };
  if (json.kind !== 'object') return { ok: false, reason: 'item header is no JSON object' };
  const { buffer, byteOffset, length } = json.line;
  return { ok: true, text: Buffer.from(buffer, byteOffset, length).toString() };
}

/** Matches a text in which JSON escapes no character. */
const UNESCAPED = /^[\w./:@+-]*$/;
const quoted = (text: string): string => (UNESCAPED.test(text) ? `"${text}"` : JSON.stringify(text));

function sharedFields({ projectId, eventId, receivedAt, sentAt: sent, sdk }: EnvelopeEntry): Shared {
  const sentAt = sent === undefined ? undefined : moment(sent);
  let origin = `"received_at":"${rfc3339OfReceipt(receivedAt)}"`;
  if (sentAt) origin += `,"sent_at":"${sentAt.text}"`;
  if (sdk !== undefined) origin += `,"sdk":${quoted(sdk)}`;
  const envelope: EnvelopeFields = { projectId, eventId, receivedAt };
  if (sentAt) envelope.sentAt = sentAt.ms;
  if (sdk !== undefined) envelope.sdk = sdk;
  const ids = `{"project_id":${quoted(projectId)},"event_id":${quoted(eventId)}`;
  return { ids, origin, envelope };
}

/** Decodes a heartbeat into its record. */
export function decodeHeartbeat({ token, receivedAt, body }: HeartbeatEntry): Decoded {
  if (isUnbounded(receivedAt)) return { ok: false, reason: 'receivedAt is no moment' };
  const begin = `{"type":"heartbeat","token":${JSON.stringify(token)},"received_at":`;
  const at = JSON.stringify(rfc3339(receivedAt));
  const fields = { token, receivedAt, bodyIn: undefined };
  const record = { type: 'heartbeat', fields } as const;
  if (body === undefined || body.length === 0)
    return { ok: true, record: { ...record, head: begin, json: Buffer.from(at) } };
  const bodyIn = isUtf8(body) ? 'body' : 'body_base64';
  const text = Buffer.from(body).toString(bodyIn === 'body' ? 'utf8' : 'base64');
  const json = Buffer.from(JSON.stringify(text));
  return {
    ok: true,
    record: { ...record, fields: { ...fields, bodyIn }, head: `${begin}${at},"${bodyIn}":`, json },
  };
}
