import { JetStreamApiError } from '@nats-io/jetstream';

/** Why streams, consumers or buckets cannot be as they should; `message` says what stands against it and what helps. */
export class SetupError extends Error {
  override name = 'SetupError';
}

/** The server's error codes that setup has an explanation for. */
export const API_CODES = {
  accountStorageExceeded: 10002,
  noSuitablePeers: 10005,
  serverStorageExceeded: 10047,
  streamNameInUse: 10058,
  subjectsOverlap: 10065,
  noCluster: 10074,
  consumerExists: 10100,
  consumerFilterNeeded: 10099,
} as const;

export const isApiError = (error: unknown, ...codes: readonly number[]): error is JetStreamApiError =>
  error instanceof JetStreamApiError && codes.includes(error.code);
