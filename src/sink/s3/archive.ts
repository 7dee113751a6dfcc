/** Reads what the s3 sink has stored: its objects, and their rows as records. */
import * as zlib from 'node:zlib';
import { jsonScan } from '../../lib/json-text.ts';
import { ZstdFrames } from '../../lib/zstd-frames.ts';
import { KEY_BYTES } from '../item-key.ts';
import type { HeartbeatFields, ItemFields, RecordType, SinkRecord } from '../sink.ts';
import type { Bucket } from './bucket.ts';
import { HOUR_MS, readKey } from './keys.ts';

/** Exists in Node.js from 22.15 on. */
const { zstdDecompressSync } = zlib as { zstdDecompressSync?: (packed: Buffer) => Buffer };

/** Unpacks each zstd frame by itself, because zlib of Node.js stops after the first zstd frame. */
function unzstd(content: Buffer): Buffer {
  if (!zstdDecompressSync) throw new Error('objects in zstd need Node.js 22.15 or later');
  const frames = new ZstdFrames();
  const found: Buffer[] = [];
  for (let at = 0; at < content.length; ) {
    const end = at + frames.pass(content.subarray(at));
    found.push(zstdDecompressSync(content.subarray(at, end)));
    at = end;
  }
  return Buffer.concat(found);
}

export function unpacked(key: string, content: Buffer): Buffer {
  if (key.endsWith('.zst')) return unzstd(content);
  return key.endsWith('.gz') ? zlib.gunzipSync(content) : content;
}

/** Beginning of the text `,"row_key":"…"}`, with which each line ends. */
const KEY_BEGIN = ',"row_key":"';
const KEY_END = '"}'.length;
const TAIL_BYTES = KEY_BEGIN.length + 2 * KEY_BYTES + KEY_END;

export const rowKeyAt = (bytes: Buffer, lineEnd: number): Buffer =>
  Buffer.from(bytes.toString('latin1', lineEnd - KEY_END - 2 * KEY_BYTES, lineEnd - KEY_END), 'hex');

/** The span of time to read. `until`: the first moment after it. Both are Unix milliseconds. */
export type Span = { since: number; until: number };

/** Objects of a stream and a UTC day, sorted by hour and name. */
export type ArchivedDay = { stream: string; date: string; objects: { key: string; rows: number }[] };

/** Yields the days and streams that have objects in this span: by day, then by stream. */
export async function* archivedDays(bucket: Bucket, prefix: string, span: Span): AsyncIterable<ArchivedDay> {
  const streams = await bucket.folders(prefix);
  const dates = new Map<string, string[]>();
  for (const stream of streams)
    for (const date of await bucket.folders(`${prefix}${stream}/`))
      dates.set(date, [...(dates.get(date) ?? []), stream]);
  const isWanted = (date: string): boolean =>
    Date.parse(date) < span.until && Date.parse(date) + 24 * HOUR_MS > span.since;
  for (const date of [...dates.keys()].filter(isWanted).sort())
    for (const stream of (dates.get(date) ?? []).sort()) {
      const objects = (await bucket.list(`${prefix}${stream}/${date}/`)).flatMap(({ key }) => {
        const { hour = 0, rows } = readKey(key) ?? {};
        const isInSpan = hour * HOUR_MS < span.until && (hour + 1) * HOUR_MS > span.since;
        return rows !== undefined && isInSpan ? [{ key, rows }] : [];
      });
      objects.sort((one, other) => (one.key < other.key ? -1 : 1));
      if (objects.length > 0) yield { stream, date, objects };
    }
}

const LINE_FEED = 0x0a;
const COMMA = 0x2c;
/** Names of members that come last in a record, and whose value is taken byte for byte. */
const LAST: readonly string[] = ['payload', 'payload_base64', 'body', 'body_base64'];

/**
 * Returns the rows of an object as the records that they were written from, each with its row key.
 * @throws Error naming a line that the sink did not write
 */
export function* archivedRows(bytes: Buffer): Iterable<SinkRecord> {
  let number = 0;
  for (let from = 0; from < bytes.length; number++) {
    const lineFeed = bytes.indexOf(LINE_FEED, from);
    const end = lineFeed < 0 ? bytes.length : lineFeed;
    const record = recordOf(bytes.subarray(from, end));
    if (!record) throw new Error(`line ${number + 1} is no row of this sink`);
    yield record;
    from = end + 1;
  }
}

type Members = Record<string, string>;

/**
 * Cuts a line into its members, as JSON. Finds the name and place of the last value.
 * @returns undefined for a line that the sink did not write
 */
function cut(line: Buffer): { members: Members; last: string; jsonFrom: number } | undefined {
  const end = line.length - TAIL_BYTES;
  const members: Members = {};
  for (let at = 0; at < end; ) {
    if (at > 0 && line[at] !== COMMA) return undefined;
    const colon = jsonScan.skipName(line, at + 1);
    if (colon < 0) return undefined;
    const name = line.toString('latin1', at + 2, colon - 2);
    if (LAST.includes(name)) return { members, last: name, jsonFrom: colon };
    const next = jsonScan.skipValue(line, colon);
    if (next < 0) return undefined;
    members[name] = line.toString('utf8', colon, next);
    if (next === end) return { members, last: name, jsonFrom: colon };
    at = next;
  }
  return undefined;
}

const textOf = (json: string | undefined): string | undefined =>
  json === undefined ? undefined : (JSON.parse(json) as string);
const momentOf = (json: string | undefined): number => Date.parse(textOf(json) ?? '');

function recordOf(line: Buffer): SinkRecord | undefined {
  const tail = line.length - TAIL_BYTES;
  if (tail < 0 || line.toString('latin1', tail, tail + KEY_BEGIN.length) !== KEY_BEGIN) return undefined;
  const { members, last, jsonFrom } = cut(line) ?? { members: {}, last: '', jsonFrom: 0 };
  const type = textOf(members.type) as RecordType | undefined;
  const fields = type === 'heartbeat' ? heartbeatFields(members, last) : itemFields(members, last);
  if (type === undefined || Number.isNaN('token' in fields ? fields.receivedAt : fields.envelope.receivedAt))
    return undefined;
  return {
    type,
    head: line.toString('utf8', 0, jsonFrom),
    fields,
    json: line.subarray(jsonFrom, tail),
    rowKey: rowKeyAt(line, line.length),
  };
}

const heartbeatFields = ({ token, received_at }: Members, last: string): HeartbeatFields => ({
  token: textOf(token) ?? '',
  receivedAt: momentOf(received_at),
  bodyIn: last === 'body' || last === 'body_base64' ? last : undefined,
});

function itemFields(members: Members, last: string): ItemFields {
  const { sent_at, payload_encoding } = members;
  const sdk = textOf(members.sdk);
  const encoding = textOf(payload_encoding) as ItemFields['encoding'];
  return {
    envelope: {
      projectId: textOf(members.project_id) ?? '',
      eventId: textOf(members.event_id) ?? '',
      receivedAt: momentOf(members.received_at),
      ...(sent_at !== undefined && { sentAt: momentOf(sent_at) }),
      ...(sdk !== undefined && { sdk }),
    },
    index: Number(members.item_index),
    header: members.item_header ?? '{}',
    ...(last === 'payload_base64' && { isBase64: true }),
    ...(encoding && { encoding }),
  };
}
