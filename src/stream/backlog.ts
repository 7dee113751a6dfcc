import type { JetStreamManager, StreamState } from '@nats-io/jetstream';
import type { NatsLink } from './nats.ts';
import { orMissing } from './setup/setup-error.ts';

const ACK = Buffer.from('+ACK');
/**
 * Most acknowledgements in a row: others come with the next look. And the longest list of what is
 * gone that a server is asked for.
 */
const GONE_MAX = 100_000;
/**
 * The number of the delivery that is acknowledged: one that no consumer reaches. In nats-server 2.9
 * the number of the next delivery beyond a consumer's floor moves that floor to whatever message is
 * named with it, past others that are not acknowledged. So only the message right beyond the floor
 * is named with that number: the floor then goes to where the server still waits.
 */
const NO_DELIVERY = Number.MAX_SAFE_INTEGER;

/**
 * `first`: the first frame that may not have been processed, one beyond `last` when all have been;
 * `last`: the newest frame.
 */
type Backlog = { first: number; last: number };

type Place = { stream: string; consumer: string };

/**
 * Where the unprocessed frames of a stream begin: at the first message beyond the consumer's floor.
 * The stream's first message does not say it: a broker that was killed (nats-server 2.9.10) or lost
 * power (also 2.15) may keep acknowledged messages for ever. The floor alone does not say it
 * either: 2.9.10 may then wait for the acknowledgement of a message that is gone.
 * @throws when the broker does not answer
 */
export async function readBacklog(
  manager: JetStreamManager,
  { stream, consumer: name }: Place,
): Promise<Backlog> {
  const consumer = await orMissing(manager.consumers.info(stream, name));
  // Asked after the consumer: messages that it has been given by then are in the stream, unless the
  // broker lost them.
  const { state } = await manager.streams.info(stream);
  const { first_seq: first, last_seq: last } = state;
  if (state.messages === 0) return { first: last + 1, last };
  // A broker that lost the end of a stream gives its numbers again. The floor says nothing about
  // these.
  const floor = consumer && consumer.delivered.stream_seq <= last ? consumer.ack_floor.stream_seq : 0;
  if (floor < first) return { first, last };
  if (floor >= last) return { first: last + 1, last };
  return { first: (await firstSurely(manager, state, { stream, seq: floor + 1 })) ?? last + 1, last };
}

/**
 * The first message from this sequence on, one beyond the last when there is none. A read finds no
 * message also where the server cannot read it, so then its list of what is gone is asked for.
 * Undefined when that is too long to be sent.
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

/** The first message from this sequence on. */
async function firstFrom(
  manager: JetStreamManager,
  stream: string,
  seq: number,
): Promise<number | undefined> {
  // The next message of any subject; the client's type does not know this question.
  const any = { seq, next_by_subj: '>' };
  return (await manager.streams.getMessage(stream, any))?.seq;
}

/** Whether a message is no longer there, or cannot be read. */
export const isGone = async (manager: JetStreamManager, stream: string, seq: number): Promise<boolean> =>
  (await firstFrom(manager, stream, seq)) !== seq;

/**
 * Acknowledges what the consumer waits for and the stream has no more. nats-server 2.9.10 gives
 * such messages out again and again, one each time that something wakes the consumer, and no other
 * message meanwhile. Those before the stream's first message it forgets after a while, and leaves
 * the floor where it was. It also leaves the floor at the acknowledgement of a message that it had
 * given out twice. So the message right beyond the floor is acknowledged once more, at the end: by
 * then the server does not wait for it. Only with one replica: a replica that lags behind may not
 * know a message yet.
 * @returns how many sequences; the consumer may have waited for few of them, or for none
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
 * At most GONE_MAX. By the server's list, where that can be sent: to look costs a read for each
 * message.
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
