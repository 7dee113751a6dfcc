import type { NatsLink } from '../stream/nats.ts';
import { CONSUMER } from '../stream/topology.ts';

/** Frames that wait in each stream or are in hand; streams that do not answer are left out. */
export async function pendingMessages(
  link: NatsLink,
  streams: readonly string[],
): Promise<Record<string, number>> {
  const manager = await link.manager();
  const answers = await Promise.allSettled(
    streams.map(async (stream) => {
      const { num_pending, num_ack_pending } = await manager.consumers.info(stream, CONSUMER);
      return [stream, num_pending + num_ack_pending] as const;
    }),
  );
  return Object.fromEntries(
    answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : [])),
  );
}
