/** Accepted items and refusals as `sluice tail` and the management API show them. */
import { isUtf8 } from 'node:buffer';
import type { Refusal } from '../ingest/http/record.ts';
import { type ItemType, isOtlp } from '../lib/item-types.ts';
import { expanded } from '../processor/decode/otlp/request.ts';
import { decodeFrame, type Entry, type EntryItem, type EnvelopeEntry, FrameError } from '../stream/frame.ts';

/** The fields of the record that the sink will store, as far as they are known before that. */
export type SeenItem = {
  project_id?: string;
  type: ItemType | 'heartbeat';
  event_id?: string;
  token?: string;
  received_at: string;
  /** Bytes of the payload, or of the body of a heartbeat. */
  payload_bytes: number;
  /**
   * JSON of the payload. It is absent for a recording, which is compressed, and for an item of a
   * large envelope, whose payloads are in parts.
   */
  payload?: unknown;
  body?: string;
  /** Number of items that were not shown since the previous line, for want of time or room. */
  missed?: number;
};
export type Seen = SeenItem | Refusal;

/**
 * Choice of a `tail`: the items of a project (named by its id or alias) and of a type. With
 * `refused`, the project's refusals are shown instead of items.
 */
export type TailWanted = {
  project?: string | undefined;
  type?: SeenItem['type'] | undefined;
  refused?: boolean | undefined;
};

/**
 * Function that makes the lines to show. An item or a refusal makes one line, an OTLP request a
 * line for each container. When a reader is behind, the function is not called.
 */
export type Sighting = () => readonly Seen[];

const decodeText = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');

function parsed(bytes: Uint8Array | undefined): unknown {
  if (!bytes) return undefined;
  try {
    return JSON.parse(decodeText(bytes));
  } catch {
    return undefined;
  }
}

function heartbeatOf({ token, receivedAt, body }: Entry & { kind: 'heartbeat' }): SeenItem {
  const bytes = Buffer.from(body ?? []);
  const text = isUtf8(bytes) ? bytes.toString('utf8') : undefined;
  return {
    type: 'heartbeat',
    token,
    received_at: new Date(receivedAt).toISOString(),
    payload_bytes: bytes.length,
    ...(text === undefined ? { body_base64: bytes.toString('base64') } : text && { body: text }),
  };
}

function seenOf({ projectId, eventId, receivedAt, sentAt, sdk }: EnvelopeEntry, item: EntryItem): SeenItem {
  const fields = {
    project_id: projectId,
    event_id: eventId,
    item_index: item.index,
    type: item.type,
    received_at: new Date(receivedAt).toISOString(),
    ...(sentAt !== undefined && { sent_at: sentAt }),
    ...(sdk !== undefined && { sdk }),
    item_header: parsed(item.header),
    payload_bytes: item.length,
  };
  const payload = parsed(item.payload);
  return { ...fields, ...(payload !== undefined && { payload }) };
}

/** Returns the containers of an OTLP request. A large request, which is in parts, stays whole. */
function shownItems(item: EntryItem): EntryItem[] {
  const { payload } = item;
  if (!payload || !isOtlp(item.type)) return [item];
  return [...expanded({ ...item, payload })].flatMap((part) => part?.item ?? []);
}

/**
 * Finds the wanted items of an entry. The types of the containers in an OTLP request are known only
 * when it is parsed, so the function for such a request may make no line.
 */
export function sightingsOf(entry: Entry, { project, type }: TailWanted): Sighting[] {
  const isWanted = (one: { type: string }): boolean => type === undefined || type === one.type;
  if (entry.kind === 'heartbeat') {
    const shown = project === undefined && isWanted({ type: 'heartbeat' });
    return shown ? [() => [heartbeatOf(entry)]] : [];
  }
  if (project !== undefined && entry.projectId !== project) return [];
  return entry.items
    .filter((item) => isOtlp(item.type) || isWanted(item))
    .map(
      (item) => () =>
        shownItems(item)
          .filter(isWanted)
          .map((one) => seenOf(entry, one)),
    );
}

/** Finds the wanted items of a frame; none in a frame that cannot be decoded. */
export function sightingsIn(frame: Uint8Array, wanted: TailWanted): Sighting[] {
  try {
    return decodeFrame(frame).flatMap((slot) => (slot.ok ? sightingsOf(slot.entry, wanted) : []));
  } catch (error) {
    if (error instanceof FrameError) return [];
    throw error;
  }
}

/** Finds a refusal in a message, if its project is wanted. */
export function refusalIn(message: Uint8Array, { project }: TailWanted): Sighting[] {
  const refusal = JSON.parse(decodeText(message)) as Refusal;
  return project === undefined || project === refusal.project_id ? [() => [refusal]] : [];
}
