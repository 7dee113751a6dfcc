import type { NatsLink } from '../nats.ts';
import {
  BUCKETS,
  CONSUMER,
  COUNTERS_BUCKET,
  isFrameStreamName,
  type TopologyOptions,
  wantedStreams,
} from '../topology.ts';
import { SetupRun } from './setup-run.ts';

/**
 * Creates or updates streams, consumers and buckets; safe to repeat.
 *
 * `emptyBuckets`: also makes an empty bucket of projects or of tokens in place of one that was
 * deleted.
 * @returns one line for each change; none when everything was as wanted
 * @throws SetupError when something is impossible or would lose data, in most cases before anything
 * is changed. When storage is short, the changes are undone. When the server refuses a stream or
 * consumer for another reason, or another setup runs at the same time, earlier changes stay
 */
export async function setupTopology(
  link: NatsLink,
  options: TopologyOptions,
  { emptyBuckets = false } = {},
): Promise<string[]> {
  const run = await SetupRun.start(link, {
    streams: wantedStreams(options),
    buckets: BUCKETS.map((bucket) => ({
      bucket,
      replicas: options.replicas,
      isKept: bucket !== COUNTERS_BUCKET && !emptyBuckets,
    })),
    isOurs: isFrameStreamName,
    consumer: CONSUMER,
  });
  return await run.apply();
}
