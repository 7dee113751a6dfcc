/**
 * Pads messages for streams with `discard: new` (frames, parts, the audit), so that each takes a
 * multiple of RECORD_BYTES on disk. The max_bytes of these streams are multiples of RECORD_BYTES,
 * too.
 *
 * With `discard: new`, nats-server before 2.10.5 (Debian 12 has 2.9.10) decides by a message's
 * header and data alone whether the message fits. But the stored record is some fifty bytes longer.
 * When a message fits only without these bytes, the server stores it and removes the *oldest*
 * message of the stream, which was acknowledged. RECORD_BYTES is larger than these bytes. So when
 * all records and the bound are multiples of RECORD_BYTES, the server sees every overflow and
 * refuses the message.
 */
import { headers, type MsgHdrs } from '@nats-io/transport-node';
import { assert } from '../lib/assert.ts';
import { TRACE_HEADER } from './frame.ts';

/** More than a server adds to headers and data, for any subject of sluice. */
export const RECORD_BYTES = 128;
const PAD_HEADER = 'Sluice-Pad';
/**
 * Bytes of these fields of a record: length, sequence, time, subject length, headers length,
 * checksum (writeMsgRecord in the server's filestore.go).
 */
const RECORD_OVERHEAD_BYTES = 4 + 8 + 8 + 2 + 4 + 8;
const VERSION_LINE = 'NATS/1.0\r\n';
const END = '\r\n';

/** Length of the headers on the wire, in bytes. Names and values are ASCII. */
function encodedLength(messageHeaders: MsgHdrs): number {
  let length = VERSION_LINE.length + END.length;
  for (const [name, values] of messageHeaders)
    for (const value of values) length += name.length + 2 + value.length + END.length;
  return length;
}

/**
 * Adds a padding header, so that the message's record is a multiple of RECORD_BYTES. The other
 * headers must be complete.
 * @returns the same headers
 */
export function fillRecord(messageHeaders: MsgHdrs, subject: string, dataBytes: number): MsgHdrs {
  assert(
    RECORD_OVERHEAD_BYTES + subject.length <= RECORD_BYTES,
    'the subject is short enough for its record',
  );
  messageHeaders.set(PAD_HEADER, '-');
  const bytes = RECORD_OVERHEAD_BYTES + subject.length + encodedLength(messageHeaders) + dataBytes;
  const short = (RECORD_BYTES - (bytes % RECORD_BYTES)) % RECORD_BYTES;
  if (short > 0) messageHeaders.set(PAD_HEADER, '-'.repeat(1 + short));
  return messageHeaders;
}

type Message = {
  subject: string;
  data: Uint8Array;
  traces?: readonly string[] | undefined;
  further?: Readonly<Record<string, string>>;
};

/** Headers of a message: its id, traces and further headers if there are any, and padding. */
export function recordHeaders(msgId: string, { subject, data, traces, further = {} }: Message): MsgHdrs {
  const messageHeaders = headers();
  for (const name in further) messageHeaders.set(name, `${further[name]}`);
  messageHeaders.set('Nats-Msg-Id', msgId);
  if (traces) for (const line of traces) messageHeaders.append(TRACE_HEADER, line);
  return fillRecord(messageHeaders, subject, data.length);
}

/** Largest multiple of RECORD_BYTES that is not above `bytes`. */
export const wholeRecords = (bytes: number): number => bytes - (bytes % RECORD_BYTES);
