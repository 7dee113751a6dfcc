/**
 * Dead letters as the commands see them: list, show, replay, purge. Works beside running processors, or without any.
 */
import { createHash } from 'node:crypto';
import { DeliverPolicy, type StoredMsg } from '@nats-io/jetstream';
import { headers, type MsgHdrs } from '@nats-io/transport-node';
import { BROKER_REPLY_MS_MAX, FRAME_BYTES_MAX } from '../limits.ts';
import {
  decodeFrame,
  type Entry,
  type EnvelopeEntry,
  encodeEntry,
  encodeFrame,
  type PartsRef,
} from '../stream/frame.ts';
import type { NatsLink } from '../stream/nats.ts';
import { fillRecord } from '../stream/record-size.ts';
import { CHUNKS_SUBJECT, DEAD_LETTERS_STREAM, DEAD_LETTERS_SUBJECT } from '../stream/topology.ts';
import {
  BODY_BYTES_HEADER,
  type DeadLetterFacts,
  FACT_HEADERS,
  LETTER_BYTES_HEADER,
  PARTS_HEADER,
} from './dead-letter.ts';

/** One line of a list. */
export type DeadLetterSummary = DeadLetterFacts & {
  /** 32 hex. */
  id: string;
  /** When it became a dead letter, Unix milliseconds. */
  at: number;
  /** Of the whole letter. */
  bytes: number;
};

export type ShownDeadLetter = DeadLetterSummary & {
  /** A whole frame, or an encoded entry. */
  body: Uint8Array;
  /** What could be read of the damaged parts of a large entry; empty for others. */
  rest: Uint8Array;
  /**
   * The entry in the body, when it can be decoded. For kind `item` it has one item, whose payload is the original
   * bytes.
   */
  entry?: Entry;
};

/** No dead letter has this id, or its body is gone in part. */
export class DeadLetterError extends Error {
  override name = 'DeadLetterError';
}

const ID = /^[0-9a-f]{32}$/;

function factsOf(head: MsgHdrs | undefined): DeadLetterFacts {
  const text = (fact: keyof DeadLetterFacts): string => head?.get(FACT_HEADERS[fact]) ?? '';
  const facts: Record<string, unknown> = {};
  for (const fact of ['projectId', 'eventId', 'type'] as const) if (text(fact)) facts[fact] = text(fact);
  for (const fact of ['entryIndex', 'itemIndex', 'receivedAt'] as const)
    if (text(fact)) facts[fact] = Number(text(fact));
  return {
    kind: text('kind') as DeadLetterFacts['kind'],
    reason: text('reason'),
    subject: text('subject'),
    frameId: text('frameId'),
    ...facts,
  };
}

function summaryOf(message: {
  subject: string;
  headers?: MsgHdrs | undefined;
  time: Date;
}): DeadLetterSummary {
  const id = message.subject.slice(DEAD_LETTERS_SUBJECT.length + 1);
  const bytes = Number(message.headers?.get(LETTER_BYTES_HEADER) ?? 0);
  return { id, at: message.time.getTime(), bytes, ...factsOf(message.headers) };
}

/** Every dead letter, oldest first. @throws when the stream does not exist */
export async function* listDeadLetters(link: NatsLink): AsyncGenerator<DeadLetterSummary> {
  // One token behind the subject: manifests, not parts.
  const consumer = await link.js.consumers.get(DEAD_LETTERS_STREAM, {
    filter_subjects: `${DEAD_LETTERS_SUBJECT}.*`,
    headers_only: true,
    deliver_policy: DeliverPolicy.All,
  });
  try {
    if ((await consumer.info()).num_pending === 0) return;
    for await (const message of await consumer.consume()) {
      yield summaryOf(message);
      if (message.info.pending === 0) return;
    }
  } finally {
    await consumer.delete().catch(() => false);
  }
}

async function getMessage(link: NatsLink, subject: string): Promise<StoredMsg> {
  const manager = await link.manager();
  const message = await manager.streams.getMessage(DEAD_LETTERS_STREAM, { last_by_subj: subject });
  if (!message)
    throw new DeadLetterError(`there is no dead letter ${subject.slice(DEAD_LETTERS_SUBJECT.length + 1)}`);
  return message;
}

