/**
 * How far a consumer is in its stream. A consumer's *floor* (`ack_floor`) is the message up to
 * which all messages are acknowledged. This file also acknowledges *missing* messages, which a
 * stream has lost while its consumer still waits for them (docs/broker-quirks.md).
 */
import type { ConsumerInfo, JetStreamManager, StreamState } from '@nats-io/jetstream';
import { millis, nanos } from '@nats-io/transport-node';
import type { Log } from '../lib/log.ts';
import { ACK_WAIT_MS, PREFETCH_FRAMES_MAX } from '../limits.ts';
import type { NatsLink } from './nats.ts';
import { orMissing } from './setup/setup-error.ts';

const ACK = Buffer.from('+ACK');
/**
 * Most missing messages that one search acknowledges; the next search takes the rest. A longer list
 * of lost messages is not asked for.
 */
const GONE_MAX = 100_000;
/**
 * Delivery number in acknowledgements of missing messages. No consumer reaches it. With the number
 * of the next delivery, an acknowledgement would move the floor to its message, past others that
 * are not acknowledged (nats-server 2.9). Only the message right beyond the floor is acknowledged
 * with that number.
 */
const NO_DELIVERY = Number.MAX_SAFE_INTEGER;

/**
 * `first`: the first frame that may be unprocessed, or `last` + 1 when all are processed. `last`:
 * the newest frame.
 */
type Backlog = { first: number; last: number };

type Place = { stream: string; consumer: string };

/**
 * How long a pull may be open: at most half of the ack wait, so that the pull of a dead process has
 * ended before a redelivery is due. Otherwise nats-server 2.9 gives the redelivery to the dead
 * process's pull, and counts deliveries from one again.
 */
export const pullMsMax = ({ config }: ConsumerInfo): number =>
  millis(config.ack_wait ?? nanos(ACK_WAIT_MS)) / 2;

/**
 * Finds where the unprocessed frames of a stream begin: at the first message that exists beyond the
 * consumer's floor, up to which all messages are acknowledged. The stream's first message may be
 * acknowledged: a broker that was killed (nats-server 2.9.10) or lost power (also 2.15) may keep
 * such messages for ever. The message right after the floor may be gone: 2.9.10 may wait for its
 * acknowledgement nevertheless.
 * @throws when the broker does not answer
 */
export async function readBacklog(
  manager: JetStreamManager,
  { stream, consumer: name }: Place,
): Promise<Backlog> {
  const consumer = await orMissing(manager.consumers.info(stream, name));
  // The order of the two requests matters: a message that the consumer has delivered by the first
  // answer is in the stream at the second, unless the broker lost it.
  const { state } = await manager.streams.info(stream);
  const { first_seq: first, last_seq: last } = state;
  if (state.messages === 0) return { first: last + 1, last };
  // A broker that lost the end of a stream gives the sequence numbers of the lost messages to new
  // ones. The floor then says nothing about the new messages.
  const floor = consumer && consumer.delivered.stream_seq <= last ? consumer.ack_floor.stream_seq : 0;
  if (floor < first) return { first, last };
  if (floor >= last) return { first: last + 1, last };
  return { first: (await firstSurely(manager, state, { stream, seq: floor + 1 })) ?? last + 1, last };
}

/**
 * Sequence of the first message from `seq` on, or the last sequence + 1 when there is none. If a
 * read finds none, the server may only be unable to read it, so the server's list of missing
 * messages decides. Undefined when that list is too long to be sent.
 */
async function firstSurely(
  manager: JetStreamManager,
  state: StreamState,
  { stream, seq }: { stream: string; seq: number },
): Promise<number | undefined> {
  const found = await firstFrom(manager, stream, seq);
  if (found !== undefined) return found;
  if (state.messages === 0) return state.last_seq + 1;
  if ((state.num_deleted ?? 0) > GONE_MAX) return undefined;
  const { deleted } = (await manager.streams.info(stream, { deleted_details: true })).state;
  const gone = new Set(deleted);
  let first = Math.max(seq, state.first_seq);
  while (gone.has(first)) first++;
  return first;
}

/** Sequence of the first message from `seq` on; undefined when the read finds none. */
async function firstFrom(
  manager: JetStreamManager,
  stream: string,
  seq: number,
): Promise<number | undefined> {
  // The next message of any subject. The client library's type lacks this request.
  const any = { seq, next_by_subj: '>' };
  return (await manager.streams.getMessage(stream, any))?.seq;
}

type GoneOptions = Place & { log: Log; lookMs: number };

/**
 * Acknowledges messages that a consumer waits for although the stream has lost them (nats-server
 * 2.9 after a kill). Searches for them at most once in `lookMs`, and only after a sign of them:
 *
 * - A pull ends unfilled although frames wait: while the consumer tries the lost messages one by
 *   one, it delivers nothing else.
 * - Messages are delivered again, or the floor is far behind and the message right beyond it is
 *   missing. Under load these are the only signs, because pulls may still be filled.
 */
