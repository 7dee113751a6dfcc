/**
 * Keeps the dead letters of each project within a share of their stream, and all together below its
 * bound, by removing the oldest.
 *
 * What a project has is read from the stream when its first dead letter comes, and grows with each
 * dead letter that this process files. Dead letters also go without us (age, a purge), and other
 * processors file theirs. So when the share seems full it is read again, unless it was read a
 * moment ago and no letter has gone since, and only then dead letters are removed, a tenth of the
 * share at a time. With several processors a project may have one share for each of them.
 *
 * The broker itself removes the oldest message of a full stream (`discard: old`), but the
 * processor would not learn how many dead letters went.
 */
import type { JsMsg } from '@nats-io/jetstream';
import type { Clock } from '../../lib/clock.ts';
import { FACT_HEADERS } from '../../stream/dead-letter-format.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { storedMessages } from '../../stream/stored-messages.ts';
import { DEAD_LETTERS_STREAM, DEAD_LETTERS_SUBJECT } from '../../stream/topology.ts';

/**
 * One project's dead letters take at most this part of their stream, and so many messages: all are
 * read at times.
 */
const SHARES = 8;
const MESSAGES_MAX = 10_000;
/**
 * Projects whose figures a processor keeps, some 100 bytes each; those of others are read again.
 */
const PROJECTS_KNOWN_MAX = 10_000;
/** What remains of a share, or of the whole stream, after dead letters were removed from it. */
const KEPT_SHARE = 0.9;
/** Headers and what the broker adds, of one message. */
const MESSAGE_OVERHEAD_BYTES = 1024;
/**
 * The broker is asked for the stream's size again when we have filed so much of its bound, or after
 * this time. What a project has is not read again before it.
 */
const LOOK_SHARE = 0.01;
const LOOK_MS = 10_000;

/** Bytes that one project's dead letters may take. */
export const deadLetterShare = (streamBytesMax: number): number => Math.floor(streamBytesMax / SHARES);

/** Headers of the messages below a subject from a sequence on, oldest first. */
export const deadLetterHeaders = (link: NatsLink, filter: string, from = 1): AsyncGenerator<JsMsg> =>
  storedMessages(link, DEAD_LETTERS_STREAM, {
    filter_subjects: filter,
    headers_only: true,
    opt_start_seq: from,
  });

type Message = { sequence: number; bytes: number; isLetter: boolean };
/** A letter is a message, or several where it is large. */
type Size = { bytes: number; messages: number; letters: number };
/** `readAt`: when it was read from the stream, monotonic ms. */
type Used = Size & { readAt: number };
/** Whether a project's share has room for the bytes of a letter. */
const fits = (bytes: number, bytesMax: number): boolean =>
  bytes + MESSAGE_OVERHEAD_BYTES <= deadLetterShare(bytesMax);

/** The stream's bound, what it held at the last look and what we have filed since. */
type StreamLook = { bytesMax: number; bytes: number; filed: number; at: number };

