/**
 * Records between which cells (deployments with Redis and NATS of their own) a project has moved.
 * The records are in the bucket of counters, so that they outlast a Redis that comes back empty.
 */
import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import type { NatsLink } from '../../stream/nats.ts';
import { changeRecord, readRecord, removeRecords } from './records.ts';

/**
 * For each cell that the project moved from or to, by name: the last month (`YYYY-MM`) in which it
 * did so, and in which the counts of both cells are added up.
 */
type Moves = Record<string, string>;

const CELL_KEY = 'cell';
/** Key of a project's moves: `moved.<projectId>`. */
const movesKey = (projectId: string): string => `moved.${projectId}`;
const movesSchema = z.record(z.string(), z.string());

/** The name by which other cells know this one. It is random and made at the first call. */
export async function cellName(link: NatsLink): Promise<string> {
  let name = '';
  await changeRecord(link, CELL_KEY, (text) => {
    name = text ?? randomBytes(8).toString('hex');
    return text === undefined ? name : undefined;
  });
  return name;
}

export async function readMoves(link: NatsLink, projectId: string): Promise<Moves> {
  return movesSchema.parse(JSON.parse((await readRecord(link, movesKey(projectId))) ?? '{}'));
}

export const noteMove = (
  link: NatsLink,
  projectId: string,
  { cell, month }: { cell: string; month: string },
): Promise<void> =>
  changeRecord(link, movesKey(projectId), (text) => {
    const moves = movesSchema.parse(JSON.parse(text ?? '{}'));
    return moves[cell] === month ? undefined : JSON.stringify({ ...moves, [cell]: month });
  });

/** Removes the moves of a deleted project. */
export async function removeMoves(link: NatsLink, projectId: string): Promise<void> {
  await removeRecords(link, movesKey(projectId));
}
