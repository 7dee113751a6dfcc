/**
 * Parts of large entries. The payloads of such an entry go into the chunks stream as parts, one
 * payload after the other, and the entry's frame names the parts. This file writes, reads and
 * removes parts. The processor removes the parts of each frame that it has acknowledged.
 * processor/part-sweeper.ts removes parts that no frame names.
 */
import { createHash } from 'node:crypto';
import { JetStreamApiError, type JetStreamManager } from '@nats-io/jetstream';
import { errors } from '@nats-io/transport-node';
import type { ByteSource } from '../lib/files/byte-source.ts';
import { BODY_BYTES_SETTING_MAX, PARTS_IN_FLIGHT_MAX } from '../limits.ts';
import { type EntryItem, type EnvelopeEntry, encodedBytesBound, type PartsRef } from './frame.ts';
import type { NatsLink } from './nats.ts';
import type { Sender, SendResult } from './publish/sender.ts';
import { CHUNKS_STREAM, partsSubject } from './topology.ts';

/** A part of the entry was never in the chunks stream, or is no longer there. */
export class MissingPartError extends Error {
  override name = 'MissingPartError';
}

/** The parts exist, but their bytes are not those that the frame describes. */
export class CorruptPartsError extends Error {
  override name = 'CorruptPartsError';
}

/** Makes a source of payloads that are in memory. */
export function sourceOf(entry: EnvelopeEntry): ByteSource {
  const whole = Buffer.concat(entry.items.map(({ payload }) => payload ?? new Uint8Array()));
  return {
    length: whole.length,
    read: (offset, length) => Promise.resolve(whole.subarray(offset, offset + length)),
  };
}

/** An entry whose payloads, and perhaps item headers, are in `source` instead. */
export type SplitEntry = { entry: EnvelopeEntry; source: ByteSource };

/**
 * Takes the payloads out of an entry that is to be written as parts. Long item headers become parts
 * as well.
 */
export function splitEntry({ entry, source }: SplitEntry, partBytesMax: number): SplitEntry {
  const bare = { ...entry, items: entry.items.map(({ payload: _, ...item }) => item) };
  // Half of the frame is reserved for the sequence numbers of the parts.
  return encodedBytesBound(bare) > partBytesMax / 2 ? moveHeaders(bare, source) : { entry: bare, source };
}

/** Moves an entry's item headers behind the payloads of its source. */
export function moveHeaders(entry: EnvelopeEntry, source: ByteSource): SplitEntry {
  const tail = Buffer.concat(entry.items.map(({ header }) => header));
  const items = entry.items.map((item) => ({
    ...item,
    header: new Uint8Array(),
    headerLength: item.header.length,
  }));
  const read = async (offset: number, length: number): Promise<Uint8Array> => {
    const before = Math.max(0, Math.min(length, source.length - offset));
    const from = offset + before - source.length;
    const rest = tail.subarray(from, from + length - before);
    if (before === 0) return rest;
    return Buffer.concat([await source.read(offset, before), rest]);
  };
  return { entry: { ...entry, items }, source: { length: source.length + tail.length, read } };
}

/**
 * Returns a function that cuts the next piece out of `whole`, from `start` on. The pieces are
 * views, not copies.
 */
function cutter(whole: Uint8Array, start: number): (length: number) => Uint8Array {
  let at = start;
  return (length) => {
    at += length;
    return whole.subarray(at - length, at);
  };
}

/**
 * Puts the payloads, and item headers that became parts, back into an entry.
 * @param whole the bytes of {@link readParts}
 */
export function joinParts({ parts: _, ...entry }: EnvelopeEntry, whole: Uint8Array): EnvelopeEntry {
  const nextPayload = cutter(whole, 0);
  const nextHeader = cutter(
    whole,
    entry.items.reduce((sum, { length }) => sum + length, 0),
  );
  const items = entry.items.map(({ headerLength, ...item }): EntryItem => {
    const header = headerLength === undefined ? item.header : nextHeader(headerLength);
    return { ...item, header, payload: nextPayload(item.length) };
  });
  return { ...entry, items };
}

export type WrittenParts =
  | { ok: true; parts: PartsRef }
  /**
   * `result`: what became of one part that failed. The envelope is certainly not queued, since no
   * frame names the parts.
   */
  | { ok: false; result: 'refused' | 'unknown'; reason: string };

export type WriteOptions = {
  projectId: string;
  source: ByteSource;
  partBytesMax: number;
  /** Monotonic ms after which no further attempt is made. */
  deadline: number;
};

/**
 * Reads the source once, in order, and publishes it as parts, at most PARTS_IN_FLIGHT_MAX at a
 * time.
 * @throws what the source throws
 */
export async function writeParts(sender: Sender, options: WriteOptions): Promise<WrittenParts> {
  const { projectId, source, partBytesMax, deadline } = options;
  const subject = partsSubject(projectId);
  const hash = createHash('sha256');
  const sends: Promise<SendResult>[] = [];
  const failures: Exclude<SendResult, { result: 'stored' }>[] = [];
  for (let offset = 0; offset < source.length && failures.length === 0; offset += partBytesMax) {
    // Waits for the oldest part in flight: parts are acknowledged roughly in order.
    await sends.at(-PARTS_IN_FLIGHT_MAX);
    const data = await source.read(offset, Math.min(partBytesMax, source.length - offset));
    hash.update(data);
    sends.push(sendPart(sender, { data, subject, deadline }, failures));
  }
  const sent = await Promise.all(sends);
  const [failure] = failures;
  if (failure) return { ok: false, result: failure.result, reason: failure.reason };
  const sequences = sent.map((part) => (part.result === 'stored' ? part.sequence : 0));
  return { ok: true, parts: { sequences, length: source.length, sha256: hash.digest() } };
}

