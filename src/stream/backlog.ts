import type { JetStreamManager } from '@nats-io/jetstream';
import { orMissing } from './setup-error.ts';

/** `first`: the first frame that may not have been processed, one beyond `last` when all have been; `last`: the newest frame. */
export type Backlog = { first: number; last: number };

/**
 * Where the unprocessed frames of a stream begin. Its first message does not say it: a broker that was killed (nats-server 2.9.10) or lost power
 * (2.15 too) keeps messages that were acknowledged, for ever. Nor does the consumer's floor alone: 2.9.10 may wait, after that, for the
 * acknowledgement of a message that is gone. So it is the first that still stands beyond the floor.
 * @throws when the broker does not answer
 */
export async function readBacklog(
  manager: JetStreamManager,
  { stream, consumer: name }: { stream: string; consumer: string },
): Promise<Backlog> {
  const consumer = await orMissing(manager.consumers.info(stream, name));
  // After the consumer: what it has been given by then stands in here, unless the broker lost it.
  const { state } = await manager.streams.info(stream);
  const { first_seq: first, last_seq: last } = state;
  if (state.messages === 0) return { first: last + 1, last };
  // A broker that lost the end of a stream gives its numbers anew, and the floor says nothing of these.
  const floor = consumer && consumer.delivered.stream_seq <= last ? consumer.ack_floor.stream_seq : 0;
  if (floor < first) return { first, last };
  const beyond = { seq: floor + 1, next_by_subj: '>' }; // of whatever subject; the client's type does not know of it
  const standing = await manager.streams.getMessage(stream, beyond);
  return { first: standing?.seq ?? last + 1, last };
}
