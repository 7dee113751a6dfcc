/** A bug in sluice, never the fault of a client or a server. The error ends the process. */
export class AssertionError extends Error {
  override name = 'AssertionError';
}

/** Throws {@link AssertionError} unless `condition` holds. `message` says what was expected. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}
