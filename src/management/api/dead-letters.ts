/**
 * Dead letters in the management API. The ETag of a dead letter is its sequence, which changes when
 * the processor files the dead letter anew.
 */
import { z } from 'zod';
import type { FiledDeadLetter } from '../dead-letters/box.ts';
import { letterJson } from '../dead-letters/letter-json.ts';
import { type Asked, operation, revisionOf, tagged } from './operation.ts';
import { integerIn, noQuery, pageAnswer, sequencePage } from './page.ts';
import { ProblemError } from './problem.ts';

const FILTER_CHARS_MAX = 200;
/** Longest time that the answer to a replay waits for the processor. */
const WAIT_SECONDS_MAX = 60;

const text = z.string().min(1).max(FILTER_CHARS_MAX).optional();
const moment = z.iso.datetime().optional();
const letterPage = sequencePage.extend({ project: text, reason: text, since: moment, before: moment });

export const deadLetters = operation({ query: letterPage }, async ({ operations, query }) => {
  const { limit, after: _after, ...filter } = query;
  return pageAnswer<FiledDeadLetter>(
    { path: '/v1/dead-letters', limit, nameOf: ({ sequence }) => sequence, query: filter },
    await operations.listDeadLetters(query),
  );
});

export const deadLetter = operation({ query: noQuery }, async ({ operations, path }) => {
  const detail = await operations.getDeadLetter(`${path.id}`);
  return { json: letterJson(detail), headers: tagged(detail.letter.sequence) };
});

/**
 * Finds the dead letter of a request.
 * @throws ProblemError when its sequence is not the one in If-Match
 */
async function matching({ operations, path, ifMatch }: Asked<unknown, unknown>): Promise<FiledDeadLetter> {
  const letter = await operations.findDeadLetter(`${path.id}`);
  const wanted = revisionOf(ifMatch);
  if (wanted === undefined || wanted === letter.sequence) return letter;
  throw new ProblemError('stale', `Dead letter ${letter.id} was filed anew.`);
}

const waiting = z.strictObject({ wait: integerIn(0, WAIT_SECONDS_MAX).default(0) });

export const replayLetter = operation({ query: waiting, body: z.strictObject({}) }, async (asked) => {
  const letter = await matching(asked);
  const replayed = await asked.operations.replayDeadLetter(letter, asked.query.wait * 1_000);
  return { json: { id: letter.id, ...replayed } };
});

export const purgeLetter = operation({ query: noQuery }, async (asked) => {
  await asked.operations.purgeDeadLetter(await matching(asked));
  return { status: 204 };
});
