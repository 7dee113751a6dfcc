/**
 * Sends a dead letter back to the stream from which it came. If that stream was a shard that has
 * been removed, another stream of the same kind takes the dead letter.
 *
 * A replay stores nothing twice while the sink remembers the frame (ndjson ten minutes, PostgreSQL
 * a day). The sink recognizes a frame by its Nats-Msg-Id. A whole frame keeps its id, so entries
 * that the sink stored before the frame became a dead letter are not stored again. An entry or an
 * item becomes a frame of its own, whose id is made of the dead letter's id. If a command is
 * interrupted after it has published that frame, and runs again, both frames have the same id and
 * the sink stores one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { FRAME_BYTES_MAX, REPLAY_MS_MAX } from '../../limits.ts';
import { replayFrameId, replayHeaders } from '../../stream/dead-letter-format.ts';
import {
  decodeFrame,
  type Entry,
  type EnvelopeEntry,
  encodeEntry,
  encodeFrame,
  type PartsRef,
} from '../../stream/frame.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { isLost, readParts, sourceOf, splitEntry, writeParts } from '../../stream/parts.ts';
import { Sender } from '../../stream/publish/sender.ts';
import { recordHeaders } from '../../stream/record-size.ts';
import { DEAD_LETTERS_STREAM, subjectAmong } from '../../stream/topology.ts';
import { OperationError, reasonOf } from '../operation-error.ts';
import type { DeadLetterBox, FiledDeadLetter } from './box.ts';

/** Pause between two checks whether a frame has left its stream. */
const LOOK_MS = 100;

/**
 * Result of a replay: the subject that took the dead letter, and what became of it. `again` is the
 * id under which the processor filed the dead letter again.
 */
export type Replayed = {
  subject: string;
  became: 'stored' | 'filed again' | 'waiting';
  again?: string;
  reason?: string;
};

type ReplayParts = { link: NatsLink; box: DeadLetterBox; shards: number; clock: Clock; log: Log };

/**
 * Decodes the entry in the body of a dead letter.
 * @returns undefined for a dead letter that is a whole frame, and when the entry cannot be decoded
 */
export function entryOf(letter: FiledDeadLetter, body: Uint8Array): Entry | undefined {
  const [slot] = letter.kind === 'frame' ? [] : decodeFrame(encodeFrame([body]));
  return slot?.ok ? slot.entry : undefined;
}

export class Replay {
  readonly #parts: ReplayParts;
  #sender: Sender | undefined;

  constructor(parts: ReplayParts) {
    this.#parts = parts;
  }

