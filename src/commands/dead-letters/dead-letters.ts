import { Command, InvalidArgumentError } from 'commander';
import type { FiledDeadLetter, LetterFilter } from '../../management/dead-letters/box.ts';
import { letterJson } from '../../management/dead-letters/letter-json.ts';
import { entryOf, type Replayed } from '../../management/dead-letters/replay.ts';
import { faultOf } from '../../management/failure.ts';
import { reasonOf } from '../../management/operation-error.ts';
import type { Operations } from '../../management/operations.ts';
import { CommandError, UsageError } from '../command-error.ts';
import { printJson, printLine } from '../print.ts';
import { integerIn, parseProjectId } from '../project/fields.ts';
import { parsePast } from '../project/keys.ts';
import { type ApiFlags, withApi, withOperations } from '../session.ts';
import { factsText, lettersText, letterText, rawBytes } from './text.ts';

type Filters = ApiFlags & LetterFilter & { json?: boolean };
type Chosen = Filters & { all?: boolean };
type ReplayFlags = Chosen & { wait: number };

/** Longest time that --wait allows. It is for all dead letters of a replay together. */
const WAIT_SECONDS_MAX = 60;
const WAIT_SECONDS = 10;
const REPLAYS_AT_ONCE = 8;

const filterOf = ({ project, reason, since, before }: LetterFilter): LetterFilter =>
  Object.fromEntries(Object.entries({ project, reason, since, before }).filter(([, value]) => value));

function parseId(text: string, before: string[] | undefined): string[] {
  if (!/^[0-9a-f]{32}$/.test(text))
    throw new InvalidArgumentError('A dead letter has an id of 32 hex digits.');
  return [...(before ?? []), text];
}

async function list(flags: Filters): Promise<void> {
  await withOperations(flags, async (operations) => {
    const letters = await operations.listDeadLetters(wanted(flags));
    if (flags.json) printJson(letters);
    else printLine(letters.length > 0 ? lettersText(letters) : 'There are no dead letters.');
  });
}

async function show([id]: string[], flags: ApiFlags & { json?: boolean; raw?: boolean }): Promise<void> {
  await withOperations(flags, async (operations) => {
    const detail = await operations.getDeadLetter(id ?? '');
    const { letter, bytes } = detail;
    if (typeof bytes === 'string') {
      if (flags.raw) throw new CommandError(bytes);
      return flags.json ? printJson(letterJson(detail)) : printLine(`${factsText(letter)}\n\n${bytes}`);
    }
    const entry = entryOf(letter, bytes.subarray(0, letter.bodyBytes));
    const raw = flags.raw && rawBytes(letter, entry, bytes);
    // A terminal gets text; a file or a program gets the bytes.
    if (raw) process.stdout.isTTY ? printLine(Buffer.from(raw).toString()) : process.stdout.write(raw);
    else if (flags.json) printJson(letterJson(detail));
    else printLine(letterText(letter, entry, bytes));
  });
}

/** Makes the filter that the flags name; undefined when they name none. */
function wanted(flags: LetterFilter): LetterFilter | undefined {
  const filter = filterOf(flags);
  return Object.keys(filter).length > 0 ? filter : undefined;
}

/** Finds all dead letters that the command line names, before any is replayed or purged. */
async function chosen(
  operations: Operations,
  ids: readonly string[],
  flags: Chosen,
): Promise<FiledDeadLetter[]> {
  const isFiltered = wanted(flags) !== undefined;
  if ((flags.all === true || isFiltered) === ids.length > 0)
    throw new UsageError(
      'Name dead letters, say which by --project, --reason, --since or --before, or say --all.',
    );
  if (ids.length === 0) return operations.listDeadLetters(wanted(flags));
  return Promise.all(ids.map((id) => operations.findDeadLetter(id)));
}

type Outcome = { id: string } & (Replayed | { became: 'not replayed'; reason: string });

