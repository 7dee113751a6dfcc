/** Reads the dead letters. src/processor/dead-letter.ts describes their form in the stream. */

import type { JetStreamManager } from '@nats-io/jetstream';
import type { MsgHdrs } from '@nats-io/transport-node';
import {
  BODY_BYTES_HEADER,
  type DeadLetterFacts,
  type DeadLetterKind,
  FACT_HEADERS,
  LETTER_BYTES_HEADER,
  PARTS_HEADER,
} from '../processor/dead-letter.ts';
import type { NatsLink } from '../stream/nats.ts';
import { DEAD_LETTERS_STREAM, DEAD_LETTERS_SUBJECT } from '../stream/topology.ts';
import { CommandError } from './session.ts';

export type FiledLetter = DeadLetterFacts & {
  id: string;
  /** RFC 3339. */
  filedAt: string;
  /** Of the manifest in the stream. */
  sequence: number;
  parts: number;
  /** What a replay needs, of the bytes that belong to the letter. */
  bodyBytes: number;
  bytes: number;
};

const FETCH = { max_messages: 500, expires: 2_000 };

const subjectOf = (id: string): string => `${DEAD_LETTERS_SUBJECT}.${id}`;

export class DeadLetterBox {
  readonly #link: NatsLink;
  readonly #manager: JetStreamManager;

  private constructor(link: NatsLink, manager: JetStreamManager) {
    this.#link = link;
    this.#manager = manager;
  }

  static async open(link: NatsLink): Promise<DeadLetterBox> {
    return new DeadLetterBox(link, await link.manager());
  }

  /** Oldest first; reads headers, not bodies. */
  async list(): Promise<FiledLetter[]> {
    const letters: FiledLetter[] = [];
    const filter = { filter_subjects: subjectOf('*'), headers_only: true };
    const consumer = await this.#link.js.consumers.get(DEAD_LETTERS_STREAM, filter);
    for (let pending = (await consumer.info(true)).num_pending; pending > 0; ) {
      // A letter may be purged meanwhile: a fetch that brings nothing ends the reading too.
      pending = 0;
      for await (const { subject, headers, seq, info } of await consumer.fetch(FETCH)) {
        letters.push(filed({ subject, headers, sequence: seq, storedAt: info.timestampNanos / 1e6 }));
        pending = info.pending;
        if (pending === 0) break;
      }
    }
    return letters;
  }

  /** @throws CommandError when there is none */
  async get(id: string): Promise<FiledLetter> {
    const message = await this.#last(subjectOf(id));
    if (!message) throw new CommandError(`There is no dead letter ${id}.`);
    const { subject, header: headers, seq: sequence, time } = message;
    return filed({ subject, headers, sequence, storedAt: time.getTime() });
  }

  /**
   * All bytes of a letter; the first `bodyBytes` of them are its body. @throws CommandError when a
   * part is missing
   */
  async bytesOf({ id, parts, bytes }: FiledLetter): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    if (parts === 0) pieces.push((await this.#last(subjectOf(id)))?.data ?? new Uint8Array());
    for (let part = 0; part < parts; part++)
      pieces.push((await this.#last(`${subjectOf(id)}.${part}`))?.data ?? new Uint8Array());
    const whole = Buffer.concat(pieces);
    if (whole.length === bytes) return whole;
    throw new CommandError(`Of dead letter ${id} only ${whole.length} of ${bytes} bytes are there.`);
  }

  /**
   * Removes a letter as it was read. A letter that the processor has filed again meanwhile under
   * the same id stays.
   *
   * By sequence, because the broker searches all subjects of the stream for a filter, which is six
   * times slower. One request must not remove all letters up to a sequence: below it may be parts
   * of a letter that is still being filed.
   */
  async purge({ id, sequence, parts }: FiledLetter): Promise<void> {
    const filter = `${subjectOf(id)}.*`;
    if (parts > 0) await this.#manager.streams.purge(DEAD_LETTERS_STREAM, { filter, seq: sequence + 1 });
    await this.#remove(sequence);
  }

  async #remove(seq: number): Promise<void> {
    try {
      await this.#manager.streams.deleteMessage(DEAD_LETTERS_STREAM, seq, false);
    } catch (error) {
      // Replaced, or removed by another command, since it was read.
      if (await this.#manager.streams.getMessage(DEAD_LETTERS_STREAM, { seq })) throw error;
    }
  }

  async #last(subject: string) {
    return this.#manager.streams.getMessage(DEAD_LETTERS_STREAM, { last_by_subj: subject });
  }
}

type Message = { subject: string; headers: MsgHdrs | undefined; sequence: number; storedAt: number };

function filed({ subject, headers, sequence, storedAt }: Message): FiledLetter {
  const text = (name: string): string | undefined => headers?.get(name) || undefined;
  const number = (name: string): number | undefined => {
    const value = text(name);
    return value === undefined ? undefined : Number(value);
  };
  const optional = <K extends string, V>(key: K, value: V | undefined) =>
    value === undefined ? {} : ({ [key]: value } as Record<K, V>);
  return {
    id: subject.slice(DEAD_LETTERS_SUBJECT.length + 1),
    filedAt: new Date(storedAt).toISOString(),
    kind: (text(FACT_HEADERS.kind) ?? 'frame') as DeadLetterKind,
    reason: text(FACT_HEADERS.reason) ?? '',
    subject: text(FACT_HEADERS.subject) ?? '',
    frameId: text(FACT_HEADERS.frameId) ?? '',
    ...optional('entryIndex', number(FACT_HEADERS.entryIndex)),
    ...optional('itemIndex', number(FACT_HEADERS.itemIndex)),
    ...optional('projectId', text(FACT_HEADERS.projectId)),
    ...optional('eventId', text(FACT_HEADERS.eventId)),
    ...optional('type', text(FACT_HEADERS.type)),
    ...optional('receivedAt', number(FACT_HEADERS.receivedAt)),
    sequence,
    parts: number(PARTS_HEADER) ?? 0,
    bodyBytes: number(BODY_BYTES_HEADER) ?? 0,
    bytes: number(LETTER_BYTES_HEADER) ?? 0,
  };
}