  /**
   * Publishes the dead letter, and removes it once JetStream has stored it. Then waits at most
   * `waitMs` for the processor.
   * @throws OperationError
   */
  async run(letter: FiledDeadLetter, waitMs = 0): Promise<Replayed> {
    const { streams } = await this.#parts.link.manager();
    const { last_seq: since } = (await streams.info(DEAD_LETTERS_STREAM)).state;
    const { box, link, shards } = this.#parts;
    const subject = subjectAmong(letter.subject, shards);
    const body = (await box.bytesOf(letter)).subarray(0, letter.bodyBytes);
    const frame = letter.kind === 'frame' ? body : encodeFrame([await this.#entryBytes(letter, body)]);
    const msgId = letter.kind === 'frame' ? letter.frameId : replayFrameId(letter.id);
    const { attempts = 0, firstFiledAt = letter.filedAt } = letter;
    const further = replayHeaders({ attempts: attempts + 1, firstFiledAt });
    const headers = recordHeaders(msgId, { subject, data: frame, further });
    const ack = await link.js.publish(subject, frame, { headers }).catch((error: unknown) => {
      throw new OperationError(
        'unavailable',
        `Dead letter ${letter.id} was not taken by ${subject}: ${reasonOf(error)}.`,
      );
    });
    if (ack.duplicate && letter.kind === 'frame')
      throw new OperationError(
        'conflict',
        `The frame of dead letter ${letter.id} is too fresh; try again in two minutes.`,
      );
    await box.purge(letter).catch((error: unknown) => {
      throw new OperationError(
        'unavailable',
        `Dead letter ${letter.id} was replayed and could not be removed: ${reasonOf(error)}. Purge it: if it is replayed again later, it may be stored twice.`,
      );
    });
    const frameId = letter.kind === 'frame' ? letter.frameId : msgId;
    return { subject, ...(await this.#became(ack, { frameId, since }, waitMs)) };
  }

  /**
   * Waits at most `waitMs` until the processor is done with a frame. A frame that is done leaves
   * its stream. If the processor files a dead letter of the frame, it does so before the frame
   * leaves.
   */
  async #became(
    { stream, seq }: { stream: string; seq: number },
    { frameId, since }: { frameId: string; since: number },
    waitMs: number,
  ): Promise<Omit<Replayed, 'subject'>> {
    const { link, box, clock } = this.#parts;
    const { streams } = await link.manager();
    const end = clock.monotonic() + waitMs;
    while ((await streams.getMessage(stream, { seq })) !== null) {
      if (clock.monotonic() >= end) return { became: 'waiting' };
      await sleep(LOOK_MS);
    }
    const again = (await box.list({ after: since })).find((one) => one.frameId === frameId);
    return again ? { became: 'filed again', again: again.id, reason: again.reason } : { became: 'stored' };
  }

  /**
   * Makes the bytes of the entry that is replayed. The entry loses its month and position: its
   * usage was counted when the dead letter was filed, and must not be counted again. An entry too
   * large for a message gets its payloads in parts.
   */
  async #entryBytes(letter: FiledDeadLetter, body: Uint8Array): Promise<Uint8Array> {
    const entry = entryOf(letter, body);
    if (entry?.kind !== 'envelope' || letter.projectId === undefined) return body;
    const { month: _month, position: _position, ...uncounted } = entry;
    if (entry.parts) await this.#checkParts(letter, entry.parts);
    const inline = entry.items.every(({ payload }) => payload !== undefined);
    const fits = body.length <= this.#frameBytes;
    return encodeEntry(fits || !inline ? uncounted : await this.#moveToParts(letter, uncounted));
  }

  /**
   * Refuses to replay an entry whose parts are lost. The processor would only file the entry again,
   * and by now the dead letter may be the only place that still has the rest of the parts.
   */
  async #checkParts(letter: FiledDeadLetter, parts: PartsRef): Promise<void> {
    await readParts(this.#parts.link, parts).catch((error: unknown) => {
      if (!isLost(error)) throw error;
      throw new OperationError(
        'conflict',
        `Dead letter ${letter.id} cannot be replayed: ${error.message}. What was left of it stays in the dead letter; sluice dead-letters show --raw writes it.`,
      );
    });
  }

  async #moveToParts(letter: FiledDeadLetter, entry: EnvelopeEntry): Promise<EnvelopeEntry> {
    const { link, clock, log } = this.#parts;
    this.#sender ??= new Sender({ link, clock, log });
    const partBytesMax = this.#frameBytes;
    const split = splitEntry({ entry, source: sourceOf(entry) }, partBytesMax);
    const written = await writeParts(this.#sender, {
      projectId: entry.projectId,
      source: split.source,
      partBytesMax,
      deadline: clock.monotonic() + REPLAY_MS_MAX,
    });
    if (!written.ok)
      throw new OperationError('unavailable', `Dead letter ${letter.id} was not taken: ${written.reason}.`);
    return { ...split.entry, parts: written.parts };
  }

  /** Largest frame or part, in bytes. It fits into a message together with its headers. */
  get #frameBytes(): number {
    return Math.min(FRAME_BYTES_MAX, Math.floor(this.#parts.link.maxPayload / 2));
  }
}