async function bytesOf(link: NatsLink, manifest: StoredMsg): Promise<Uint8Array> {
  const parts = Number(manifest.header.get(PARTS_HEADER) || 0);
  if (parts === 0) return manifest.data;
  const all: Uint8Array[] = [];
  for (let part = 0; part < parts; part++)
    all.push((await getMessage(link, `${manifest.subject}.${part}`)).data);
  return Buffer.concat(all);
}

/** The entry that an encoded entry holds, if it is one. */
function entryIn(body: Uint8Array): Entry | undefined {
  const [slot] = decodeFrame(encodeFrame([body]));
  return slot?.ok ? slot.entry : undefined;
}

/** @throws DeadLetterError when there is none of this id */
export async function showDeadLetter(link: NatsLink, id: string): Promise<ShownDeadLetter> {
  if (!ID.test(id)) throw new DeadLetterError(`${id} is no id of a dead letter: 32 hex digits expected`);
  const manifest = await getMessage(link, `${DEAD_LETTERS_SUBJECT}.${id}`);
  const summary = summaryOf({ subject: manifest.subject, headers: manifest.header, time: manifest.time });
  const bytes = await bytesOf(link, manifest);
  const bodyBytes = Number(manifest.header.get(BODY_BYTES_HEADER));
  const body = bytes.subarray(0, bodyBytes);
  const entry = summary.kind === 'frame' ? undefined : entryIn(body);
  return { ...summary, body, rest: bytes.subarray(bodyBytes), ...(entry && { entry }) };
}

/** Payloads of an entry that is too large for a message, into the chunks stream. */
async function chunked(link: NatsLink, entry: EnvelopeEntry, partBytes: number): Promise<EnvelopeEntry> {
  const whole = Buffer.concat(entry.items.map(({ payload }) => payload ?? new Uint8Array()));
  const sequences: number[] = [];
  for (let at = 0; at < whole.length; at += partBytes) {
    const part = whole.subarray(at, at + partBytes);
    const head = fillRecord(headers(), CHUNKS_SUBJECT, part.length);
    const options = { headers: head, timeout: BROKER_REPLY_MS_MAX };
    sequences.push((await link.js.publish(CHUNKS_SUBJECT, part, options)).seq);
  }
  const parts: PartsRef = {
    sequences,
    length: whole.length,
    sha256: createHash('sha256').update(whole).digest(),
  };
  return { ...entry, items: entry.items.map(({ payload: _, ...item }) => item), parts };
}

async function frameOf(link: NatsLink, { kind, body, entry }: ShownDeadLetter): Promise<Uint8Array> {
  if (kind === 'frame') return body;
  const partBytes = Math.min(FRAME_BYTES_MAX, Math.floor(link.maxPayload / 2));
  const isLarge = body.length > partBytes && entry?.kind === 'envelope' && !entry.parts;
  return encodeFrame([isLarge ? encodeEntry(await chunked(link, entry, partBytes)) : body]);
}

/**
 * Publishes the letter's frame or entry to the stream that it came from, and removes the letter. What cannot be
 * stored this time either comes back as another dead letter.
 * @throws DeadLetterError when there is none of this id; the broker's error when the stream does not take it: the letter then stays
 */
export async function replayDeadLetter(link: NatsLink, id: string): Promise<DeadLetterSummary> {
  const letter = await showDeadLetter(link, id);
  const { body: _body, rest: _rest, entry: _entry, ...summary } = letter;
  const head = headers();
  // Of this letter, not of this command: whoever replays it twice at the same time has one frame.
  head.set('Nats-Msg-Id', `replay:${id}:${letter.at}`);
  const frame = await frameOf(link, letter);
  fillRecord(head, letter.subject, frame.length);
  await link.js.publish(letter.subject, frame, { headers: head, timeout: BROKER_REPLY_MS_MAX });
  await purgeDeadLetters(link, { id });
  return summary;
}

/**
 * Removes one dead letter, or all.
 * @returns how many there were
 */
export async function purgeDeadLetters(link: NatsLink, { id }: { id?: string } = {}): Promise<number> {
  const manager = await link.manager();
  const subject = `${DEAD_LETTERS_SUBJECT}.${id ?? '*'}`;
  // The manifest first: without it the parts are nothing.
  const { purged } = await manager.streams.purge(DEAD_LETTERS_STREAM, { filter: subject });
  await manager.streams.purge(DEAD_LETTERS_STREAM, { filter: `${subject}.*` });
  return purged;
}
