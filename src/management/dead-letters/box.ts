/**
 * Lists, reads and removes dead letters. src/stream/dead-letter-format.ts describes their form in
 * the stream. The manifest of a dead letter is the message whose headers have its facts.
 */

import type { JetStreamManager } from '@nats-io/jetstream';
import type { MsgHdrs } from '@nats-io/transport-node';
import { deadLetterHeaders } from '../../processor/dead-letters/bounds.ts';
import {
  BODY_BYTES_HEADER,
  BYTES_GONE_HEADER,
  type DeadLetterFacts,
  type DeadLetterKind,
  FACT_HEADERS,
  LETTER_BYTES_HEADER,
  PARTS_HEADER,
  SHA256_HEADER,
} from '../../stream/dead-letter-format.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { DEAD_LETTERS_STREAM, DEAD_LETTERS_SUBJECT } from '../../stream/topology.ts';
import { OperationError } from '../operation-error.ts';

export type FiledDeadLetter = DeadLetterFacts & {
  id: string;
  /** RFC 3339. */
  filedAt: string;
  /** Sequence of the manifest in the stream. */
  sequence: number;
  /** Subject of the manifest. The subjects of the parts begin with it. */
  filedUnder: string;
  parts: number;
  /** Length of the body, in bytes. The body comes first, and only the body is replayed. */
  bodyBytes: number;
  bytes: number;
  /** Hash of all bytes, in hex. Dead letters of earlier builds have none. */
  sha256?: string;
  /** Set when the bytes were more than the project's share of the stream, and were not kept. */
  bytesGone?: true;
};

/**
 * Subject filters for manifests, the messages with a dead letter's headers: `<id>` of earlier
 * builds, and `<project>.<id>` of this build. The second filter also matches parts of earlier
 * builds, `<id>.<k>`. `list` skips these parts: their headers name no kind.
 */
const MANIFESTS = [`${DEAD_LETTERS_SUBJECT}.*`, `${DEAD_LETTERS_SUBJECT}.*.*`] as const;

export type SequencePage = { after?: number; limit?: number };

/** Filter of a list of dead letters. A field that is undefined restricts nothing. */
export type LetterFilter = {
  project?: string | undefined;
  /** Text that the reason contains. */
  reason?: string | undefined;
  /** Times of filing, RFC 3339: at `since` or later, and earlier than `before`. */
  since?: string | undefined;
  before?: string | undefined;
};
export type LetterPage = SequencePage & LetterFilter;

const isWanted = (letter: FiledDeadLetter, { project, reason, since, before }: LetterFilter): boolean =>
  (project === undefined || letter.projectId === project) &&
  (reason === undefined || letter.reason.includes(reason)) &&
  (since === undefined || Date.parse(letter.filedAt) >= Date.parse(since)) &&
  (before === undefined || Date.parse(letter.filedAt) < Date.parse(before));

/** Error for a dead letter that lacks bytes although its manifest is there. */
export class BytesGoneError extends OperationError {
  override name = 'BytesGoneError';

