/**
 * Reads the usage of projects: from the management API (all projects), or from ingest's admin port
 * (the busiest projects).
 */

/** Usage by id of the project. Projects that the source does not know are missing. */
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

/**
 * Reads the usage from the page of the admin port, which knows the newest position of the busiest
 * projects.
 * @throws when the page cannot be read
 */
export async function pageUsage(admin: string, token: string | undefined): Promise<UsageOf> {
  const page = await json(`${admin}/stats.json`, bearer(token));
  const { projects = [] } = page as { projects?: PageProject[] };
  return new Map(projects.flatMap(({ id, usage }) => (usage ? [[id, usage.position] as const] : [])));
}

/**
 * Reads the usage of the projects from the management API.
 * @throws when a project's usage cannot be read
 */
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
      // `id` may be an alias; the answer has the real id.
      const { id: named, current } = usage as { id: string; current: number };
      found.set(named, current);
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, work));
  return found;
}
