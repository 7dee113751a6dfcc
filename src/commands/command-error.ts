/** Errors of commands. run-program.ts prints them. */

/** Error of a command that could not do its task. The exit status is 1. */
export class CommandError extends Error {
  override name = 'CommandError';
}

/** Error for a command line that is wrong in itself, whatever is stored; the exit status is 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}