function sendPart(
  sender: Sender,
  part: { data: Uint8Array; subject: string; deadline: number },
  failures: SendResult[],
): Promise<SendResult> {
  return new Promise((resolve) => {
    sender.send({ stream: CHUNKS_STREAM, ...part }, (sent) => {
      if (sent.result !== 'stored') failures.push(sent);
      resolve(sent);
    });
  });
}

type ReadPart = (manager: JetStreamManager, seq: number) => Promise<Uint8Array>;

/**
 * Reads a part from the leader, whose answer is authoritative. The answer is JSON with base64,
 * which takes many times the CPU of a direct read.
 */
const readFromLeader: ReadPart = async (manager, seq) => {
  const message = await manager.streams.getMessage(CHUNKS_STREAM, { seq });
  if (!message) throw new MissingPartError(`part ${seq} is not in ${CHUNKS_STREAM}`);
  return message.data;
};

/**
 * Reads a part as raw bytes from any replica. When that replica lags behind and lacks the part, the
 * leader is asked.
 */
const readDirectly: ReadPart = async (manager, seq) => {
  const message = await manager.direct.getMessage(CHUNKS_STREAM, { seq });
  return message?.data ?? readFromLeader(manager, seq);
};

export const isLost = (error: unknown): error is MissingPartError | CorruptPartsError =>
  error instanceof MissingPartError || error instanceof CorruptPartsError;

async function joined(manager: JetStreamManager, ref: PartsRef, readPart: ReadPart): Promise<Uint8Array> {
  const whole = Buffer.allocUnsafe(ref.length);
  const hash = createHash('sha256');
  let at = 0;
  for (let next = 0; next < ref.sequences.length; next += PARTS_IN_FLIGHT_MAX) {
    const sequences = ref.sequences.slice(next, next + PARTS_IN_FLIGHT_MAX);
    for (const part of await Promise.all(sequences.map((seq) => readPart(manager, seq)))) {
      if (at + part.length > ref.length)
        throw new CorruptPartsError(`parts are longer than ${ref.length} bytes`);
      whole.set(part, at);
      hash.update(part);
      at += part.length;
    }
  }
  if (at !== ref.length) throw new CorruptPartsError(`parts have ${at} bytes instead of ${ref.length}`);
  if (!hash.digest().equals(ref.sha256)) throw new CorruptPartsError('parts have another hash');
  return whole;
}

/** Links to brokers whose chunks stream answers direct reads. */
const directLinks = new WeakSet<NatsLink>();

/**
 * Whether the chunks stream answers direct reads. A stream that an earlier version of setup made
 * does not.
 */
async function answersDirectly(link: NatsLink, manager: JetStreamManager): Promise<boolean> {
  if (directLinks.has(link)) return true;
  const { config } = await manager.streams.info(CHUNKS_STREAM);
  if (config.allow_direct) directLinks.add(link);
  return config.allow_direct;
}

/**
 * Reads the payloads of a large entry, one after the other in item order.
 * @throws MissingPartError or CorruptPartsError when the parts are lost for ever; other errors (no
 * answer, no leader), which may pass
 */
export async function readParts(link: NatsLink, ref: PartsRef): Promise<Uint8Array> {
  if (ref.length > BODY_BYTES_SETTING_MAX)
    throw new CorruptPartsError(`parts of ${ref.length} bytes are longer than any body`);
  const manager = await link.manager();
  if (!(await answersDirectly(link, manager))) return joined(manager, ref, readFromLeader);
  return joined(manager, ref, readDirectly).catch((error) => {
    if (error instanceof MissingPartError) throw error;
    if (!(error instanceof errors.TimeoutError)) return joined(manager, ref, readFromLeader);
    // An earlier version of setup may have forbidden direct reads. So the next call asks the broker
    // again whether they are allowed.
    directLinks.delete(link);
    throw error;
  });
}

/**
 * Error codes of a server that does not have the sequence: no message found (10057), or no such
 * sequence (10043).
 */
const NO_SUCH_MESSAGE: readonly number[] = [10057, 10043];

async function removePart(manager: JetStreamManager, seq: number): Promise<void> {
  try {
    // `false`: the server does not overwrite the bytes with noise.
    await manager.streams.deleteMessage(CHUNKS_STREAM, seq, false);
  } catch (error) {
    if (!(error instanceof JetStreamApiError && NO_SUCH_MESSAGE.includes(error.code))) throw error;
  }
}

/**
 * Removes parts from the chunks stream. Parts that are already gone count as removed.
 * @throws at the first part that the broker does not remove; processor/part-sweeper.ts removes the
 * rest
 */
export async function removeParts(link: NatsLink, sequences: readonly number[]): Promise<void> {
  const manager = await link.manager();
  for (let next = 0; next < sequences.length; next += PARTS_IN_FLIGHT_MAX) {
    const some = sequences.slice(next, next + PARTS_IN_FLIGHT_MAX);
    await Promise.all(some.map((seq) => removePart(manager, seq)));
  }
}
