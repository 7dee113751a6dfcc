/**
 * Decodes a `replay_recording` payload: `{"segment_id":N}`, a newline, then the recording as gzip,
 * zlib or plain JSON. Recordings are inflated in the thread pool, and never beyond a bound.
 */
import { promisify } from 'node:util';
import { createGunzip, createInflate, gzip } from 'node:zlib';
import { jsonTextInSteps } from '../../lib/json-text.ts';
import type { Steps } from '../../lib/slices.ts';
import { RECORDING_BYTES_MAX, RECORDING_HEADER_BYTES_MAX } from '../../limits.ts';

const gzipAsync = promisify(gzip);
const LF = 0x0a;
/** Most bytes that one byte of deflate can inflate to (zlib's "Technical Details"). */
const DEFLATE_RATIO_MAX = 1_032;
/** Size of the pieces in which a recording is inflated. */
const PIECE_BYTES = 256 * 1024;

export type Packing = 'gzip' | 'deflate';
/**
 * `bytes`: upper bound of the bytes that were inflated. `packed`: the recording's packing, when the
 * recording may not be inflated further now and can be stored packed.
 */
export type Recording = { bytes: number } & (
  | { ok: true; json: Uint8Array }
  | { ok: false; reason: string; packed?: Packing }
);
export type RecordingWork = {
  /** Runs long work in slices, with pauses between them. */
  inSlices: <T>(steps: Steps<T>) => Promise<T>;
  bytesMax?: number;
  /**
   * Called with the number of bytes to which the recording has inflated so far.
   * @returns whether the recording may inflate further
   */
  mayInflate?: (bytes: number) => boolean;
};

const NOT_NOW = 'recording is not inflated: the recordings of its project inflate too far';
const refuse = (reason: string, bytes: number): Recording => ({ ok: false, reason, bytes });

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
/**
 * Whether the bytes begin with a zlib header: the method is deflate, and the first two bytes are a
 * multiple of 31 (RFC 1950 section 2.2).
 */
const isZlib = (bytes: Uint8Array): boolean =>
  ((bytes[0] ?? 0) & 0x0f) === 8 && (((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0)) % 31 === 0;

class TooMuchError extends Error {}
class NotNowError extends Error {
  readonly bytes: number;

  constructor(bytes: number) {
    super();
    this.bytes = bytes;
  }
}

/**
 * Inflates a recording. A recording that is not packed is returned as it is.
 * @throws TooMuchError, NotNowError, or an Error of zlib
 */
async function inflated(
  bytes: Uint8Array,
  packing: Packing | undefined,
  { bytesMax, mayInflate }: Required<Pick<RecordingWork, 'bytesMax' | 'mayInflate'>>,
): Promise<Uint8Array[]> {
  if (!packing && bytes.length > bytesMax) throw new TooMuchError();
  if (!packing) return [bytes];
  const options = { chunkSize: PIECE_BYTES };
  const inflater = packing === 'gzip' ? createGunzip(options) : createInflate(options);
  const pieces: Uint8Array[] = [];
  let length = 0;
  inflater.end(bytes);
  for await (const piece of inflater as AsyncIterable<Uint8Array>) {
    pieces.push(piece);
    length += piece.length;
    if (length > bytesMax) throw new TooMuchError();
    if (!mayInflate(length)) throw new NotNowError(length);
  }
  return pieces;
}

/**
 * Joins the pieces. Each piece leaves the list as soon as it is copied, so that its memory is free.
 */
function* joined(pieces: Uint8Array[]): Steps<Uint8Array> {
  const whole = Buffer.allocUnsafeSlow(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (let piece = pieces.shift(); piece; piece = pieces.shift()) {
    whole.set(piece, at);
    at += piece.length;
    yield;
  }
  return whole;
}

/**
 * Returns the payload as `{"segment_id":N,"recording":[…]}` on one line, or why it is no recording.
 */
export async function decodeRecording(
  payload: Uint8Array,
  { inSlices, bytesMax = RECORDING_BYTES_MAX, mayInflate = () => true }: RecordingWork,
): Promise<Recording> {
  const lineEnd = payload.subarray(0, RECORDING_HEADER_BYTES_MAX + 1).indexOf(LF);
  const segment = lineEnd < 0 ? undefined : segmentId(payload.subarray(0, lineEnd));
  if (segment === undefined)
    return refuse('recording does not begin with a line that gives its segment_id', 0);
  const packed = payload.subarray(lineEnd + 1);
  const packing = isGzip(packed) ? 'gzip' : isZlib(packed) ? 'deflate' : undefined;
  let pieces: Uint8Array[];
  try {
    pieces = await inflated(packed, packing, { bytesMax, mayInflate });
  } catch (error) {
    if (error instanceof NotNowError && packing)
      return { ok: false, reason: NOT_NOW, packed: packing, bytes: error.bytes };
    if (error instanceof TooMuchError)
      return refuse(`recording of more than ${bytesMax} bytes after decompression`, bytesMax);
    const bytes = Math.min(bytesMax, DEFLATE_RATIO_MAX * payload.length);
    return refuse(`recording is not valid: ${(error as Error).message}`, bytes);
  }
  const head = Buffer.from(`{"segment_id":${segment},"recording":`);
  const whole = await inSlices(joined([head, ...pieces, Buffer.from('}')]));
  const recording = whole.subarray(head.length, -1);
  const json = await inSlices(jsonTextInSteps(recording));
  if (!json.ok) return refuse(`recording is ${json.reason}`, recording.length);
  if (json.kind !== 'array') return refuse('recording is no JSON array', recording.length);
  if (json.line !== recording) whole.set(json.line, head.length);
  return { ok: true, json: whole, bytes: recording.length };
}

const RECORDING = '"recording":';

/** The reverse of {@link decodeRecording}: makes a payload that decodes to these bytes. */
export async function encodeRecording({ buffer, byteOffset, length }: Uint8Array): Promise<Uint8Array> {
  const json = Buffer.from(buffer as ArrayBuffer, byteOffset, length);
  const at = json.indexOf(RECORDING);
  const recording = await gzipAsync(json.subarray(at + RECORDING.length, -1));
  return Buffer.concat([json.subarray(0, at - 1), Buffer.from('}\n'), recording]);
}
