/**
 * Dead letters: items, entries and frames that the processor could not store, with the reason and
 * the bytes.
 *
 * Each has a subject of its own, made of the frame's id and the place in it, and the stream keeps
 * the last message of a subject: to publish the same letter twice changes nothing. (No Nats-Msg-Id:
 * the broker would swallow a letter that was purged a moment ago.) The message is the manifest,
 * everything but the body in headers. A body larger than a message is in parts below the subject,
 * published before it.
 *
 *     sluice.dead_letters.<id>        headers, and the body if it is small
 *     sluice.dead_letters.<id>.<k>    part k of the body, from 0
 *
 * Replay needs the body: a whole frame, an encoded entry, or an encoded entry that was made for one
 * item alone. Further bytes of the letter may follow it (the readable rest of a large entry's
 * damaged parts).
 */
import { createHash } from 'node:crypto';
import { headers, type MsgHdrs } from '@nats-io/transport-node';
import { BROKER_REPLY_MS_MAX, FRAME_BYTES_MAX } from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { fillRecord } from '../stream/record-size.ts';
import { DEAD_LETTERS_SUBJECT } from '../stream/topology.ts';
import { orUnavailable } from './unavailable.ts';

export type DeadLetterKind = 'frame' | 'entry' | 'item';

/** What is known of a dead letter besides its body. */
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
  projectId?: string;
  eventId?: string;
  /** An item type, or heartbeat. */
  type?: string;
  /** Unix milliseconds. */
  receivedAt?: number;
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
  projectId: 'Sluice-Project',
  eventId: 'Sluice-Event',
  type: 'Sluice-Type',
  receivedAt: 'Sluice-Received-At',
} as const satisfies Record<keyof DeadLetterFacts, string>;
export const PARTS_HEADER = 'Sluice-Parts';
export const BODY_BYTES_HEADER = 'Sluice-Body-Bytes';
export const LETTER_BYTES_HEADER = 'Sluice-Bytes';

/** 32 hex, the same for every delivery of the frame. */
export function deadLetterId({ frameId, entryIndex, itemIndex }: DeadLetterFacts): string {
  const place = [frameId, entryIndex ?? '', itemIndex ?? ''].join('\n');
  return createHash('sha256').update(place).digest('hex').slice(0, 32);
}

/** Header values are one line of visible characters. */
const printable = (text: string): string => text.replace(/[^\x20-\x7e]+/g, ' ').slice(0, REASON_CHARS_MAX);

function manifest(letter: DeadLetter, parts: number): MsgHdrs {
  const out = headers();
  for (const [fact, name] of Object.entries(FACT_HEADERS)) {
    const value = letter[fact as keyof DeadLetterFacts];
    if (value !== undefined) out.set(name, printable(`${value}`));
  }
  out.set(PARTS_HEADER, `${parts}`);
  out.set(BODY_BYTES_HEADER, `${letter.body.length}`);
  out.set(LETTER_BYTES_HEADER, `${letter.body.length + (letter.rest?.length ?? 0)}`);
  return out;
}

export class DeadLetters {
  readonly #link: NatsLink;

  constructor(link: NatsLink) {
    this.#link = link;
  }

  /** Resolves when the broker has the whole letter. @throws UnavailableError: full, or away */
  async publish(letter: DeadLetter): Promise<void> {
    const subject = `${DEAD_LETTERS_SUBJECT}.${deadLetterId(letter)}`;
    const whole = letter.rest ? Buffer.concat([letter.body, letter.rest]) : letter.body;
    const partBytes = Math.min(FRAME_BYTES_MAX, Math.floor(this.#link.maxPayload / 2));
    const parts = whole.length <= partBytes ? 0 : Math.ceil(whole.length / partBytes);
    const options = { timeout: BROKER_REPLY_MS_MAX };
    await orUnavailable('a dead letter cannot be published', async () => {
      for (let part = 0; part < parts; part++) {
        const bytes = whole.subarray(part * partBytes, (part + 1) * partBytes);
        const partSubject = `${subject}.${part}`;
        const padded = fillRecord(headers(), partSubject, bytes.length);
        await this.#link.js.publish(partSubject, bytes, { ...options, headers: padded });
      }
      const body = parts === 0 ? whole : undefined;
      const padded = fillRecord(manifest(letter, parts), subject, body?.length ?? 0);
      await this.#link.js.publish(subject, body, { ...options, headers: padded });
    });
  }
}
