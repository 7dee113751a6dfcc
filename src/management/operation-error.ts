/** The error of an operation, and the sentence of any error. Which errors there are: failure.ts. */

/**
 * `unknown`: there is nothing of that name; `conflict`: what is there forbids it; `unavailable`:
 * Redis or NATS is away; `failed`: anything else.
 */
export type FailureKind = 'unknown' | 'conflict' | 'unavailable' | 'failed';

/** The message is one sentence for the user. */
export class OperationError extends Error {
  override name = 'OperationError';
  readonly kind: FailureKind;

  constructor(kind: FailureKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** An error of the broker's client: what the user may not do, and where. */
type Denial = Error & { operation: 'publish' | 'subscription'; subject: string };

/** The broker answers, and its user may not do this: waiting does not help. */
export function denialIn(error: unknown): Denial | undefined {
  if (!(error instanceof Error)) return undefined;
  return error.name === 'PermissionViolationError' ? (error as Denial) : denialIn(error.cause);
}

/** The sentence of an error, and of what lies beneath it, without the final full stop. */
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
