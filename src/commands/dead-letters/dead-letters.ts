import { Command, InvalidArgumentError } from 'commander';
import type { FiledDeadLetter } from '../../management/dead-letters/box.ts';
import { letterJson } from '../../management/dead-letters/letter-json.ts';
import { entryOf } from '../../management/dead-letters/replay.ts';
import { faultOf, reasonOf } from '../../management/failure.ts';
import type { Operations } from '../../management/operations.ts';
import { printJson, printLine } from '../print.ts';
import { type ApiFlags, CommandError, UsageError, withApi, withOperations } from '../session.ts';
import { factsText, lettersText, letterText, rawBytes } from './text.ts';

type Chosen = ApiFlags & { all?: boolean };

function parseId(text: string, before: string[] | undefined): string[] {
  if (!/^[0-9a-f]{32}$/.test(text))
    throw new InvalidArgumentError('A dead letter has an id of 32 hex digits.');
  return [...(before ?? []), text];
}

async function list(flags: ApiFlags & { json?: boolean }): Promise<void> {
  await withOperations(flags, async (operations) => {
    const letters = await operations.listDeadLetters();
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
    // A terminal shows text; a file or a program gets the bytes.
    if (raw) process.stdout.isTTY ? printLine(Buffer.from(raw).toString()) : process.stdout.write(raw);
    else if (flags.json) printJson(letterJson(detail));
    else printLine(letterText(letter, entry, bytes));
  });
}

/** The dead letters that the command line names, each looked up before anything is done. */
async function chosen(
  operations: Operations,
  ids: readonly string[],
  { all }: Chosen,
): Promise<FiledDeadLetter[]> {
  if ((all === true) === ids.length > 0) throw new UsageError('Name dead letters, or say --all.');
  if (all) return operations.listDeadLetters();
  return Promise.all(ids.map((id) => operations.findDeadLetter(id)));
}

async function replay(ids: string[] = [], flags: Chosen = {}): Promise<void> {
  await withOperations(flags, async (operations) => {
    const letters = await chosen(operations, ids, flags);
    const failures: string[] = [];
    for (const letter of letters) {
      try {
        printLine(`Replayed ${letter.id} to ${await operations.replayDeadLetter(letter)}.`);
      } catch (error) {
        // One that fails does not stop those behind it.
        if (faultOf(error) === 'bug') throw error;
        failures.push(reasonOf(error));
      }
    }
    if (letters.length === 0) printLine('There are no dead letters.');
    if (letters.length > 1 && failures.length > 0)
      failures.push(`${failures.length} of ${letters.length} dead letters were not replayed`);
    if (failures.length > 0) throw new CommandError(failures.join('\n'));
  });
}

async function purge(ids: string[] = [], flags: Chosen = {}): Promise<void> {
  await withOperations(flags, async (operations) => {
    const letters = await chosen(operations, ids, flags);
    for (const letter of letters) await operations.purgeDeadLetter(letter);
    printLine(`Purged ${letters.length} dead letter${letters.length === 1 ? '' : 's'}.`);
  });
}

export function deadLettersCommand(): Command {
  const command = new Command('dead-letters').description('items that the processor could not store');
  command.command('list').description('print all, oldest first').option('--json', 'print JSON').action(list);
  command
    .command('show')
    .description('print one with its bytes')
    .argument('<id>', 'as list prints it', parseId)
    .option('--json', 'print JSON; what is not text is in base64')
    .option('--raw', 'write the bytes alone: the payload of an item, else the body as it is kept')
    .action(show);
  command
    .command('replay')
    .description('send them to the processor again, and remove them here')
    .argument('[ids...]', 'as list prints them', parseId)
    .option('--all', 'every dead letter')
    .action(replay);
  command
    .command('purge')
    .description('remove them for good')
    .argument('[ids...]', 'as list prints them', parseId)
    .option('--all', 'every dead letter')
    .action(purge);
  for (const sub of command.commands) withApi(sub);
  return command;
}
