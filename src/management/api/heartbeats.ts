import { z } from 'zod';
import { operation } from './operation.ts';
import { namePage, noQuery, pageAnswer } from './page.ts';

export const heartbeats = operation({ query: namePage }, async ({ operations, query }) =>
  pageAnswer(
    {
      path: '/v1/heartbeats',
      limit: query.limit,
      nameOf: ({ token }: { token: string }) => token,
    },
    await operations.listHeartbeats(query),
  ),
);

export const createHeartbeat = operation(
  { query: noQuery, body: z.strictObject({}) },
  async ({ operations }) => {
    const made = await operations.createHeartbeat();
    return { status: 201, json: made, headers: { Location: `/v1/heartbeats/${made.token}` } };
  },
);

export const deleteHeartbeat = operation({ query: noQuery }, async ({ operations, path }) => {
  await operations.deleteHeartbeat(`${path.token}`);
  return { status: 204 };
});
