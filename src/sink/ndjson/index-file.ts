/**
 * The index of a batch: the keys by which the sink recognises frames and items that it has stored,
 * and the batch's counts.
 *
 * The file begins with one line of JSON (the header). Then come, for each frame, 16 bytes of key
 * and a 16-bit number of stored entries. Then come, for each item that a client may send again, 16
 * bytes of key and received_at as a double. Numbers are little-endian.
 */
import { z } from 'zod';
import { KEY_BYTES } from '../item-key.ts';
import type { TallyCounts } from '../tally.ts';

export type BatchIndex = {
  /** Path of the data file below the stream's folder; null when the batch had nothing to write. */
  data: string | null;
  /** Unix milliseconds. The time never goes backwards from one batch of a stream to the next. */
  committedAt: number;
  tally: TallyCounts;
  frames: { key: Buffer; entries: number }[];
  resends: { key: Buffer; receivedAt: number }[];
};

/** Thrown when a file of the journal, such as an index, has content that no processor writes. */
export class JournalError extends Error {
  override name = 'JournalError';
}

const FRAME_BYTES = KEY_BYTES + 2;
const RESEND_BYTES = KEY_BYTES + 8;
const LF = 0x0a;

const headerSchema = z.object({
  v: z.literal(1),
  data: z.string().nullable(),
  committedAt: z.number(),
  frames: z.int().min(0),
  resends: z.int().min(0),
  tally: z.record(z.string(), z.record(z.string(), z.tuple([z.number(), z.number()]))),
});

export function encodeIndex(index: BatchIndex): Buffer {
  const { data, committedAt, tally, frames, resends } = index;
  const header = { v: 1, data, committedAt, frames: frames.length, resends: resends.length, tally };
  const head = Buffer.from(`${JSON.stringify(header)}\n`);
  const out = Buffer.allocUnsafe(head.length + frames.length * FRAME_BYTES + resends.length * RESEND_BYTES);
  let at = head.copy(out);
  for (const { key, entries } of frames) {
    at += key.copy(out, at);
    at = out.writeUInt16LE(entries, at);
  }
  for (const { key, receivedAt } of resends) {
    at += key.copy(out, at);
    at = out.writeDoubleLE(receivedAt, at);
  }
  return out;
}

function readHeader(bytes: Buffer): z.infer<typeof headerSchema> | undefined {
  try {
    const parsed = headerSchema.safeParse(JSON.parse(bytes.toString()));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Decodes an index.
 * @throws JournalError naming `path` when the bytes are no index
 */
export function decodeIndex(bytes: Buffer, path: string): BatchIndex {
  const headEnd = bytes.indexOf(LF);
  const header = headEnd < 0 ? undefined : readHeader(bytes.subarray(0, headEnd));
  const frameBytes = (header?.frames ?? 0) * FRAME_BYTES;
  const resendBytes = (header?.resends ?? 0) * RESEND_BYTES;
  if (!header || bytes.length !== headEnd + 1 + frameBytes + resendBytes)
    throw new JournalError(`${path} is damaged: it is no index of a batch`);
  const frames = bytes.subarray(headEnd + 1, headEnd + 1 + frameBytes);
  const resends = bytes.subarray(headEnd + 1 + frameBytes);
  const { data, committedAt, tally } = header;
  return {
    data,
    committedAt,
    tally,
    frames: Array.from({ length: header.frames }, (_, n) => ({
      key: frames.subarray(n * FRAME_BYTES, n * FRAME_BYTES + KEY_BYTES),
      entries: frames.readUInt16LE(n * FRAME_BYTES + KEY_BYTES),
    })),
    resends: Array.from({ length: header.resends }, (_, n) => ({
      key: resends.subarray(n * RESEND_BYTES, n * RESEND_BYTES + KEY_BYTES),
      receivedAt: resends.readDoubleLE(n * RESEND_BYTES + KEY_BYTES),
    })),
  };
}
