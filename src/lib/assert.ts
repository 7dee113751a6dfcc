/**
 * A broken invariant: a bug of ours, never a client's or a server's fault. It ends the process that
 * finds it.
 */
export class AssertionError extends Error {
  override name = 'AssertionError';
}

/** Throws {@link AssertionError} unless `condition` holds. `message` says what was expected. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}
