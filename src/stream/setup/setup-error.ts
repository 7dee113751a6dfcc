import { JetStreamApiCodes, JetStreamApiError } from '@nats-io/jetstream';

/**
 * Streams, consumers or buckets cannot be made as wanted. `message` names the obstacle and the
 * remedy.
 */
export class SetupError extends Error {
  override name = 'SetupError';
}

/** The broker has no storage left for a stream. */
export class StorageError extends SetupError {
  override name = 'StorageError';
}

/** Error codes of the server that setup handles. */
export const API_CODES = {
  accountStorageExceeded: 10002,
  noSuitablePeers: 10005,
  serverStorageExceeded: 10047,
  subjectsOverlap: 10065,
  /** Code for several reasons; the error's text tells which one. */
  streamCreate: 10049,
  consumerExists: 10100,
  consumerFilterNeeded: 10099,
} as const;

export const isApiError = (error: unknown, ...codes: readonly number[]): error is JetStreamApiError =>
  error instanceof JetStreamApiError && codes.includes(error.code);

/** Whether an error says that a stream or consumer does not exist. */
export const isMissing = (error: unknown): boolean =>
  isApiError(error, JetStreamApiCodes.StreamNotFound, JetStreamApiCodes.ConsumerNotFound);

/** Returns the server's answer, or undefined when the stream or consumer does not exist. */
export async function orMissing<T>(question: Promise<T>): Promise<T | undefined> {
  try {
    return await question;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/**
 * Turns an error of the server about creating or changing `what` into one in words for an operator.
 * Errors with other codes are returned unchanged.
 */
export function explained(what: string, cause: unknown): unknown {
  if (
    isApiError(
      cause,
      API_CODES.serverStorageExceeded,
      API_CODES.accountStorageExceeded,
      API_CODES.noSuitablePeers,
    )
  )
    return new StorageError(`${what}: no server has the storage for it (${cause.message})`, { cause });
  if (isApiError(cause, API_CODES.subjectsOverlap))
    return new SetupError(`${what}: another stream takes its subjects (${cause.message})`, { cause });
  if (isApiError(cause, API_CODES.consumerExists, API_CODES.consumerFilterNeeded))
    return new SetupError(
      `${what}: a work queue has one consumer, and there is another one already (${cause.message})`,
      { cause },
    );
  return cause;
}
