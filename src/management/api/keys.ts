/** The keys of a project in the management API. A key's ETag is that of the project's record. */
import { keyPatchSchema, newKeySchema } from '../project-json.ts';
import { operation, revisionOf, tagged } from './operation.ts';
import { noQuery } from './page.ts';

export const keys = operation({ query: noQuery }, async ({ operations, path }) => ({
  json: await operations.listKeys(`${path.id}`),
}));

export const addKey = operation(
  { query: noQuery, body: newKeySchema },
  async ({ operations, path, body, ifMatch }) => {
    const { key, revision } = await operations.addKey(`${path.id}`, body, { revision: revisionOf(ifMatch) });
    const headers = { ...tagged(revision), Location: `/v1/projects/${path.id}/keys/${key.id}` };
    return { status: 201, json: key, headers };
  },
);

export const key = operation({ query: noQuery }, async ({ operations, path }) => {
  const { key: json, revision } = await operations.getKey(`${path.id}`, `${path.keyId}`);
  return { json, headers: tagged(revision) };
});

export const patchKey = operation(
  { query: noQuery, body: keyPatchSchema },
  async ({ operations, path, body: changes, ifMatch }) => {
    const wanted = { changes, revision: revisionOf(ifMatch) };
    const { key: json, revision } = await operations.setKey(`${path.id}`, `${path.keyId}`, wanted);
    return { json, headers: tagged(revision) };
  },
);

export const removeKey = operation({ query: noQuery }, async ({ operations, path, ifMatch }) => ({
  json: await operations.removeKey(`${path.id}`, `${path.keyId}`, { revision: revisionOf(ifMatch) }),
}));
