/**
 * Dead letters as they are in their stream: what the processor could not store, with its
 * reason and its bytes.
 *
 * Each has a subject of its own, made of the project, the frame's id and the place in it, and the
 * stream keeps the last message of a subject: to publish the same dead letter twice changes
 * nothing. (No Nats-Msg-Id: the broker would swallow a dead letter that was purged a moment ago.)
 * The message is the manifest, everything but the body in headers; a body larger than a message is
 * in parts below the subject, published before it.
 *
 *     sluice.dead_letters.<project>.<id>        headers, and the body if it is small
 *     sluice.dead_letters.<project>.<id>.<k>    part k of the body, from 0
 *
 * `<project>` is `-` for a dead letter of no project. Earlier builds filed dead letters without it.
 *
 * The body is what replay needs: a whole frame, an encoded entry, or an encoded entry that was made
 * for one item, or for several of an envelope: then its kind is `entry`, too. Behind it may be
 * further bytes that belong to the dead letter (what could be read of a large entry's damaged
 * parts). A dead letter that is larger than its project's share has no bytes, only their number and
 * hash.
 */
import { createHash } from 'node:crypto';
import { headers, type MsgHdrs } from '@nats-io/transport-node';
import { DEAD_LETTERS_SUBJECT, projectSegment } from './topology.ts';

export type DeadLetterKind = 'frame' | 'entry' | 'item';

/** Facts about a dead letter besides its body. */
export type DeadLetterFacts = {
  kind: DeadLetterKind;
  /** One sentence for an operator. */
  reason: string;
  /** Subject that the frame came from, and that a replay goes to. */
  subject: string;
  frameId: string;
  /** Place in the frame; undefined for a whole frame. */
  entryIndex?: number;
  itemIndex?: number;
  /** Places of what it has of the item's container, when that is not all. */
  elements?: string;
  projectId?: string;
  eventId?: string;
  /** An item type, or heartbeat. */
  type?: string;
  /** Unix milliseconds. */
  receivedAt?: number;
  /** How often it was replayed before it was filed again; absent: never. */
  attempts?: number;
  /** When it was filed for the first time, RFC 3339, where it was replayed since. */
  firstFiledAt?: string;
};

export type DeadLetter = DeadLetterFacts & {
  body: Uint8Array;
  /** Bytes that belong to it and are not replayed. */
  rest?: Uint8Array;
};

const REASON_CHARS_MAX = 500;

/** Header of each fact. Numbers and texts alike are written as text. */
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
/** Hash of all bytes of the dead letter, in hex. */
export const SHA256_HEADER = 'Sluice-Sha256';
/** Set when the bytes were left out. */
export const BYTES_GONE_HEADER = 'Sluice-Bytes-Gone';

/** 32 hex, the same for every delivery of the frame. */
export function deadLetterId({ frameId, entryIndex, itemIndex, elements }: DeadLetterFacts): string {
  const place = [frameId, entryIndex ?? '', itemIndex ?? '', ...(elements ? [elements] : [])].join('\n');
  return createHash('sha256').update(place).digest('hex').slice(0, 32);
}

/** Header values are one line of visible characters. */
const printable = (text: string): string => text.replace(/[^\x20-\x7e]+/g, ' ').slice(0, REASON_CHARS_MAX);

/** Facts about a dead letter's bytes. */
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

/**
 * Id of the frame that an entry or item becomes when it is replayed, from the id of its dead
 * letter.
 */
export const replayFrameId = (id: string): string => `replay.${id}`;
export const isReplayed = (frameId: string): boolean => frameId.startsWith('replay.');

/** Facts that a replay hands on in the headers of its frame, should it be filed again. */
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
