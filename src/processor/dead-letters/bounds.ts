/**
 * Removes the oldest dead letters when a project exceeds its share of their stream, or when the
 * stream is nearly full.
 *
 * The processor reads the size of a project's dead letters from the stream once, and adds each dead
 * letter that it files. But dead letters also disappear by age or a purge, and other processors
 * file some. So when the project's share seems full, the size is read again, unless it was read in
 * the last LOOK_MS and no letter has gone since. If the share is still full, the oldest dead
 * letters are removed until a tenth of it is free. Each processor counts alone, so with several of
 * them a project may fill several shares.
 *
 * The broker, too, would remove the oldest message of a full stream (`discard: old`), but the
 * processor would not learn how many dead letters went.
 */
import type { JsMsg } from '@nats-io/jetstream';
import type { Clock } from '../../lib/clock.ts';
import { FACT_HEADERS } from '../../stream/dead-letter-format.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { storedMessages } from '../../stream/stored-messages.ts';
import { DEAD_LETTERS_STREAM, DEAD_LETTERS_SUBJECT } from '../../stream/topology.ts';

/**
 * Bounds of one project's dead letters: an eighth of their stream's max_bytes, and MESSAGES_MAX
 * messages. The number is bounded because some commands read the headers of all.
 */
const SHARES = 8;
const MESSAGES_MAX = 10_000;
/**
 * Most projects whose size of dead letters a processor remembers, in some 100 bytes each. For other
 * projects the size is read from the stream again.
 */
const PROJECTS_KNOWN_MAX = 10_000;
/**
 * Old dead letters are removed until the others fill this part of the bound, a project's or the
 * stream's.
 */
const KEPT_SHARE = 0.9;
/** Bytes that are assumed for a message's headers and for what the broker adds. */
const MESSAGE_OVERHEAD_BYTES = 1024;
/**
 * The broker is asked for the stream's size again after this process has filed this part of the
 * stream's bound, or after LOOK_MS.
 */
const LOOK_SHARE = 0.01;
const LOOK_MS = 10_000;

/** Bytes that one project's dead letters may take. */
export const deadLetterShare = (streamBytesMax: number): number => Math.floor(streamBytesMax / SHARES);

/**
 * Reads the headers of the messages whose subjects match the filter, from a sequence on, oldest
 * first.
 */
export const deadLetterHeaders = (link: NatsLink, filter: string, from = 1): AsyncGenerator<JsMsg> =>
  storedMessages(link, DEAD_LETTERS_STREAM, {
    filter_subjects: filter,
    headers_only: true,
    opt_start_seq: from,
  });

type Message = { sequence: number; bytes: number; isLetter: boolean };
/** Size of a set of dead letters. A large letter takes several messages. */
type Size = { bytes: number; messages: number; letters: number };
/** Size of a project's dead letters. `readAt`: when it was read from the stream, monotonic ms. */
type Used = Size & { readAt: number };
/** Whether a letter with this many bytes fits into a project's share. */
const fits = (bytes: number, bytesMax: number): boolean =>
  bytes + MESSAGE_OVERHEAD_BYTES <= deadLetterShare(bytesMax);

/**
 * The stream's bound and its bytes at the last look, the bytes this process filed since, and the
 * time of the look (monotonic ms).
 */
type StreamLook = { bytesMax: number; bytes: number; filed: number; at: number };

export class DeadLetterBounds {
  readonly #link: NatsLink;
  readonly #clock: Clock;
  readonly #onDropped: (letters: number, projectSegment?: string) => void;
  /**
   * Size of the dead letters of each project that had some lately, by the project's segment in
   * subjects.
   */
  readonly #projects = new Map<string, Used>();
  #stream: StreamLook | undefined;
  /**
   * Settles when room for the previous letter was made. Letters take turns, so that no old letter
   * is counted twice.
   */
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
   * @param mayAsk called when the letter's turn comes; returns false if it is no longer to be filed
   * @returns false when the letter's bytes do not fit the project's share: then it is to be filed
   * without bytes
   * @throws when the broker does not answer, or `mayAsk` returns false
   */
  makeRoom(projectSegment: string, bytes: number, mayAsk = () => true): Promise<boolean> {
    const room = this.#turn.then(() => {
      if (!mayAsk()) throw new Error('another dead letter could not be filed');
      return this.#makeRoom(projectSegment, bytes);
    });
    this.#turn = room.catch(() => undefined);
    return room;
  }

  /**
   * Forgets the sizes that were read from the stream. Called when the stream was away or was
   * created again.
   */
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

  /**
   * Whether the remembered size is older than LOOK_MS, or some of the letters that it includes are
   * gone.
   */
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
        this.#projects.clear(); // it is unknown whose letters were removed
      }
    }
    look.filed += bytes + MESSAGE_OVERHEAD_BYTES;
    this.#stream = look;
    return look;
  }

  /**
   * Reads the messages of the oldest dead letters, until their sum reaches `enough`; by default, of
   * all.
   */
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
   * Removes dead letters, the oldest first and each with all its messages, until the surplus is
   * gone.
   * @param messages of the dead letters, oldest first
   * @returns the size of what was removed
   */
  async #drop(messages: readonly Message[], surplus: Size, projectSegment?: string): Promise<Size> {
    let gone = NOTHING;
    let upTo = 0;
    for (const message of messages) {
      gone = plus(gone, message);
      upTo = message.sequence;
      if (message.isLetter && reaches(gone, surplus)) break;
    }
    if (upTo === 0) return gone; // there is nothing to remove
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