  constructor(message: string) {
    super('conflict', message);
  }
}

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

  /** Lists at most `limit` dead letters that follow the sequence `after`, oldest first. */
  async list(page: LetterPage = {}): Promise<FiledDeadLetter[]> {
    const { after = 0, limit = Number.POSITIVE_INFINITY } = page;
    const letters: FiledDeadLetter[] = [];
    for (const filter of MANIFESTS) {
      let found = 0;
      for await (const message of deadLetterHeaders(this.#link, filter, after + 1)) {
        const { subject, headers, seq, info } = message;
        if (!headers?.get(FACT_HEADERS.kind)) continue;
        const letter = filed({ subject, headers, sequence: seq, storedAt: info.timestampNanos / 1e6 });
        if (!isWanted(letter, page)) continue;
        letters.push(letter);
        if (++found >= limit) break;
      }
    }
    return letters.sort((one, other) => one.sequence - other.sequence).slice(0, limit);
  }

  /** @throws OperationError when there is no dead letter of this id */
  async get(id: string): Promise<FiledDeadLetter> {
    const message =
      (await this.#last(`${DEAD_LETTERS_SUBJECT}.*.${id}`)) ??
      (await this.#last(`${DEAD_LETTERS_SUBJECT}.${id}`));
    if (!message) throw new OperationError('unknown', `There is no dead letter ${id}.`);
    const { subject, header: headers, seq: sequence, time } = message;
    return filed({ subject, headers, sequence, storedAt: time.getTime() });
  }

  /**
   * Reads all bytes of a dead letter; the first `bodyBytes` of them are its body.
   * @throws BytesGoneError when bytes are missing
   */
  async bytesOf({ id, filedUnder, parts, bytes, sha256, bytesGone }: FiledDeadLetter): Promise<Uint8Array> {
    if (bytesGone)
      throw new BytesGoneError(
        `The ${bytes} bytes of dead letter ${id} were not kept: ` +
          `they are more than its project's share (sha256 ${sha256}).`,
      );
    const pieces: Uint8Array[] = [];
    if (parts === 0) pieces.push((await this.#last(filedUnder))?.data ?? new Uint8Array());
    for (let part = 0; part < parts; part++)
      pieces.push((await this.#last(`${filedUnder}.${part}`))?.data ?? new Uint8Array());
    const whole = Buffer.concat(pieces);
    if (whole.length === bytes) return whole;
    throw new BytesGoneError(`Of dead letter ${id} only ${whole.length} of ${bytes} bytes are there.`);
  }

  /**
   * Removes a dead letter as it was read. If the processor has since filed another dead letter
   * under the same id, the new dead letter stays.
   *
   * The manifest is removed by its sequence. By subject it would take six times as long, because
   * the broker then searches all subjects of the stream. A purge of all messages up to a sequence
   * would also remove parts of a dead letter that is still being filed.
   */
  async purge({ filedUnder, sequence, parts }: FiledDeadLetter): Promise<void> {
    const filter = `${filedUnder}.*`;
    if (parts > 0) await this.#manager.streams.purge(DEAD_LETTERS_STREAM, { filter, seq: sequence + 1 });
    await this.#remove(sequence);
  }

  async #remove(seq: number): Promise<void> {
    try {
      await this.#manager.streams.deleteMessage(DEAD_LETTERS_STREAM, seq, false);
    } catch (error) {
      // A missing message is no error: the dead letter was replaced, or another command removed it.
      if (await this.#manager.streams.getMessage(DEAD_LETTERS_STREAM, { seq })) throw error;
    }
  }

  async #last(subject: string) {
    return this.#manager.streams.getMessage(DEAD_LETTERS_STREAM, { last_by_subj: subject });
  }
}

type Message = { subject: string; headers: MsgHdrs | undefined; sequence: number; storedAt: number };

function filed({ subject, headers, sequence, storedAt }: Message): FiledDeadLetter {
  const text = (name: string): string | undefined => headers?.get(name) || undefined;
  const number = (name: string): number | undefined => {
    const value = text(name);
    return value === undefined ? undefined : Number(value);
  };
  const optional = <K extends string, V>(key: K, value: V | undefined) =>
    value === undefined ? {} : ({ [key]: value } as Record<K, V>);
  return {
    id: subject.slice(subject.lastIndexOf('.') + 1),
    filedAt: new Date(storedAt).toISOString(),
    kind: (text(FACT_HEADERS.kind) ?? 'frame') as DeadLetterKind,
    reason: text(FACT_HEADERS.reason) ?? '',
    subject: text(FACT_HEADERS.subject) ?? '',
    frameId: text(FACT_HEADERS.frameId) ?? '',
    ...optional('entryIndex', number(FACT_HEADERS.entryIndex)),
    ...optional('itemIndex', number(FACT_HEADERS.itemIndex)),
    ...optional('elements', text(FACT_HEADERS.elements)),
    ...optional('projectId', text(FACT_HEADERS.projectId)),
    ...optional('eventId', text(FACT_HEADERS.eventId)),
    ...optional('type', text(FACT_HEADERS.type)),
    ...optional('receivedAt', number(FACT_HEADERS.receivedAt)),
    ...optional('attempts', number(FACT_HEADERS.attempts)),
    ...optional('firstFiledAt', text(FACT_HEADERS.firstFiledAt)),
    sequence,
    filedUnder: subject,
    parts: number(PARTS_HEADER) ?? 0,
    bodyBytes: number(BODY_BYTES_HEADER) ?? 0,
    bytes: number(LETTER_BYTES_HEADER) ?? 0,
    ...optional('sha256', text(SHA256_HEADER)),
    ...(text(BYTES_GONE_HEADER) && { bytesGone: true }),
  };
}
