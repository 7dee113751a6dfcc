/** How files of `sluice project apply` are read, a million of them: half are derived with what they say, half are damaged. */
import { isDeepStrictEqual } from 'node:util';
import {
  type FileProject,
  ProjectFileError,
  parseProjectFile,
} from '../../src/commands/project/project-file.ts';
import type { Random } from '../random.ts';
import { type DerivedFile, damagedFile, derivedFile, FILE_NAME } from './apply-file.ts';
import { Tally } from './asking.ts';
import { type MutationOptions, type MutationResult, randomOf, SURPRISES_KEPT } from './mutations.ts';

const DERIVED = 0.5;
/** A file that takes longer to read hangs. Wide enough for a machine that stalls. */
const READ_MS_MAX = 10_000;
const TURN = 500;

/** Projects, or the message that refuses the file. @throws any other error */
function read(text: string): FileProject[] | string {
  try {
    return parseProjectFile(text, FILE_NAME);
  } catch (error) {
    if (error instanceof ProjectFileError) return error.message;
    throw error;
  }
}

/** @returns what is wrong with how a derived file was read; undefined: nothing */
function wrongOfDerived(
  { declared, refusal }: DerivedFile,
  found: FileProject[] | string,
): string | undefined {
  if (typeof found !== 'string')
    return isDeepStrictEqual(found, declared)
      ? undefined
      : `read as ${JSON.stringify(found)}, it says ${JSON.stringify(declared) ?? 'nothing'}`;
  if (refusal === undefined) return `refused: ${found}`;
  const isNamed = found.split('\n').every((line) => line.startsWith(refusal));
  return isNamed ? undefined : `refused: ${found}, expected: ${refusal}`;
}

function wrongOfDamaged(found: FileProject[] | string): string | undefined {
  if (typeof found === 'string')
    return /^projects\.yaml(:\d+)?: ./s.test(found) ? undefined : `refused: ${found}`;
  const again = read(JSON.stringify({ projects: found }));
  return isDeepStrictEqual(again, found) ? undefined : `read as ${JSON.stringify(found)}, then as ${again}`;
}

type Read = { isRefused: boolean; how: string; text: string; wrong: string | undefined };
/** Reads a file of the seed. @returns whether it was refused, and what is wrong with that */
export function readHostileFile(random: Random): Read {
  const derived = random() < DERIVED ? derivedFile(random) : undefined;
  const text = derived?.text ?? damagedFile(random);
  const how = derived?.how ?? 'damaged';
  try {
    const began = performance.now();
    const found = read(text);
    const ms = performance.now() - began;
    const isRefused = typeof found === 'string';
    const wrong = derived ? wrongOfDerived(derived, found) : wrongOfDamaged(found);
    return { isRefused, how, text, wrong: wrong ?? (ms > READ_MS_MAX ? `it took ${ms} ms` : undefined) };
  } catch (error) {
    return { isRefused: true, how, text, wrong: `${(error as Error).stack}` };
  }
}

export async function runApplyFiles({
  count,
  seed,
}: Pick<MutationOptions, 'count' | 'seed'>): Promise<Omit<MutationResult, 'memory'>> {
  const tally = new Tally();
  const surprises: string[] = [];
  const startedAt = performance.now();
  for (let file = 1; file <= count; file++) {
    const { isRefused, how, text, wrong } = readHostileFile(randomOf(seed, file));
    tally.add(isRefused ? 'refused' : 'taken');
    if (wrong !== undefined && surprises.length < SURPRISES_KEPT)
      surprises.push(`${file}: ${wrong}; ${how}: ${JSON.stringify(text)}`);
    if (file % TURN === 0) await new Promise(setImmediate);
  }
  const seconds = (performance.now() - startedAt) / 1000;
  return {
    answers: Object.fromEntries(tally.counts),
    surprises,
    restarts: 0,
    seconds,
  };
}
