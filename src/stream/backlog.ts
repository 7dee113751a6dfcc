import type { JetStreamManager } from '@nats-io/jetstream';
import { orMissing } from './setup/setup-error.ts';

/**
 * `first`: the first frame that may not have been processed, one beyond `last` when all have been;
 * `last`: the newest frame.
 */
type Backlog = { first: number; last: number };

/**
 * Where the unprocessed frames of a stream begin: at the first message beyond the consumer's floor.
 * The stream's first message does not say it: a broker that was killed (nats-server 2.9.10) or lost
 * power (also 2.15) may keep acknowledged messages for ever. The floor alone does not say it
 * either: 2.9.10 may then wait for the acknowledgement of a message that is gone.
 * @throws when the broker does not answer
 */
export async function readBacklog(
  manager: JetStreamManager,
  { stream, consumer: name }: { stream: string; consumer: string },
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
  // Of any subject; the client's type does not know of it.
  const beyond = { seq: floor + 1, next_by_subj: '>' };
  const unread = await manager.streams.getMessage(stream, beyond);
  return { first: unread?.seq ?? last + 1, last };
}
