/** The paths of the management API, with their operations (docs/openapi-admin.yaml). */
import { deadLetter, deadLetters, purgeLetter, replayLetter } from './dead-letters.ts';
import { createHeartbeat, deleteHeartbeat, heartbeats } from './heartbeats.ts';
import { addKey, key, keys, patchKey, removeKey } from './keys.ts';
import type { Operation } from './operation.ts';
import {
  createProject,
  deleteProject,
  history,
  patchProject,
  project,
  projects,
  putProject,
  rotateKey,
  sendTestEvent,
  usage,
} from './projects.ts';
import { doctor, tail } from './watch.ts';

export type Route = { path: string; methods: Readonly<Record<string, Operation>> };

/** Pattern of a name in a path. It replaces each segment in braces. */
const NAME = '([A-Za-z0-9_-]{1,64})';

const ROUTES: readonly Route[] = [
  { path: '/v1/projects', methods: { GET: projects, POST: createProject } },
  {
    path: '/v1/projects/{id}',
    methods: { GET: project, PUT: putProject, PATCH: patchProject, DELETE: deleteProject },
  },
  { path: '/v1/projects/{id}/keys', methods: { GET: keys, POST: addKey } },
  {
    path: '/v1/projects/{id}/keys/{keyId}',
    methods: { GET: key, PATCH: patchKey, DELETE: removeKey },
  },
  { path: '/v1/projects/{id}/rotate-key', methods: { POST: rotateKey } },
  { path: '/v1/projects/{id}/test-event', methods: { POST: sendTestEvent } },
  { path: '/v1/projects/{id}/usage', methods: { GET: usage } },
  { path: '/v1/projects/{id}/history', methods: { GET: history } },
  { path: '/v1/heartbeats', methods: { GET: heartbeats, POST: createHeartbeat } },
  { path: '/v1/heartbeats/{token}', methods: { DELETE: deleteHeartbeat } },
  { path: '/v1/dead-letters', methods: { GET: deadLetters } },
  { path: '/v1/dead-letters/{id}', methods: { GET: deadLetter, DELETE: purgeLetter } },
  { path: '/v1/dead-letters/{id}/replay', methods: { POST: replayLetter } },
  { path: '/v1/tail', methods: { GET: tail } },
  { path: '/v1/doctor', methods: { GET: doctor } },
];

const compiled = ROUTES.map((route) => {
  const names = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => `${name}`);
  return { route, names, pattern: new RegExp(`^${route.path.replaceAll(/\{\w+\}/g, NAME)}$`) };
});

/** Finds the route of a path, and the names in the path; undefined when no route has this path. */
export function findRoute(path: string): { route: Route; names: Record<string, string> } | undefined {
  for (const { route, names, pattern } of compiled) {
    const found = pattern.exec(path);
    if (found)
      return { route, names: Object.fromEntries(names.map((name, at) => [name, `${found[at + 1]}`])) };
  }
  return undefined;
}
