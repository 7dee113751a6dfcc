/** Creates projects for a run by the management API. */
import { type Dsn, parseDsn } from './dsn.ts';

/** Thrown when the management API refuses or fails. The exit status is 1. */
export class ApiError extends Error {
  override name = 'ApiError';
}

const IN_FLIGHT = 32;
const ANSWER_MS_MAX = 30_000;
/** Every worker knows a new project after this time. */
const KNOWN_MS = 1_500;
const PLAN = 'Platform';

async function createOne(api: string, headers: Record<string, string>): Promise<Dsn> {
  const response = await fetch(`${api}/v1/projects`, {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: JSON.stringify({ plan: PLAN, overage: false, filters: [] }),
    signal: AbortSignal.timeout(ANSWER_MS_MAX),
  }).catch((cause) => {
    throw new ApiError(`${api} cannot be reached`, { cause });
  });
  const text = await response.text();
  if (response.status === 401 || response.status === 403)
    throw new ApiError(`${api} refuses the token of SLUICE_ADMIN_TOKEN (${response.status})`);
  if (!response.ok)
    throw new ApiError(`${api}/v1/projects answered ${response.status}: ${text.slice(0, 200)}`);
  const { dsn } = JSON.parse(text) as { dsn?: unknown };
  if (typeof dsn !== 'string') throw new ApiError(`${api}/v1/projects answered without a DSN`);
  return parseDsn(dsn, '--projects');
}

/**
 * Creates projects without a quota on the largest plan, and waits until the workers know them.
 * @throws ApiError
 */
export async function createProjects(api: string, count: number, token: string | undefined): Promise<Dsn[]> {
  const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
  const made: Dsn[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    while (next++ < count) made.push(await createOne(api, headers));
  };
  await Promise.all(Array.from({ length: Math.min(IN_FLIGHT, count) }, work));
  await new Promise((resolve) => setTimeout(resolve, KNOWN_MS));
  return made;
}
