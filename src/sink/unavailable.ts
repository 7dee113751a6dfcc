/**
 * Thrown when something outside of this process (disk, broker, store) fails in a way that may pass.
 * Only this fault is answered by waiting and trying again. Any other error while a frame is handled
 * is a bug and ends the process.
 */
export class UnavailableError extends Error {
  override name = 'UnavailableError';
  /** Whether the error is in the log, or was left out because the log had it a moment ago. */
  readonly isTold: boolean;

  constructor(message: string, { isTold = false, ...options }: ErrorOptions & { isTold?: boolean } = {}) {
    super(message, options);
    this.isTold = isTold;
  }
}

/** Runs `work`. An error that it throws becomes an UnavailableError, which says `what` failed. */
export async function orUnavailable<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof UnavailableError) throw cause;
    throw new UnavailableError(`${what}: ${(cause as Error).message}`, { cause });
  }
}

/** Thrown when the sink that the settings name cannot be used, and waiting does not help. */
export class SinkSettingError extends Error {
  override name = 'SinkSettingError';
}