/** Replays REPLAYS_AT_ONCE dead letters at a time. The failure of one does not stop the others. */
async function replayAll(
  operations: Operations,
  letters: readonly FiledDeadLetter[],
  waitMs: number,
): Promise<Outcome[]> {
  const end = performance.now() + waitMs;
  const outcomes: Outcome[] = [];
  const queue = letters.entries();
  const replayNext = async (): Promise<void> => {
    for (const [at, letter] of queue) {
      const msLeft = Math.max(0, end - performance.now());
      const replayed = await operations.replayDeadLetter(letter, msLeft).catch((error: unknown) => {
        if (faultOf(error) === 'bug') throw error;
        return { became: 'not replayed', reason: reasonOf(error) } as const;
      });
      outcomes[at] = { id: letter.id, ...replayed };
    }
  };
  await Promise.all(Array.from({ length: REPLAYS_AT_ONCE }, replayNext));
  return outcomes;
}

function replayedText(outcome: Outcome, { wait }: ReplayFlags): string[] {
  if (outcome.became === 'not replayed') return [];
  const became = { stored: ', stored', 'filed again': ', filed again', waiting: ', still waiting there' };
  const end = wait === 0 && outcome.became === 'waiting' ? '' : became[outcome.became];
  return [`Replayed ${outcome.id} to ${outcome.subject}${end}.`];
}

/** Returns why the replay of a dead letter failed; an empty list when it did not fail. */
function failureOf(outcome: Outcome): string[] {
  if (outcome.became === 'not replayed') return [outcome.reason];
  if (outcome.became !== 'filed again') return [];
  return [`Dead letter ${outcome.id} was filed again, as ${outcome.again}: ${outcome.reason}`];
}

async function replay(ids: string[] = [], flags: ReplayFlags = { wait: WAIT_SECONDS }): Promise<void> {
  await withOperations(flags, async (operations) => {
    const letters = await chosen(operations, ids, flags);
    const outcomes = await replayAll(operations, letters, flags.wait * 1_000);
    if (flags.json) printJson(outcomes);
    else if (letters.length === 0) printLine('There are no dead letters.');
    else for (const line of outcomes.flatMap((one) => replayedText(one, flags))) printLine(line);
    const failures = outcomes.flatMap(failureOf);
    if (letters.length > 1 && failures.length > 0)
      failures.push(`${failures.length} of ${letters.length} dead letters were not replayed`);
    if (failures.length > 0) throw new CommandError(failures.join('\n'));
  });
}

async function purge(ids: string[] = [], flags: Chosen = {}): Promise<void> {
  await withOperations(flags, async (operations) => {
    const letters = await chosen(operations, ids, flags);
    for (const letter of letters) await operations.purgeDeadLetter(letter);
    if (flags.json) printJson({ purged: letters.map(({ id }) => id) });
    else printLine(`Purged ${letters.length} dead letter${letters.length === 1 ? '' : 's'}.`);
  });
}

/** Adds the flags that choose dead letters. */
const withFilters = (command: Command): Command =>
  command
    .option('--project <id>', 'only of this project', parseProjectId)
    .option('--reason <text>', 'only with this text in the reason')
    .option(
      '--since <when>',
      'only filed since then: a duration ago such as 2h, a date (UTC), or RFC 3339',
      parsePast,
    )
    .option('--before <when>', 'only filed before', parsePast)
    .option('--json', 'print JSON');

export function deadLettersCommand(): Command {
  const command = new Command('dead-letters').description('items that the processor could not store');
  withFilters(command.command('list').description('print all, oldest first')).action(list);
  command
    .command('show')
    .description('print one with its bytes')
    .argument('<id>', 'as list prints it', parseId)
    .option('--json', 'print JSON; what is not text is in base64')
    .option('--raw', 'write the bytes alone: the payload of an item, else the body as it is kept')
    .action(show);
  withFilters(command.command('replay'))
    .description('send them to the processor again, remove them here, and say what became of each')
    .argument('[ids...]', 'as list prints them', parseId)
    .option('--all', 'every dead letter')
    .option(
      '--wait <seconds>',
      'how long to wait for the processor',
      integerIn(0, WAIT_SECONDS_MAX),
      WAIT_SECONDS,
    )
    .action(replay);
  withFilters(command.command('purge'))
    .description('remove them for good')
    .argument('[ids...]', 'as list prints them', parseId)
    .option('--all', 'every dead letter')
    .action(purge);
  for (const sub of command.commands) withApi(sub);
  return command;
}
