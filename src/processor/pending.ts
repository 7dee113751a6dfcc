import { setTimeout as pause } from 'node:timers/promises';
import type { NatsLink } from '../stream/nats.ts';
import { CONSUMER } from '../stream/topology.ts';

/** A scrape waits no longer: Prometheus gives up after 5 s, and takes the process for dead. */
const SCRAPE_MS_MAX = 2_000;

/** Frames that wait in each stream or are in hand; streams that do not answer are left out. */
export async function pendingMessages(
  link: NatsLink,
  streams: readonly string[],
): Promise<Record<string, number>> {
  const manager = await link.manager();
  const late = new AbortController();
  const timeIsUp = pause(SCRAPE_MS_MAX, undefined, { signal: late.signal, ref: false }).catch(
    () => undefined,
  );
  const asked = streams.map(async (stream) => {
    const { num_pending, num_ack_pending } = await manager.consumers.info(stream, CONSUMER);
    return [stream, num_pending + num_ack_pending] as const;
  });
  const answers = await Promise.all(
    asked.map((answer) => Promise.race([answer.catch(() => undefined), timeIsUp])),
  );
  late.abort();
  return Object.fromEntries(answers.filter((answer) => answer !== undefined));
}
