/** Keys of a project over two workers: an overlap and its end, a key and a project that are switched off, a key's own limit. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openProjects } from '../projects/broker.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { type Project, REGISTRY_MS_MAX, System, until } from '../support/system.ts';

/** For a request that a worker gets at the end of a second on a busy machine. */
const SLACK_MS = 500;
let system: System;
let store: Awaited<ReturnType<typeof openProjects>>;
beforeAll(async () => {
  system = await System.start({ workers: 2, processor: false });
  store = await openProjects(system.link);
});
afterAll(() => system.stop());

const ask = async (project: Project, key = project.key): Promise<Response> => {
  const response = await system.send({ ...project, key }, errorEvent(eventId()), { connection: 'close' });
  await response.arrayBuffer();
  return response;
};
/** What several connections say, so that both workers are asked. */
const statuses = async (project: Project, key?: string): Promise<number[]> => {
  const all = await Promise.all(Array.from({ length: 12 }, () => ask(project, key)));
  return [...new Set(all.map(({ status }) => status))];
};
/** Resolves when nothing but this status comes. @returns how long that took, in ms */
async function becomes(status: number, of: Project, key?: string): Promise<number> {
  const began = performance.now();
  await until(async () => {
    const all = await statuses(of, key);
    return all.length === 1 && all[0] === status;
  });
  return performance.now() - began;
}
const outcomes = async (): Promise<Record<string, number>> => {
  const metrics = await system.metrics();
  const count = (outcome: string): number =>
    Number(
      new RegExp(`sluice_requests_total{endpoint="ingest",outcome="${outcome}"} (\\d+)`).exec(metrics)?.[1] ??
        0,
    );
  return { forbidden: count('forbidden_key') };
};

describe('over two workers', () => {
  it('an app with the old key and one with the new one are accepted through an overlap, and the old one is refused at its end', async () => {
    const before = await system.createProject();
    const overlapMs = 3_000;
    const end = Date.now() + overlapMs;
    const after = await store.rotateKey(before.id, overlapMs);
    expect(after.key).not.toBe(before.key);
    expect(await becomes(200, after)).toBeLessThan(REGISTRY_MS_MAX + SLACK_MS);
    while (Date.now() < end - 500) {
      expect([await statuses(before), await statuses(after)]).toEqual([[200], [200]]);
    }
    await becomes(401, before);
    expect(Date.now()).toBeLessThan(end + 1_000 + SLACK_MS);
    expect([await statuses(before), await statuses(after)]).toEqual([[401], [200]]);
  });

  it('without an overlap the old key is refused within a second', async () => {
    const before = await system.createProject();
    const after = await store.rotateKey(before.id);
    expect(await becomes(401, before)).toBeLessThan(REGISTRY_MS_MAX + SLACK_MS);
    expect(await statuses(after)).toEqual([200]);
  });

  it('a disabled key, then a disabled project, is answered like an unknown one within a second, until it is enabled', async () => {
    const project = await system.createProject();
    const turn = (enabled: boolean) =>
      system.changeProject(project, (record) => ({
        ...record,
        keys: [
          { key: record.key, enabled: true },
          { key: 'second', enabled },
        ],
      }));
    await turn(true);
    await becomes(200, project, 'second');
    await turn(false);
    expect(await becomes(401, project, 'second')).toBeLessThan(REGISTRY_MS_MAX + SLACK_MS);
    expect(await statuses(project)).toEqual([200]);
    await turn(true);
    await becomes(200, project, 'second');

    await system.changeProject(project, (record) => ({ ...record, enabled: false }));
    expect(await becomes(401, project)).toBeLessThan(REGISTRY_MS_MAX + SLACK_MS);
    expect(await statuses(project, 'second')).toEqual([401]);
    const { forbidden } = await outcomes();
    const answer = await ask(project);
    const unknown = await ask({ ...project, id: '404404' });
    const head = ({ status, headers }: Response): unknown => [
      status,
      [...headers].filter(([name]) => name !== 'date'),
    ];
    expect(head(answer)).toEqual(head(unknown));
    await expect.poll(async () => (await outcomes()).forbidden).toBe((forbidden as number) + 2);
    await system.changeProject(project, ({ enabled: _, ...record }) => record);
    expect(await becomes(200, project)).toBeLessThan(REGISTRY_MS_MAX + SLACK_MS);
  });

  it('a key with a limit of its own is refused over it like a project, and the others go on', async () => {
    const project = await system.createProject({ rateLimit: 50 });
    const limited = { key: 'limited', enabled: true, rateLimit: 10 };
    await system.changeProject(project, (record) => ({
      ...record,
      keys: [{ key: record.key, enabled: true }, limited],
    }));
    await until(async () => (await ask(project, 'limited')).status === 200);
    const all = await Promise.all(Array.from({ length: 30 }, () => ask(project, 'limited')));
    expect(all.filter(({ status }) => status === 200)).toHaveLength(9);
    const refused = all.find(({ status }) => status === 429);
    expect(Object.fromEntries(refused?.headers ?? [])).toMatchObject({
      'x-ratelimit-remaining': '0',
      'retry-after': '60',
      'x-sentry-rate-limits': expect.stringMatching(/^\d+::project$/),
    });
    const rest = await Promise.all(Array.from({ length: 60 }, () => ask(project)));
    expect(rest.filter(({ status }) => status === 200)).toHaveLength(40);
    expect(Math.max(...rest.map(({ headers }) => Number(headers.get('x-ratelimit-remaining'))))).toBeLessThan(
      40,
    );
  });
});
