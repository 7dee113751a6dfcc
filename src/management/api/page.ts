/** Pages of lists: at most `limit` entries that follow `after`. */
import { z } from 'zod';

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1_000;

export const integerIn = (min: number, max: number) => {
  const detail = `it is an integer from ${min} to ${max}`;
  return z
    .string()
    .regex(/^\d+$/, detail)
    .transform(Number)
    .refine((value) => value >= min && value <= max, detail);
};

const limit = integerIn(1, LIMIT_MAX).default(LIMIT_DEFAULT);
export const noQuery = z.strictObject({});
/** Query for a page of a list that is ordered by name; `after` is a name. */
export const namePage = z.strictObject({ limit, after: z.string().min(1).optional() });
/** Query for a page of a list that is ordered by sequence; `after` is a sequence. */
export const sequencePage = z.strictObject({
  limit,
  after: integerIn(0, Number.MAX_SAFE_INTEGER).default(0),
});

/**
 * Makes the answer with a page of a list. After a full page there may be more entries, so the
 * answer has a `Link` to the next page (RFC 8288).
 */
export function pageAnswer<T>(
  list: { path: string; limit: number; nameOf(one: T): string | number; query?: object },
  found: readonly T[],
) {
  const last = found.at(-1);
  if (last === undefined || found.length < list.limit) return { json: found };
  const query = new URLSearchParams({
    ...list.query,
    limit: `${list.limit}`,
    after: `${list.nameOf(last)}`,
  });
  return { json: found, headers: { Link: `<${list.path}?${query}>; rel="next"` } };
}
