/** The error of a failed operation, and the sentence about any error. */

/**
 * Kind of a failure. `unknown`: nothing has this name; `conflict`: the present state forbids the
 * operation; `unavailable`: Redis or NATS is away; `failed`: any other failure.
 */
export type FailureKind = 'unknown' | 'conflict' | 'unavailable' | 'failed';

/** Error of an operation. Its message is one sentence for the user. */
export class OperationError extends Error {
  override name = 'OperationError';
  readonly kind: FailureKind;

  constructor(kind: FailureKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** Error of the NATS client: which operation the user may not do, and on which subject. */
type Denial = Error & { operation: 'publish' | 'subscription'; subject: string };

/**
 * Finds a denial in an error or in its causes; undefined when there is none. After a denial waiting
 * does not help: the broker answers, but its user lacks the right.
 */
export function denialIn(error: unknown): Denial | undefined {
  if (!(error instanceof Error)) return undefined;
  return error.name === 'PermissionViolationError' ? (error as Denial) : denialIn(error.cause);
}

/** Makes a sentence of an error and its causes, without the final full stop. */
export function reasonOf(error: unknown): string {
  const denial = denialIn(error);
  if (denial)
    return (
      `NATS denies the user of SLUICE_NATS_CREDS a ${denial.operation} to ${denial.subject}: ` +
      'commands and the management API need the rights of commands (CLI_RIGHTS of deploy/nats/users.conf)'
    );
  const message = error instanceof Error ? error.message || error.name : String(error);
  const cause = error instanceof Error && error.cause !== undefined ? `: ${reasonOf(error.cause)}` : '';
  return `${message.replace(/\.$/, '')}${cause}`;
}
