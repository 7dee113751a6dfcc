/** Kinds of errors of the management operations, for the command line and the API alike. */
import { UnrecordedError } from '../projects/audit-log.ts';
import { isMissingBucket } from '../projects/bucket.ts';
import { ConflictError, RegistryError, RevisionError, UnknownNameError } from '../projects/names.ts';
import { denialIn, type FailureKind, OperationError, reasonOf } from './operation-error.ts';

/** Fault in one field of a request. `field` is empty when the fault concerns the whole request. */
export type FieldProblem = { field: string; detail: string };

const problemText = ({ field, detail }: FieldProblem): string =>
  field === '' ? detail : `${field}: ${detail}`;

/** Error for a request that is wrong in itself, whatever is stored. */
export class InvalidError extends Error {
  override name = 'InvalidError';
  readonly problems: readonly FieldProblem[];

  constructor(problems: readonly FieldProblem[]) {
    super(problems.map(problemText).join('; '));
    this.problems = problems;
  }
}

/**
 * Kind of an error. `invalid`: the request is wrong in itself; `stale`: the record does not have
 * the expected revision; `unrecorded`: the change was made, but the audit has no record of it;
 * `bug`: the code did not foresee the error.
 */
export type Fault = FailureKind | 'invalid' | 'stale' | 'unrecorded' | 'bug';

/** Names of the errors that the NATS client throws while the broker does not answer. */
const SILENCE = /^(Timeout|NoResponders|Request|Connection|ClosedConnection|DrainingConnection)Error$/;

const FAULTS: readonly (readonly [kind: new (...args: never[]) => Error, fault: Fault])[] = [
  [InvalidError, 'invalid'],
  [UnknownNameError, 'unknown'],
  [ConflictError, 'conflict'],
  [RevisionError, 'stale'],
  [RegistryError, 'failed'],
  [UnrecordedError, 'unrecorded'],
];

/** Classifies an error of an operation. */
export function faultOf(error: unknown): Fault {
  if (error instanceof OperationError) return error.kind;
  if (denialIn(error)) return 'failed';
  if (isMissingBucket(error) || (error instanceof Error && SILENCE.test(error.name))) return 'unavailable';
  return FAULTS.find(([kind]) => error instanceof kind)?.[1] ?? 'bug';
}

/** Makes the sentence about an error, for the caller of an operation. */
export const sentenceOf = (error: unknown): string =>
  isMissingBucket(error) ? NOT_SET_UP : `${reasonOf(error)}.`;

export const NOT_SET_UP = 'JetStream lacks a stream or bucket of sluice: run sluice setup, then try again.';
