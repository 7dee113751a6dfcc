/**
 * Something outside of this process (disk, broker) fails and may recover: the one fault that
 * waiting and retrying answers. Any other error while a frame is handled is a bug and ends the
 * process.
 */
export class UnavailableError extends Error {
  override name = 'UnavailableError';
  /** The log has it already, or leaves it out because it said so a moment ago. */
  readonly isTold: boolean;

  constructor(message: string, { isTold = false, ...options }: ErrorOptions & { isTold?: boolean } = {}) {
    super(message, options);
    this.isTold = isTold;
  }
}

/** Runs `work`; what it throws becomes an UnavailableError that says `what` failed. */
export async function orUnavailable<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof UnavailableError) throw cause;
    throw new UnavailableError(`${what}: ${(cause as Error).message}`, { cause });
  }
}

/** The sink that the settings name cannot be had, and waiting does not help: one clear line. */
export class SinkSettingError extends Error {
  override name = 'SinkSettingError';
}
