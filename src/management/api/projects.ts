import { z } from 'zod';
import { OUTCOME_DAYS_KEPT } from '../../limits.ts';
import { InvalidError } from '../failure.ts';
import { PROJECT_SORTS } from '../operations.ts';
import { newProjectSchema, type ProjectJson, patchSchema } from '../project-json.ts';
import { type Answer, operation, revisionOf, tagged } from './operation.ts';
import { integerIn, namePage, noQuery, pageAnswer, sequencePage } from './page.ts';

const HOURS_DEFAULT = 24;
/** Longest time for which a rotation keeps old keys valid: 99,999 weeks, as in commands. */
const OVERLAP_SECONDS_MAX = 99_999 * 7 * 86_400;

/** Longest time that the answer to a test event waits until the event is stored. */
const TEST_WAIT_SECONDS_MAX = 10;

const SEARCH_CHARS_MAX = 100;

const answerOf = (
  { project, revision }: { project: ProjectJson; revision: number },
  { isNew = false } = {},
): Answer => {
  const location = isNew && { Location: `/v1/projects/${project.id}` };
  return { status: isNew ? 201 : 200, json: project, headers: { ...tagged(revision), ...location } };
};

const flag = z.enum(['true', 'false']).transform((text) => text === 'true');

const projectPage = namePage.extend({
  search: z.string().min(1).max(SEARCH_CHARS_MAX).optional(),
  sort: z.enum(PROJECT_SORTS).optional(),
  usage: flag.optional(),
  used: integerIn(0, Number.MAX_SAFE_INTEGER).optional(),
});

export const projects = operation({ query: projectPage }, async ({ operations, query }) => {
  const { limit, after: _after, used: _used, ...filter } = query;
  const found = await operations.listProjects(query);
  const used = query.sort === 'usage' && { used: found.at(-1)?.usage };
  return pageAnswer<ProjectJson>(
    { path: '/v1/projects', limit, nameOf: ({ id }) => id, query: { ...filter, ...used } },
    found,
  );
});

export const createProject = operation(
  { query: noQuery, body: newProjectSchema },
  async ({ operations, body }) => answerOf(await operations.createProject(body), { isNew: true }),
);

export const project = operation({ query: noQuery }, async ({ operations, path }) =>
  answerOf(await operations.getProject(`${path.id}`)),
);

/** Creates or replaces a project. The same request, sent again, changes and records nothing. */
export const putProject = operation(
  { query: noQuery, body: newProjectSchema },
  async ({ operations, path, body: wanted, ifMatch, ifNoneMatch }) => {
    const id = `${path.id}`;
    if (wanted.id !== undefined && wanted.id !== id)
      throw new InvalidError([{ field: 'id', detail: `the path says ${id}` }]);
    const isThere = ifMatch === undefined ? undefined : 'there';
    const presence = ifNoneMatch?.trim() === '*' ? 'new' : isThere;
    const stored = await operations.putProject(
      { ...wanted, id },
      { revision: revisionOf(ifMatch), presence },
    );
    return answerOf(stored, stored);
  },
);

export const patchProject = operation(
  { query: noQuery, body: patchSchema },
  async ({ operations, path, body, ifMatch }) =>
    answerOf(await operations.setProject(`${path.id}`, body, { revision: revisionOf(ifMatch) })),
);

const rotation = z.strictObject({ overlap: z.int().min(1).max(OVERLAP_SECONDS_MAX).optional() });

export const rotateKey = operation(
  { query: noQuery, body: rotation },
  async ({ operations, path, body: { overlap }, ifMatch }) => {
    const overlapMs = overlap === undefined ? overlap : overlap * 1_000;
    const revision = revisionOf(ifMatch);
    return answerOf(await operations.rotateKey(`${path.id}`, overlapMs, { revision }));
  },
);

const deletion = z.strictObject({ keepUsage: flag.default(false) });

export const deleteProject = operation({ query: deletion }, async ({ operations, path, query, ifMatch }) => ({
  json: await operations.deleteProject(`${path.id}`, { ...query, revision: revisionOf(ifMatch) }),
}));

const hours = integerIn(0, OUTCOME_DAYS_KEPT * 24).default(HOURS_DEFAULT);

export const usage = operation({ query: z.strictObject({ hours }) }, async ({ operations, path, query }) => ({
  json: await operations.usageOf(`${path.id}`, query.hours),
}));

const waiting = z.strictObject({ wait: integerIn(0, TEST_WAIT_SECONDS_MAX).default(0) });

export const sendTestEvent = operation(
  { query: waiting, body: z.strictObject({}) },
  async ({ operations, path, query }) => ({
    json: await operations.sendTestEvent(`${path.id}`, query.wait * 1_000),
  }),
);

export const history = operation({ query: sequencePage }, async ({ operations, path, query }) =>
  pageAnswer(
    {
      path: `/v1/projects/${path.id}/history`,
      limit: query.limit,
      nameOf: ({ sequence }: { sequence: number }) => sequence,
    },
    await operations.history(`${path.id}`, query),
  ),
);