export class GoneFrames {
  readonly #link: NatsLink;
  readonly #options: GoneOptions;
  /** When a search last began, monotonic ms. */
  #lookedAt = Number.NEGATIVE_INFINITY;
  /** When the next search under load is due; infinity while one is under way. */
  #nextUnderLoadAt: number;

  constructor(link: NatsLink, options: GoneOptions) {
    this.#link = link;
    this.#options = options;
    this.#nextUnderLoadAt = performance.now() + options.lookMs;
  }

  /**
   * Searches after a pull that ended unfilled, if there is a sign of missing messages.
   * @throws when the broker does not answer
   */
  async lookAfter(info: ConsumerInfo): Promise<void> {
    if (info.num_pending > 0 || (await this.#mayWait(info))) await this.#look();
  }

  /**
   * Called while pulls are filled. Asks once in `lookMs` for the consumer's state, and searches if
   * the state has a sign of missing messages. Never rejects.
   */
  async lookUnderLoad(): Promise<void> {
    if (performance.now() < this.#nextUnderLoadAt) return;
    this.#nextUnderLoadAt = Number.POSITIVE_INFINITY;
    const { stream, consumer, log, lookMs } = this.#options;
    try {
      const manager = await this.#link.manager();
      if (await this.#mayWait(await manager.consumers.info(stream, consumer))) await this.#look();
    } catch (error) {
      log.debug({ stream, err: error }, 'processor: not looked for what is gone');
    }
    this.#nextUnderLoadAt = performance.now() + lookMs;
  }

  async #mayWait({ num_redelivered, delivered, ack_floor, num_ack_pending }: ConsumerInfo): Promise<boolean> {
    if (num_redelivered > 0) return true;
    const beyondFloor = delivered.consumer_seq - ack_floor.consumer_seq;
    if (beyondFloor - num_ack_pending <= PREFETCH_FRAMES_MAX) return false;
    const seq = ack_floor.stream_seq + 1;
    return (await firstFrom(await this.#link.manager(), this.#options.stream, seq)) !== seq;
  }

  async #look(): Promise<void> {
    const { stream, log, lookMs } = this.#options;
    const now = performance.now();
    if (now - this.#lookedAt < lookMs) return;
    this.#lookedAt = now;
    const sequences = await acknowledgeGone(this.#link, this.#options);
    if (sequences > 0) log.info({ stream, sequences }, 'processor: acknowledged frames that are gone');
  }
}

/**
 * Acknowledges messages that the consumer waits for and the stream no longer has.
 *
 * The server leaves the consumer's floor behind in two cases: when it forgets missing messages
 * before the stream's first message, and when a message is acknowledged that was delivered twice.
 * So at the end the message right beyond the floor is acknowledged once more, which moves the
 * floor.
 *
 * A stream with several replicas is left alone: a replica that lags behind may not know a message
 * yet.
 * @returns how many sequences were acknowledged; the consumer may have waited for few of them or
 * for none
 * @throws when the broker does not answer
 */
export async function acknowledgeGone(link: NatsLink, { stream, consumer }: Place): Promise<number> {
  const manager = await link.manager();
  const { delivered, ack_floor: floor } = await manager.consumers.info(stream, consumer);
  const { config, state } = await manager.streams.info(stream);
  if (config.num_replicas > 1) return 0;
  const end = Math.min(delivered.stream_seq, state.last_seq);
  const gone = await goneBetween(manager, { stream, state }, { from: floor.stream_seq + 1, end });
  const acknowledge = (seq: number, delivery: number): void =>
    link.connection.publish(`$JS.ACK.${stream}.${consumer}.1.${seq}.${delivery}.0.0`, ACK);
  for (const seq of gone) acknowledge(seq, NO_DELIVERY);
  const beyondFloor = floor.stream_seq + 1;
  if (gone[0] === beyondFloor) acknowledge(beyondFloor, floor.consumer_seq + 1);
  await link.connection.flush();
  return gone.length;
}

/**
 * Sequences between `from` and `end` that the stream no longer has, at most GONE_MAX. They are
 * taken from the server's list, or, if the list is too long to be sent, found by reads.
 */
async function goneBetween(
  manager: JetStreamManager,
  { stream, state }: { stream: string; state: StreamState },
  { from, end }: { from: number; end: number },
): Promise<number[]> {
  const gone: number[] = [];
  if ((state.num_deleted ?? 0) <= GONE_MAX) {
    const { first_seq: first, deleted } = (await manager.streams.info(stream, { deleted_details: true }))
      .state;
    const listed = new Set(deleted);
    for (let seq = from; seq <= end && gone.length < GONE_MAX; seq++)
      if (seq < first || listed.has(seq)) gone.push(seq);
    return gone;
  }
  for (let seq = from; seq <= end && gone.length < GONE_MAX; seq++) {
    const present = await firstSurely(manager, state, { stream, seq });
    if (present === undefined) break;
    for (; seq < present && seq <= end && gone.length < GONE_MAX; seq++) gone.push(seq);
  }
  return gone;
}
