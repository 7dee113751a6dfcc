import type { NatsLink } from '../nats.ts';
import { BUCKETS, CONSUMER, isFrameStreamName, type TopologyOptions, wantedStreams } from '../topology.ts';
import { SetupRun } from './setup-run.ts';

/**
 * Creates or updates streams, consumers and buckets; safe to repeat.
 * @returns one line for each change; none when everything was as it should be
 * @throws SetupError, before anything is changed, when something cannot be so or would lose data;
 * later only when another setup at the same time undoes what this one has done
 */
export async function setupTopology(link: NatsLink, options: TopologyOptions): Promise<string[]> {
  const run = await SetupRun.start(link, {
    streams: wantedStreams(options),
    buckets: BUCKETS.map((bucket) => ({ bucket, replicas: options.replicas })),
    isOurs: isFrameStreamName,
    consumer: CONSUMER,
  });
  return await run.apply();
}
