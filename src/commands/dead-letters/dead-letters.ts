import { Command, InvalidArgumentError } from 'commander';
import { systemClock as clock } from '../../lib/clock.ts';
import { printJson, printLine } from '../print.ts';
import { CommandError, reasonOf, type Session, UsageError, withSession } from '../session.ts';
import { BytesGoneError, DeadLetterBox, type FiledDeadLetter } from './box.ts';
import { entryOf, Replay } from './replay.ts';
import { factsText, letterJson, lettersText, letterText, rawBytes } from './text.ts';

type Chosen = { all?: boolean };

const open = async (session: Session): Promise<DeadLetterBox> => DeadLetterBox.open(await session.nats());

function parseId(text: string, before: string[] | undefined): string[] {
  if (!/^[0-9a-f]{32}$/.test(text))
    throw new InvalidArgumentError('A dead letter has an id of 32 hex digits.');
  return [...(before ?? []), text];
}

async function list(flags: { json?: boolean }): Promise<void> {
  await withSession(async (session) => {
    const letters = await (await open(session)).list();
    if (flags.json) printJson(letters);
    else printLine(letters.length > 0 ? lettersText(letters) : 'There are no dead letters.');
  });
}

async function show([id]: string[], flags: { json?: boolean; raw?: boolean }): Promise<void> {
  await withSession(async (session) => {
    const box = await open(session);
    const letter = await box.get(id ?? '');
    const bytes = await box.bytesOf(letter).catch((error: unknown) => {
      if (flags.raw || !(error instanceof BytesGoneError)) throw error;
      return error.message;
    });
    if (typeof bytes === 'string') {
      if (flags.json) return printJson({ ...letter, bytes_gone: bytes });
      return printLine(`${factsText(letter)}\n\n${bytes}`);
    }
    const entry = entryOf(letter, bytes.subarray(0, letter.bodyBytes));
    if (flags.raw) process.stdout.write(rawBytes(letter, entry, bytes));
    else if (flags.json) printJson(letterJson(letter, entry, bytes));
    else printLine(letterText(letter, entry, bytes));
  });
}

/** The dead letters that the command line names, each looked up before anything is done. */
async function chosen(
  box: DeadLetterBox,
  ids: readonly string[],
  { all }: Chosen,
): Promise<FiledDeadLetter[]> {
  if ((all === true) === ids.length > 0) throw new UsageError('Name dead letters, or say --all.');
  return all ? box.list() : Promise.all(ids.map((id) => box.get(id)));
}

async function replay(ids: string[] = [], flags: Chosen = {}): Promise<void> {
  await withSession(async (session) => {
    const box = await open(session);
    const letters = await chosen(box, ids, flags);
    const { config, log } = session;
    const link = await session.nats();
    const failures = await replayEach(
      letters,
      new Replay({ link, box, shards: config.streamShards, clock, log }),
    );
    if (letters.length === 0) printLine('There are no dead letters.');
    if (letters.length > 1 && failures.length > 0)
      failures.push(`${failures.length} of ${letters.length} dead letters were not replayed`);
    if (failures.length > 0) throw new CommandError(failures.join('\n'));
  });
}

/** One that fails does not stop those behind it. @returns why each that failed did */
async function replayEach(letters: readonly FiledDeadLetter[], replaying: Replay): Promise<string[]> {
  const failures: string[] = [];
  for (const letter of letters) {
    try {
      printLine(`Replayed ${letter.id} to ${await replaying.run(letter)}.`);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      failures.push(reasonOf(error));
    }
  }
  return failures;
}

async function purge(ids: string[] = [], flags: Chosen = {}): Promise<void> {
  await withSession(async (session) => {
    const box = await open(session);
    const letters = await chosen(box, ids, flags);
    for (const letter of letters) await box.purge(letter);
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
  return command;
}