export class DeadLetterBounds {
  readonly #link: NatsLink;
  readonly #clock: Clock;
  readonly #onDropped: (letters: number, projectSegment?: string) => void;
  /** Of projects that had dead letters lately. */
  readonly #projects = new Map<string, Used>();
  #stream: StreamLook | undefined;
  /** One dead letter at a time: nothing is removed, and counted, twice. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(parts: {
    link: NatsLink;
    clock: Clock;
    onDropped(letters: number, projectSegment?: string): void;
  }) {
    this.#link = parts.link;
    this.#clock = parts.clock;
    this.#onDropped = parts.onDropped;
  }

  /**
   * Makes room for a dead letter of a project.
   * @param mayAsk whether it is still to be tried when its turn comes
   * @returns false when its bytes do not fit the project's share: then only its record is to be
   * filed
   * @throws when the broker does not answer, or the letter is not to be tried
   */
  makeRoom(projectSegment: string, bytes: number, mayAsk = () => true): Promise<boolean> {
    const room = this.#turn.then(() => {
      if (!mayAsk()) throw new Error('another dead letter could not be filed');
      return this.#makeRoom(projectSegment, bytes);
    });
    this.#turn = room.catch(() => undefined);
    return room;
  }

  /** After the stream was away or made anew. */
  forget(): void {
    this.#projects.clear();
    this.#stream = undefined;
  }

  async #makeRoom(projectSegment: string, bytes: number): Promise<boolean> {
    const { bytesMax } = await this.#makeRoomInStream(bytes);
    const share = deadLetterShare(bytesMax);
    const keepsBytes = fits(bytes, bytesMax);
    const more = (keepsBytes ? bytes : 0) + MESSAGE_OVERHEAD_BYTES;
    const isOver = (used: Used): boolean => used.bytes + more > share || used.messages >= MESSAGES_MAX;
    const filter = `${DEAD_LETTERS_SUBJECT}.${projectSegment}.>`;
    const now = this.#clock.monotonic();
    let used = this.#projects.get(projectSegment);
    if (!used || (isOver(used) && (await this.#isOutdated(used, projectSegment, now))))
      used = { ...sumOf(await this.#read(filter)), readAt: now };
    if (isOver(used)) {
      const surplus = {
        bytes: used.bytes + more - share * KEPT_SHARE,
        messages: used.messages - MESSAGES_MAX * KEPT_SHARE,
        letters: 0,
      };
      const gone = await this.#drop(await this.#read(filter, surplus), surplus, projectSegment);
      used = { ...minus(used, gone), readAt: used.readAt };
    }
    const { readAt } = used;
    const filed = { bytes: used.bytes + more, messages: used.messages + 1, letters: used.letters + 1 };
    this.#remember(projectSegment, { ...filed, readAt });
    return keepsBytes;
  }

  /** Whether others have filed or removed letters for a while, or have removed some of these. */
  async #isOutdated(used: Used, projectSegment: string, now: number): Promise<boolean> {
    if (now - used.readAt > LOOK_MS) return true;
    const manager = await this.#link.manager();
    const { state } = await manager.streams.info(DEAD_LETTERS_STREAM, {
      subjects_filter: `${DEAD_LETTERS_SUBJECT}.${projectSegment}.*`,
    });
    return Object.keys(state.subjects ?? {}).length < used.letters;
  }

  async #makeRoomInStream(whole: number): Promise<StreamLook> {
    const now = this.#clock.monotonic();
    let look = this.#stream;
    let bytes = look && !fits(whole, look.bytesMax) ? 0 : whole;
    if (!look || look.filed + bytes > look.bytesMax * LOOK_SHARE || now - look.at > LOOK_MS) {
      const { config, state } = await (await this.#link.manager()).streams.info(DEAD_LETTERS_STREAM);
      const bytesMax = config.max_bytes > 0 ? config.max_bytes : Number.MAX_SAFE_INTEGER;
      look = { bytesMax, bytes: state.bytes, filed: 0, at: now };
      bytes = fits(whole, bytesMax) ? whole : 0;
      const surplus = look.bytes + bytes - bytesMax * KEPT_SHARE;
      if (surplus > 0) {
        const wanted = surplus + bytesMax * LOOK_SHARE;
        const oldest = { bytes: wanted, messages: 0, letters: 0 };
        await this.#drop(await this.#read(`${DEAD_LETTERS_SUBJECT}.>`, oldest), oldest);
        this.#projects.clear(); // whose they were is unknown
      }
    }
    look.filed += bytes + MESSAGE_OVERHEAD_BYTES;
    this.#stream = look;
    return look;
  }

  /** Reads the oldest messages, up to the dead letter with which they are enough; else all. */
  async #read(filter: string, enough = ALL): Promise<Message[]> {
    const messages: Message[] = [];
    let sum = NOTHING;
    for await (const { seq: sequence, headers } of deadLetterHeaders(this.#link, filter)) {
      const bytes = Number(headers?.get('Nats-Msg-Size') || 0) + MESSAGE_OVERHEAD_BYTES;
      const message = { sequence, bytes, isLetter: Boolean(headers?.get(FACT_HEADERS.kind)) };
      messages.push(message);
      sum = plus(sum, message);
      if (message.isLetter && reaches(sum, enough)) break;
    }
    return messages;
  }

  /**
   * Removes the oldest of these messages: whole dead letters, so many that the surplus is gone.
   * @returns what they took
   */
  async #drop(messages: readonly Message[], surplus: Size, projectSegment?: string): Promise<Size> {
    let gone = NOTHING;
    let upTo = 0;
    for (const message of messages) {
      gone = plus(gone, message);
      upTo = message.sequence;
      if (message.isLetter && reaches(gone, surplus)) break;
    }
    if (upTo === 0) return gone; // there was none
    const filter =
      projectSegment === undefined ? {} : { filter: `${DEAD_LETTERS_SUBJECT}.${projectSegment}.>` };
    const manager = await this.#link.manager();
    await manager.streams.purge(DEAD_LETTERS_STREAM, { ...filter, seq: upTo + 1 });
    this.#onDropped(gone.letters, projectSegment);
    return gone;
  }

  #remember(projectSegment: string, used: Used): void {
    this.#projects.delete(projectSegment);
    this.#projects.set(projectSegment, used);
    if (this.#projects.size <= PROJECTS_KNOWN_MAX) return;
    const [longestUnseen] = this.#projects.keys();
    if (longestUnseen !== undefined) this.#projects.delete(longestUnseen);
  }
}

const NOTHING: Size = { bytes: 0, messages: 0, letters: 0 };
const ALL: Size = { bytes: Infinity, messages: Infinity, letters: Infinity };
const plus = (sum: Size, { bytes, isLetter }: Message): Size => ({
  bytes: sum.bytes + bytes,
  messages: sum.messages + 1,
  letters: sum.letters + (isLetter ? 1 : 0),
});
const sumOf = (messages: readonly Message[]): Size => messages.reduce(plus, NOTHING);
const reaches = (sum: Size, wanted: Size): boolean =>
  sum.bytes >= wanted.bytes && sum.messages >= wanted.messages;
const minus = (all: Size, gone: Size): Size => ({
  bytes: all.bytes - gone.bytes,
  messages: all.messages - gone.messages,
  letters: all.letters - gone.letters,
});
