/**
 * The form of dead letters in their stream.
 *
 * Each dead letter has a subject of its own, made of its project, its frame's id and its place in
 * the frame. The stream keeps only the last message of a subject, so publishing a dead letter twice
 * changes nothing. (Dead letters have no Nats-Msg-Id: with one, the broker would drop a dead letter
 * that is published again right after it was purged.) The headers of the message are the manifest;
 * its data is the body. A body that is larger than a message is published first, as parts whose
 * subjects are below the dead letter's.
 *
 * A dead letter is filed before its batch is stored. If the batch then fails, the letter stays,
 * even if the next attempt stores the item.
 *
 * sluice.dead_letters.<project>.<id>        headers, and the body if it is small
 * sluice.dead_letters.<project>.<id>.<k>    part k of the body, from 0
 *
 * `<project>` is `-` for a dead letter without a project. Earlier builds left this segment out.
 *
 * The body is what a replay needs: a whole frame, or an encoded entry. The kind `item` stands for
 * an encoded entry that was made for one item. An entry that was made for several items of an
 * envelope has the kind `entry`, like a whole one. Further bytes may follow the body: the readable
 * rest of a large entry's damaged parts. If the bytes exceed its project's share of the stream, the
 * dead letter has only their number and hash.
 */
import { createHash } from 'node:crypto';
import { headers, type MsgHdrs } from '@nats-io/transport-node';
import { DEAD_LETTERS_SUBJECT, projectSegment } from './topology.ts';

export type DeadLetterKind = 'frame' | 'entry' | 'item';

/** Facts about a dead letter, apart from its bytes. */
export type DeadLetterFacts = {
  kind: DeadLetterKind;
  /** Why the letter was filed, in one sentence for an operator. */
  reason: string;
  /** Subject from which the frame came, and to which a replay publishes. */
  subject: string;
  frameId: string;
  /** Position of the entry in the frame; undefined for a whole frame. */
  entryIndex?: number;
  itemIndex?: number;
  /**
   * Positions of the elements (spans or logs) that the dead letter has of its item, separated by
   * commas; absent when it has all.
   */
  elements?: string;
  projectId?: string;
  eventId?: string;
  /** Type of the item, or `heartbeat`. */
  type?: string;
  /** When ingest received the envelope or heartbeat, Unix milliseconds. */
  receivedAt?: number;
  /** How often the dead letter was replayed before it was filed again; absent: never. */
  attempts?: number;
  /** When the dead letter was first filed, RFC 3339; present when it has been replayed since. */
  firstFiledAt?: string;
};

export type DeadLetter = DeadLetterFacts & {
  body: Uint8Array;
  /** Those parts of a damaged large entry that were found. A replay leaves them out. */
  rest?: Uint8Array;
};

const REASON_CHARS_MAX = 500;

/** The header of each fact. Numbers are written as text. */
export const FACT_HEADERS = {
  kind: 'Sluice-Kind',
  reason: 'Sluice-Reason',
  subject: 'Sluice-Subject',
  frameId: 'Sluice-Frame',
  entryIndex: 'Sluice-Entry',
  itemIndex: 'Sluice-Item',
  elements: 'Sluice-Elements',
  projectId: 'Sluice-Project',
  eventId: 'Sluice-Event',
  type: 'Sluice-Type',
  receivedAt: 'Sluice-Received-At',
  attempts: 'Sluice-Attempts',
  firstFiledAt: 'Sluice-First-Filed',
} as const satisfies Record<keyof DeadLetterFacts, string>;
export const PARTS_HEADER = 'Sluice-Parts';
export const BODY_BYTES_HEADER = 'Sluice-Body-Bytes';
export const LETTER_BYTES_HEADER = 'Sluice-Bytes';
/** SHA-256 of all bytes of the dead letter, in hex. */
export const SHA256_HEADER = 'Sluice-Sha256';
/** Set when the dead letter's bytes were left out. */
export const BYTES_GONE_HEADER = 'Sluice-Bytes-Gone';

/** The id of a dead letter: 32 hex digits, the same for every delivery of the frame. */
export function deadLetterId({ frameId, entryIndex, itemIndex, elements }: DeadLetterFacts): string {
  const place = [frameId, entryIndex ?? '', itemIndex ?? '', ...(elements ? [elements] : [])].join('\n');
  return createHash('sha256').update(place).digest('hex').slice(0, 32);
}

/** Makes a header value of a text: one line of visible ASCII characters. */
const printable = (text: string): string => text.replace(/[^\x20-\x7e]+/g, ' ').slice(0, REASON_CHARS_MAX);

type DeadLetterBytes = { length: number; sha256: string; parts: number; gone: boolean };

export function manifest(letter: DeadLetter, { length, sha256, parts, gone }: DeadLetterBytes): MsgHdrs {
  const out = headers();
  for (const [fact, name] of Object.entries(FACT_HEADERS)) {
    const value = letter[fact as keyof DeadLetterFacts];
    if (value !== undefined) out.set(name, printable(`${value}`));
  }
  out.set(PARTS_HEADER, `${parts}`);
  out.set(BODY_BYTES_HEADER, `${letter.body.length}`);
  out.set(LETTER_BYTES_HEADER, `${length}`);
  out.set(SHA256_HEADER, sha256);
  if (gone) out.set(BYTES_GONE_HEADER, '1');
  return out;
}

export const letterSubject = (letter: DeadLetterFacts): string =>
  `${DEAD_LETTERS_SUBJECT}.${projectSegment(letter.projectId)}.${deadLetterId(letter)}`;

/** Id of the frame in which an entry or item is replayed, made from the id of its dead letter. */
export const replayFrameId = (id: string): string => `replay.${id}`;
export const isReplayed = (frameId: string): boolean => frameId.startsWith('replay.');

/**
 * Facts that a replay gives to its frame as headers. If the frame becomes a dead letter again, the
 * new dead letter takes them over.
 */
export type ReplayFacts = { attempts: number; firstFiledAt: string };
export const replayHeaders = ({ attempts, firstFiledAt }: ReplayFacts): Record<string, string> => ({
  [FACT_HEADERS.attempts]: `${attempts}`,
  [FACT_HEADERS.firstFiledAt]: firstFiledAt,
});
export const replayFacts = (from: MsgHdrs | undefined): ReplayFacts | undefined =>
  from?.has(FACT_HEADERS.attempts)
    ? {
        attempts: Number(from.get(FACT_HEADERS.attempts)),
        firstFiledAt: from.get(FACT_HEADERS.firstFiledAt),
      }
    : undefined;
