/**
 * Parses the two kinds of JSON lines in an envelope: the envelope header and the item headers
 * (https://develop.sentry.dev/sdk/data-model/envelopes/).
 */
import { CLIENT_CHARS_MAX } from '../../limits.ts';

/** Reasons why a body is no envelope: a closed set, worded for the client and the log. */
export type Malformed =
  | 'the body is empty'
  | 'the envelope header is too long'
  | 'the envelope header is no JSON object'
  | 'the event_id is neither 32 hex digits nor a dashed UUID'
  | 'an item header is too long'
  | 'an item header is no JSON object'
  | 'an item header has no type'
  | 'an item length is no whole number of bytes'
  | 'a payload is followed by another byte than a newline'
  | 'the body ends inside a payload'
  | 'the envelope has too many items'
  | 'the item headers are too long together'
  | 'the body is no JSON object'
  | 'the body is neither a JSON object nor a list of them'
  | 'the body has too many reports'
  | 'the body is nested too deeply'
  | 'the body is no OTLP request'
  | 'the body has too many records'
  | 'the body has too many fields';

export type EnvelopeHeader = {
  /** 32 lower-case hex digits; undefined when the header has no id, or only zeros. */
  eventId?: string;
  /** `sent_at` as the client sent it, unchecked; a number becomes text. */
  sentAt?: string;
  /**
   * `name/version`; undefined when either is missing, or when the text exceeds CLIENT_CHARS_MAX.
   */
  sdk?: string;
  /**
   * Whether the whole body turned out to have nothing to store. If so, the collector drops all
   * items that it holds, and the request is answered 200 with X-Service-Empty.
   */
  hasNothing?: boolean;
};

export type ItemHeader = {
  type: string;
  /** Payload bytes; undefined when the payload runs to the next newline. */
  length?: number;
};

const EVENT_ID = /^[0-9a-f]{32}$/i;
const NIL_EVENT_ID = '0'.repeat(32);
const DASHED_EVENT_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The id in 32 lower-case hex digits; '' when it is only zeros; undefined when `text` is no id. */
export function readEventId(text: unknown): string | undefined {
  if (typeof text !== 'string' || !(EVENT_ID.test(text) || DASHED_EVENT_ID.test(text))) return undefined;
  const id = text.replaceAll('-', '').toLowerCase();
  return id === NIL_EVENT_ID ? '' : id;
}

/** Decoder that keeps a byte order mark. The mark is no JSON, so a line with one is refused. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Parses a line that has to be a JSON object; undefined when it is none. JSON.parse makes
 * `__proto__` an own property like any other, and of duplicate names the last wins.
 */
function parseObject(line: Uint8Array): Record<string, unknown> | undefined {
  let value: unknown;
  try {
    value = JSON.parse(utf8.decode(line));
  } catch {
    return undefined;
  }
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : undefined;
}

/** Returns an own property. A name that a header lacks must not be found on its prototype. */
const own = (object: object, name: string): unknown =>
  Object.hasOwn(object, name) ? (object as Record<string, unknown>)[name] : undefined;

function sdkOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const name = own(value, 'name');
  const version = own(value, 'version');
  if (typeof name !== 'string' || typeof version !== 'string' || !name || !version) return undefined;
  // The text is stored with each item, and an envelope may have a thousand items, so the text is
  // bounded.
  return name.length + version.length < CLIENT_CHARS_MAX ? `${name}/${version}` : undefined;
}

/**
 * Parses the envelope header.
 * @param line the envelope's first line without its newline; JSON takes a `\r` at its end as white
 * space
 * @returns the header, or why the line is no header
 */
export function parseEnvelopeHeader(line: Uint8Array): EnvelopeHeader | Malformed {
  const object = parseObject(line);
  if (!object) return 'the envelope header is no JSON object';
  const header: EnvelopeHeader = {};
  const eventId = own(object, 'event_id');
  if (eventId !== undefined && eventId !== null) {
    const id = readEventId(eventId);
    if (id === undefined) return 'the event_id is neither 32 hex digits nor a dashed UUID';
    if (id !== '') header.eventId = id;
  }
  const sentAt = own(object, 'sent_at');
  if (typeof sentAt === 'string') header.sentAt = sentAt;
  else if (typeof sentAt === 'number') header.sentAt = `${sentAt}`;
  const sdk = sdkOf(own(object, 'sdk'));
  if (sdk !== undefined) header.sdk = sdk;
  return header;
}

/**
 * Parses an item header.
 * @param line an item's header line without its newline
 * @returns the header, or why the line is no header
 */
export function parseItemHeader(line: Uint8Array): ItemHeader | Malformed {
  const object = parseObject(line);
  if (!object) return 'an item header is no JSON object';
  const type = own(object, 'type');
  if (typeof type !== 'string') return 'an item header has no type';
  const length = own(object, 'length');
  if (length === undefined || length === null) return { type };
  if (!Number.isSafeInteger(length) || (length as number) < 0)
    return 'an item length is no whole number of bytes';
  return { type, length: length as number };
}
