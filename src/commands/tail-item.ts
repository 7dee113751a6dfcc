/** An accepted item as `sluice tail` shows it. Pure. */
import { isUtf8 } from 'node:buffer';
import type { Refusal } from '../ingest/http/record.ts';
import { type ItemType, isOtlp } from '../lib/item-types.ts';
import { expanded } from '../processor/decode/otlp/request.ts';
import type { Entry, EntryItem } from '../stream/frame.ts';
import { inOneLine } from './print.ts';

export type SeenItem = {
  projectId: string | undefined;
  type: ItemType | 'heartbeat';
  receivedAt: string;
  /** Length of the payload in bytes, also when `payload` is undefined. */
  length: number;
  /** Fields of the record that the sink will store, as far as they are known here. */
  fields: Record<string, unknown>;
  /**
   * JSON of the payload. It is undefined for a recording, which is compressed, and for an item of a
   * large envelope, whose payloads are in parts.
   */
  payload: unknown;
  /** Name of the item for a person: its event id or its token. */
  name: string;
};

const SUMMARY_CHARS_MAX = 80;

const decodeText = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');

function parsed(bytes: Uint8Array | undefined): unknown {
  if (!bytes) return undefined;
  try {
    return JSON.parse(decodeText(bytes));
  } catch {
    return undefined;
  }
}

export function seenItems(entry: Entry): SeenItem[] {
  const receivedAt = new Date(entry.receivedAt).toISOString();
  if (entry.kind === 'heartbeat') {
    const bytes = Buffer.from(entry.body ?? []);
    const body = isUtf8(bytes) ? bytes.toString('utf8') : undefined;
    const shown = body === undefined ? { body_base64: bytes.toString('base64') } : body && { body };
    const fields = { type: 'heartbeat', token: entry.token, received_at: receivedAt, ...shown };
    const { token: name } = entry;
    const length = entry.body?.length ?? 0;
    return [{ projectId: undefined, type: 'heartbeat', receivedAt, length, fields, payload: body, name }];
  }
  const { projectId, eventId, sentAt, sdk } = entry;
  return entry.items.flatMap(shownItems).map((item) => {
    const payload = parsed(item.payload);
    const fields = {
      project_id: projectId,
      event_id: eventId,
      item_index: item.index,
      type: item.type,
      received_at: receivedAt,
      ...(sentAt !== undefined && { sent_at: sentAt }),
      ...(sdk !== undefined && { sdk }),
      item_header: parsed(item.header),
      ...(payload === undefined ? { payload_bytes: item.length } : { payload }),
    };
    return { projectId, type: item.type, receivedAt, length: item.length, fields, payload, name: eventId };
  });
}

/**
 * Returns the containers of an OTLP request. A large request, whose payload is in parts, is shown
 * as it is.
 */
function shownItems(item: EntryItem): EntryItem[] {
  const { payload } = item;
  if (!payload || !isOtlp(item.type)) return [item];
  return [...expanded({ ...item, payload })].flatMap((part) => part?.item ?? []);
}

export const seenJson = (item: SeenItem): string => JSON.stringify(item.fields);

export function seenText(item: SeenItem): string {
  const columns = [
    item.receivedAt,
    item.projectId ?? '-',
    item.type.padEnd(16),
    item.name,
    `${item.length} B`,
  ];
  return [...columns, summary(item.payload)].map(inOneLine).join('  ').trimEnd();
}

export const refusalText = ({ at, project_id, outcome, reason = '', key, bytes, missed }: Refusal): string =>
  [
    at,
    project_id,
    outcome.padEnd(14),
    `key ${key}`,
    `${bytes} B`,
    reason,
    missed ? `(${missed} more before)` : '',
  ]
    .map(inOneLine)
    .join('  ')
    .trimEnd();

/**
 * Makes a short description of an item: its exception, message or transaction, or the first element
 * of a container.
 */
function summary(payload: unknown): string {
  const text =
    typeof payload === 'string'
      ? payload
      : (at(payload, 'exception', 'values', 0, 'type') ??
        at(payload, 'message') ??
        at(payload, 'logentry', 'formatted') ??
        at(payload, 'transaction') ??
        at(payload, 'items', 0, 'body') ??
        at(payload, 'items', 0, 'name'));
  if (typeof text !== 'string') return '';
  const detail = at(payload, 'exception', 'values', 0, 'value');
  const whole = typeof detail === 'string' ? `${text}: ${detail}` : text;
  return whole.replaceAll(/\p{Cc}+/gu, ' ').slice(0, SUMMARY_CHARS_MAX);
}

/** Returns the value at a path, or undefined if a step of the path does not exist. */
function at(value: unknown, ...path: (string | number)[]): unknown {
  let here = value;
  for (const step of path) {
    if (here === null || typeof here !== 'object') return undefined;
    here = (here as Record<string | number, unknown>)[step];
  }
  return here;
}
