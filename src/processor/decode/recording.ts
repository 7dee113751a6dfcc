/**
 * A `replay_recording` payload: `{"segment_id":N}`, a newline, then the recording as gzip, zlib or
 * plain JSON. Inflated in the thread pool and never beyond a bound.
 */
import { promisify } from 'node:util';
import { gunzip, gzip, inflate } from 'node:zlib';
import { jsonText } from '../../lib/json-text.ts';
import { RECORDING_BYTES_MAX, RECORDING_HEADER_BYTES_MAX } from '../../limits.ts';

const gunzipAsync = promisify(gunzip);
const inflateAsync = promisify(inflate);
const gzipAsync = promisify(gzip);
const LF = 0x0a;
/** No byte of deflate makes more (zlib's "Technical Details"). */
const DEFLATE_RATIO_MAX = 1_032;

/** `bytes`: what was inflated for it, at most. */
export type Recording = { bytes: number } & ({ ok: true; json: Uint8Array } | { ok: false; reason: string });

const refuse = (reason: string, bytes: number): Recording => ({ ok: false, reason, bytes });
const tooLarge = (bytesMax: number): Recording =>
  refuse(`recording of more than ${bytesMax} bytes after decompression`, bytesMax);

function segmentId(line: Uint8Array): number | undefined {
  try {
    const header: unknown = JSON.parse(Buffer.from(line).toString());
    const id = (header as { segment_id?: unknown } | null)?.segment_id;
    return Number.isSafeInteger(id) && (id as number) >= 0 ? (id as number) : undefined;
  } catch {
    return undefined;
  }
}

const isGzip = (bytes: Uint8Array): boolean => bytes[0] === 0x1f && bytes[1] === 0x8b;
/** Method deflate, and a header that is a multiple of 31 (RFC 1950 section 2.2). */
const isZlib = (bytes: Uint8Array): boolean =>
  ((bytes[0] ?? 0) & 0x0f) === 8 && (((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0)) % 31 === 0;

async function inflated(bytes: Uint8Array, bytesMax: number): Promise<Uint8Array> {
  const bound = { maxOutputLength: Math.max(1, bytesMax) };
  if (isGzip(bytes)) return gunzipAsync(bytes, bound);
  if (isZlib(bytes)) return inflateAsync(bytes, bound);
  return bytes;
}

/** The payload as `{"segment_id":N,"recording":[…]}` on one line; or why it is none. */
export async function decodeRecording(
  payload: Uint8Array,
  bytesMax = RECORDING_BYTES_MAX,
): Promise<Recording> {
  const lineEnd = payload.subarray(0, RECORDING_HEADER_BYTES_MAX + 1).indexOf(LF);
  const segment = lineEnd < 0 ? undefined : segmentId(payload.subarray(0, lineEnd));
  if (segment === undefined)
    return refuse('recording does not begin with a line that gives its segment_id', 0);
  let recording: Uint8Array;
  try {
    recording = await inflated(payload.subarray(lineEnd + 1), bytesMax);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ERR_BUFFER_TOO_LARGE') return tooLarge(bytesMax);
    return refuse(
      `recording is not valid: ${message}`,
      Math.min(bytesMax, DEFLATE_RATIO_MAX * payload.length),
    );
  }
  if (recording.length > bytesMax) return tooLarge(bytesMax);
  const json = jsonText(recording);
  if (!json.ok) return refuse(`recording is ${json.reason}`, recording.length);
  if (json.kind !== 'array') return refuse('recording is no JSON array', recording.length);
  const head = Buffer.from(`{"segment_id":${segment},"recording":`);
  return { ok: true, json: Buffer.concat([head, json.line, Buffer.from('}')]), bytes: recording.length };
}

const RECORDING = '"recording":';

/** A payload that {@link decodeRecording} makes these bytes of. */
export async function encodeRecording({ buffer, byteOffset, length }: Uint8Array): Promise<Uint8Array> {
  const json = Buffer.from(buffer as ArrayBuffer, byteOffset, length);
  const at = json.indexOf(RECORDING);
  const recording = await gzipAsync(json.subarray(at + RECORDING.length, -1));
  return Buffer.concat([json.subarray(0, at - 1), Buffer.from('}\n'), recording]);
}
