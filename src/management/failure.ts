/** Why an operation of the management was not done, for the command line and the API alike. */
import { UnrecordedError } from '../projects/audit-log.ts';
import { isMissingBucket } from '../projects/bucket.ts';
import { ConflictError, RegistryError, RevisionError, UnknownNameError } from '../projects/names.ts';

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

/** `field` is empty when it is the whole that is wrong. */
export type FieldProblem = { field: string; detail: string };

const problemText = ({ field, detail }: FieldProblem): string =>
  field === '' ? detail : `${field}: ${detail}`;

/** A request that makes no sense, whatever the servers hold. */
export class InvalidError extends Error {
  override name = 'InvalidError';
  readonly problems: readonly FieldProblem[];

  constructor(problems: readonly FieldProblem[]) {
    super(problems.map(problemText).join('; '));
    this.problems = problems;
  }
}

/** An error of the broker's client: what the user may not do, and where. */
type Denial = Error & { operation: 'publish' | 'subscription'; subject: string };

/** The broker answers, and its user may not do this: waiting does not help. */
function denialIn(error: unknown): Denial | undefined {
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

/**
 * `invalid`: the request makes no sense; `stale`: the record is not the one that was to be changed;
 * `unrecorded`: done, but the audit does not have it; `bug`: the code did not foresee it.
 */
export type Fault = FailureKind | 'invalid' | 'stale' | 'unrecorded' | 'bug';

/** Errors of the broker's client while the broker is silent. */
const SILENCE = /^(Timeout|NoResponders|Request|Connection|ClosedConnection|DrainingConnection)Error$/;

const FAULTS: readonly (readonly [kind: new (...args: never[]) => Error, fault: Fault])[] = [
  [InvalidError, 'invalid'],
  [UnknownNameError, 'unknown'],
  [ConflictError, 'conflict'],
  [RevisionError, 'stale'],
  [RegistryError, 'failed'],
  [UnrecordedError, 'unrecorded'],
];

/** The kind of fault that an error of an operation is. */
export function faultOf(error: unknown): Fault {
  if (error instanceof OperationError) return error.kind;
  if (denialIn(error)) return 'failed';
  if (isMissingBucket(error) || (error instanceof Error && SILENCE.test(error.name))) return 'unavailable';
  return FAULTS.find(([kind]) => error instanceof kind)?.[1] ?? 'bug';
}

/** The sentence of an error, for the caller of an operation. */
export const sentenceOf = (error: unknown): string =>
  isMissingBucket(error) ? NOT_SET_UP : `${reasonOf(error)}.`;

export const NOT_SET_UP = 'JetStream lacks a stream or bucket of sluice: run sluice setup, then try again.';
