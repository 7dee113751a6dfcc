/** An operation of the management API: its parameters and its action. */
import type { Readable } from 'node:stream';
import type { z } from 'zod';
import type { DirectOperations } from '../direct.ts';
import { ProblemError } from './problem.ts';

/** Request to an operation. `path`: names in the path. `ifMatch`, `ifNoneMatch`: the headers. */
export type Asked<Query, Body> = {
  operations: DirectOperations;
  path: Readonly<Record<string, string>>;
  query: Query;
  body: Body;
  ifMatch: string | undefined;
  ifNoneMatch: string | undefined;
};

/**
 * Answer of an operation. `status`: 200 if undefined. The body is `json`, or `lines` of JSON that
 * come until the reader leaves. Without both, the answer has no body.
 */
export type Answer = {
  status?: number;
  json?: unknown;
  lines?: Readable;
  headers?: Readonly<Record<string, string>>;
};

export type Operation = {
  query: z.ZodType;
  /** Schema of the body; if undefined, a body is ignored. */
  body: z.ZodType | undefined;
  run(asked: Asked<unknown, unknown>): Promise<Answer>;
};

/** Makes an operation. The types of `run` come from the schemas. */
export function operation<Query, Body = undefined>(
  schemas: { query: z.ZodType<Query>; body?: z.ZodType<Body> },
  run: (asked: Asked<Query, Body>) => Promise<Answer>,
): Operation {
  return { query: schemas.query, body: schemas.body, run: (asked) => run(asked as Asked<Query, Body>) };
}

/**
 * Reads the revision in an If-Match header.
 * @returns undefined for `*` and without the header
 * @throws ProblemError when the header is no ETag that this API makes
 */
export function revisionOf(ifMatch: string | undefined): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined;
  const [, revision] = /^\s*"(\d+)"\s*$/.exec(ifMatch) ?? [];
  if (revision === undefined)
    throw new ProblemError('stale', `If-Match ${ifMatch} is no tag of this record.`);
  return Number(revision);
}

export const tagged = (revision: number): Record<string, string> => ({ ETag: `"${revision}"` });
