import { z } from 'zod';
import { OUTCOME_DAYS_KEPT } from '../../limits.ts';
import { InvalidError } from '../../management/failure.ts';
import { newProjectSchema, type ProjectJson, patchSchema } from '../../management/project-json.ts';
import { type Answer, operation, revisionOf, tagged } from './operation.ts';
import { integerIn, namePage, noQuery, pageAnswer, sequencePage } from './page.ts';

const HOURS_DEFAULT = 24;

const answerOf = (
  { project, revision }: { project: ProjectJson; revision: number },
  { isNew = false } = {},
): Answer => {
  const location = isNew && { Location: `/v1/projects/${project.id}` };
  return { status: isNew ? 201 : 200, json: project, headers: { ...tagged(revision), ...location } };
};

export const projects = operation({ query: namePage }, async ({ operations, query }) =>
  pageAnswer<ProjectJson>(
    { path: '/v1/projects', limit: query.limit, nameOf: ({ id }) => id },
    await operations.listProjects(query),
  ),
);

export const createProject = operation(
  { query: noQuery, body: newProjectSchema },
  async ({ operations, body: { dsn: _dsn, ...wanted } }) =>
    answerOf(await operations.createProject(wanted), { isNew: true }),
);

export const project = operation({ query: noQuery }, async ({ operations, path }) =>
  answerOf(await operations.getProject(`${path.id}`)),
);

/** Twice the same request leaves what the first one left, and no second record in the audit. */
export const putProject = operation(
  { query: noQuery, body: newProjectSchema },
  async ({ operations, path, body: { dsn: _dsn, ...wanted }, ifMatch, ifNoneMatch }) => {
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

/** As RFC 7396 has it: null clears a field. */
export const patchProject = operation(
  { query: noQuery, body: patchSchema },
  async ({ operations, path, body, ifMatch }) => {
    const changes = Object.fromEntries(
      Object.entries(body).map(([name, value]) => [name, value ?? undefined]),
    );
    const revision = revisionOf(ifMatch);
    return answerOf(await operations.setProject(`${path.id}`, changes, { revision }));
  },
);

const deletion = z.strictObject({
  keepUsage: z
    .enum(['true', 'false'])
    .default('false')
    .transform((text) => text === 'true'),
});

export const deleteProject = operation({ query: deletion }, async ({ operations, path, query, ifMatch }) => ({
  json: await operations.deleteProject(`${path.id}`, { ...query, revision: revisionOf(ifMatch) }),
}));

const hours = integerIn(0, OUTCOME_DAYS_KEPT * 24).default(HOURS_DEFAULT);

export const usage = operation({ query: z.strictObject({ hours }) }, async ({ operations, path, query }) => ({
  json: await operations.usageOf(`${path.id}`, query.hours),
}));

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
