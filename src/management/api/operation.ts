/** One operation of the API: what it takes and what it does. */
import type { z } from 'zod';
import type { DirectOperations } from '../direct.ts';
import { ProblemError } from './problem.ts';

/** `path` are the names in the path, `ifMatch` and `ifNoneMatch` the headers as they came. */
export type Asked<Query, Body> = {
  operations: DirectOperations;
  path: Readonly<Record<string, string>>;
  query: Query;
  body: Body;
  ifMatch: string | undefined;
  ifNoneMatch: string | undefined;
};

/** 200 unless it says otherwise; without `json` there is no body. */
export type Answer = { status?: number; json?: unknown; headers?: Readonly<Record<string, string>> };

export type Operation = {
  query: z.ZodType;
  /** Undefined: a request with a body makes no difference. */
  body: z.ZodType | undefined;
  run(asked: Asked<unknown, unknown>): Promise<Answer>;
};

/** Keeps the types of query and body together with what runs on them. */
export function operation<Query, Body = undefined>(
  schemas: { query: z.ZodType<Query>; body?: z.ZodType<Body> },
  run: (asked: Asked<Query, Body>) => Promise<Answer>,
): Operation {
  return { query: schemas.query, body: schemas.body, run: (asked) => run(asked as Asked<Query, Body>) };
}

/**
 * The revision that If-Match names; undefined for `*` and without the header. What is no strong
 * tag of ours matches nothing.
 * @throws ProblemError
 */
export function revisionOf(ifMatch: string | undefined): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined;
  const [, revision] = /^\s*"(\d+)"\s*$/.exec(ifMatch) ?? [];
  if (revision === undefined)
    throw new ProblemError('stale', `If-Match ${ifMatch} is no tag of this record.`);
  return Number(revision);
}

export const tagged = (revision: number): Record<string, string> => ({ ETag: `"${revision}"` });
