/** Opens key-value buckets, reads their state, and recognises two of their errors. */
import {
  JetStreamApiCodes,
  JetStreamApiError,
  type JetStreamManager,
  jetstream,
  jetstreamManager,
} from '@nats-io/jetstream';
import { type KV, Kvm } from '@nats-io/kv';
import { REGISTRY_REQUEST_MS } from '../limits.ts';
import { hasLeader, type NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';

/**
 * Opens a bucket without sending a request. Reads go to the leader, so that a process sees its own
 * writes.
 */
export function openBucket(link: NatsLink, bucket: string): Promise<KV> {
  return new Kvm(jetstream(link.connection, { timeout: REGISTRY_REQUEST_MS })).open(bucket);
}

const CLOCK_KEY = 'clock';

/**
 * Reads the broker's clock, Unix ms: the time at which the broker stores a record. The record is
 * removed again.
 * @throws when the broker does not answer
 */
export async function brokerNow(link: NatsLink): Promise<number> {
  const kv = await openBucket(link, COUNTERS_BUCKET);
  await kv.put(CLOCK_KEY, '');
  const entry = await kv.get(CLOCK_KEY);
  const { streams } = await link.manager();
  await streams.purge(`KV_${COUNTERS_BUCKET}`, { filter: `$KV.${COUNTERS_BUCKET}.${CLOCK_KEY}` });
  if (!entry) throw new Error("another process asked for the broker's clock in the same moment");
  return entry.created.getTime();
}

/**
 * Makes a manager of JetStream with a short time-out, so that a BucketMirror is soon up to date
 * again.
 */
export function registryManager(link: NatsLink, timeout = REGISTRY_REQUEST_MS): Promise<JetStreamManager> {
  return jetstreamManager(link.connection, { checkAPI: false, timeout });
}

export type BucketState = {
  /** When the bucket was created (Unix ms); another value means that it was made again. */
  createdMs: number;
  lastSequence: number;
  /**
   * Number of keys in the bucket, including deleted ones, whose markers the server counts;
   * undefined when the server does not say.
   */
  keys: number | undefined;
};

/**
 * Asks for the state of a bucket.
 * @throws JetStreamApiError when the bucket does not exist; another error when it has no leader
 */
export async function bucketState(manager: JetStreamManager, bucket: string): Promise<BucketState> {
  const info = await manager.streams.info(`KV_${bucket}`);
  if (!hasLeader(info)) throw new Error('the bucket has no leader');
  const { created, state } = info;
  return {
    createdMs: Date.parse(String(created)),
    lastSequence: state.last_seq,
    keys: state.messages === 0 ? 0 : state.num_subjects, // the server omits the number when it is 0
  };
}

/** Whether an error says that a compare-and-set write found another revision than it expected. */
export function isConflict(error: unknown): boolean {
  return (
    error instanceof JetStreamApiError &&
    (error.code === JetStreamApiCodes.StreamWrongLastSequence ||
      error.code === JetStreamApiCodes.StreamWrongLastSequenceUnknown)
  );
}

/** Whether an error says that a bucket, or any stream, does not exist. */
export const isMissingBucket = (error: unknown): boolean =>
  error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound;
