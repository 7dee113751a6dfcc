/** The tag of a dead letter is its sequence, which changes when the processor files it anew. */
import { z } from 'zod';
import type { FiledDeadLetter } from '../dead-letters/box.ts';
import { letterJson } from '../dead-letters/letter-json.ts';
import { type Asked, operation, revisionOf, tagged } from './operation.ts';
import { noQuery, pageAnswer, sequencePage } from './page.ts';
import { ProblemError } from './problem.ts';

export const deadLetters = operation({ query: sequencePage }, async ({ operations, query }) =>
  pageAnswer<FiledDeadLetter>(
    { path: '/v1/dead-letters', limit: query.limit, nameOf: ({ sequence }) => sequence },
    await operations.listDeadLetters(query),
  ),
);

export const deadLetter = operation({ query: noQuery }, async ({ operations, path }) => {
  const detail = await operations.getDeadLetter(`${path.id}`);
  return { json: letterJson(detail), headers: tagged(detail.letter.sequence) };
});

/** @throws ProblemError when another one than that of the tag is there */
async function matching({ operations, path, ifMatch }: Asked<unknown, unknown>): Promise<FiledDeadLetter> {
  const letter = await operations.findDeadLetter(`${path.id}`);
  const wanted = revisionOf(ifMatch);
  if (wanted === undefined || wanted === letter.sequence) return letter;
  throw new ProblemError('stale', `Dead letter ${letter.id} was filed anew.`);
}

export const replayLetter = operation({ query: noQuery, body: z.strictObject({}) }, async (asked) => {
  const letter = await matching(asked);
  return { json: { id: letter.id, subject: await asked.operations.replayDeadLetter(letter) } };
});

export const purgeLetter = operation({ query: noQuery }, async (asked) => {
  await asked.operations.purgeDeadLetter(await matching(asked));
  return { status: 204 };
});
