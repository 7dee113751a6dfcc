/** Why an operation of the management was not done, for the command line and the API alike. */
import { UnrecordedError } from '../projects/audit-log.ts';
import { isMissingBucket } from '../projects/bucket.ts';
import { ConflictError, RegistryError, RevisionError, UnknownNameError } from '../projects/names.ts';
import { denialIn, type FailureKind, OperationError, reasonOf } from './operation-error.ts';

export { type FailureKind, OperationError, reasonOf } from './operation-error.ts';

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
