/** Errors of the admin port as problem details (RFC 9457). */
import type { FieldProblem } from '../failure.ts';

/** Status and title of each problem. */
const PROBLEMS = {
  invalid: [400, 'Invalid request'],
  unauthorized: [401, 'A token is needed'],
  forbidden: [403, 'Forbidden'],
  unknown: [404, 'Not found'],
  method: [405, 'Method not allowed'],
  conflict: [409, 'Conflict'],
  stale: [412, 'Precondition failed'],
  large: [413, 'Body too large'],
  media: [415, 'Unsupported media type'],
  busy: [429, 'Too many at once'],
  failed: [500, 'The operation failed'],
  unrecorded: [500, 'Done, but not recorded'],
  bug: [500, 'Internal server error'],
  unavailable: [503, 'Redis or NATS is away'],
} as const satisfies Record<string, readonly [status: number, title: string]>;
type ProblemName = keyof typeof PROBLEMS;

export const PROBLEM_TYPE = 'application/problem+json';

type Extras = { errors?: readonly FieldProblem[]; headers?: Readonly<Record<string, string>> };

/** Error that refuses a request. Its message is the `detail` of the answer. */
export class ProblemError extends Error {
  override name = 'ProblemError';
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly #name: ProblemName;
  readonly #errors: readonly FieldProblem[] | undefined;

  constructor(name: ProblemName, detail: string, { errors, headers = {} }: Extras = {}) {
    super(detail);
    this.#name = name;
    this.#errors = errors;
    this.status = PROBLEMS[name][0];
    this.headers = headers;
  }

  get json(): Record<string, unknown> {
    return {
      type: `urn:sluice:problem:${this.#name}`,
      title: PROBLEMS[this.#name][1],
      status: this.status,
      detail: this.message,
      ...(this.#errors && { errors: this.#errors }),
    };
  }
}
