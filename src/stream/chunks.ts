/**
 * Large entries: their payloads leave as parts into the chunks stream, one payload after the other, and the frame carries where they
 * stand. Write and read stand side by side. Who sweeps parts that nobody needs any more is the processor (architecture.md, Chunks).
 */
import { createHash } from 'node:crypto';
import type { JetStreamManager } from '@nats-io/jetstream';
import { BODY_BYTES_SETTING_MAX, PARTS_IN_FLIGHT_MAX } from '../limits.ts';
import type { Delivered } from './delivery.ts';
import type { PartsRef } from './frame.ts';
import type { NatsLink } from './nats.ts';
import type { Sender } from './sender.ts';
import { CHUNKS_STREAM, CHUNKS_SUBJECT } from './topology.ts';

/** Bytes that can be read from any offset, any number of times; each read gives a buffer of its own. */
export type PartSource = {
  readonly length: number;
  read(offset: number, length: number): Promise<Uint8Array>;
};

/** A part of the entry is not in the chunks stream (any more). */
export class MissingPartError extends Error {
  override name = 'MissingPartError';
}

/** The parts are there and are not what the frame says. */
export class CorruptPartsError extends Error {
  override name = 'CorruptPartsError';
}

export type WrittenParts =
  | { ok: true; parts: PartsRef }
  /** As for a frame; the envelope is not queued in either case, since no frame names the parts. */
  | { ok: false; result: 'refused' | 'unknown'; reason: string };

export type WriteOptions = {
  source: PartSource;
  partBytesMax: number;
  /** Monotonic ms. */
  deadline: number;
};

/**
 * Reads the source once, in order, and publishes it as parts, at most PARTS_IN_FLIGHT_MAX at a time.
 * @throws what the source throws
 */
export async function writeParts(sender: Sender, options: WriteOptions): Promise<WrittenParts> {
  const { source, partBytesMax, deadline } = options;
  const hash = createHash('sha256');
  const deliveries: Promise<Delivered>[] = [];
  const failures: Exclude<Delivered, { result: 'stored' }>[] = [];
  for (let offset = 0; offset < source.length && failures.length === 0; offset += partBytesMax) {
    // The oldest first: parts are acknowledged about in order.
    await deliveries.at(-PARTS_IN_FLIGHT_MAX);
    const data = await source.read(offset, Math.min(partBytesMax, source.length - offset));
    hash.update(data);
    deliveries.push(sendPart(sender, data, { deadline, failures }));
  }
  const delivered = await Promise.all(deliveries);
  const [failure] = failures;
  if (failure) return { ok: false, result: failure.result, reason: failure.reason };
  const sequences = delivered.map((part) => (part.result === 'stored' ? part.sequence : 0));
  return { ok: true, parts: { sequences, length: source.length, sha256: hash.digest() } };
}

function sendPart(
  sender: Sender,
  data: Uint8Array,
  { deadline, failures }: { deadline: number; failures: Delivered[] },
): Promise<Delivered> {
  const message = { stream: CHUNKS_STREAM, subject: CHUNKS_SUBJECT, data, deadline };
  return new Promise((resolve) => {
    sender.send(message, (delivered) => {
      if (delivered.result !== 'stored') failures.push(delivered);
      resolve(delivered);
    });
  });
}

async function readPart(manager: JetStreamManager, seq: number): Promise<Uint8Array> {
  // By sequence and from the stream's leader: a direct get may be answered by a replica that lags behind.
  const message = await manager.streams.getMessage(CHUNKS_STREAM, { seq });
  if (!message) throw new MissingPartError(`part ${seq} is not in ${CHUNKS_STREAM}`);
  return message.data;
}

/**
 * The payloads of a large entry, one after the other in item order.
 * @throws MissingPartError or CorruptPartsError when they are not to be had, ever; other errors (no answer, no leader) may pass
 */
export async function readParts(link: NatsLink, ref: PartsRef): Promise<Uint8Array> {
  if (ref.length > BODY_BYTES_SETTING_MAX)
    throw new CorruptPartsError(`parts of ${ref.length} bytes are longer than any body`);
  const manager = await link.manager();
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
