/** The usage of projects, by the management API (exact) or by the figures of ingest's admin port. */

/** By project; a project that is not there is not known to the source. */
export type UsageOf = ReadonlyMap<string, number>;

const ANSWER_MS_MAX = 10_000;
const IN_FLIGHT = 16;

async function json(url: string, headers: Record<string, string> = {}): Promise<unknown> {
  const response = await fetch(url, { headers, signal: AbortSignal.timeout(ANSWER_MS_MAX) });
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response.json();
}

const bearer = (token: string | undefined): Record<string, string> =>
  token ? { Authorization: `Bearer ${token}` } : {};

type PageProject = { id: string; usage?: { position: number } };

/** The page of the admin port knows the newest position of the busiest projects. @throws when it cannot be had */
export async function pageUsage(admin: string, token: string | undefined): Promise<UsageOf> {
  const page = await json(`${admin}/stats.json`, bearer(token));
  const { projects = [] } = page as { projects?: PageProject[] };
  return new Map(projects.flatMap(({ id, usage }) => (usage ? [[id, usage.position] as const] : [])));
}

/** @throws when a project cannot be asked about */
export async function apiUsage(
  api: string,
  token: string | undefined,
  ids: readonly string[],
): Promise<UsageOf> {
  const headers = bearer(token);
  const found = new Map<string, number>();
  const queue = ids.values();
  const work = async (): Promise<void> => {
    for (const id of queue) {
      const usage = await json(`${api}/v1/projects/${encodeURIComponent(id)}/usage`, headers);
      // Asked by an alias, it answers with the id.
      const { id: named, current } = usage as { id: string; current: number };
      found.set(named, current);
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, work));
  return found;
}
