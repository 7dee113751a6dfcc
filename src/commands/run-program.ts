/**
 * Runs the command line. The exit status is 0 when the command is done, 1 when it failed, and 2 for
 * wrong usage. Every failure is one sentence on standard error.
 */
import { type Command, CommanderError } from 'commander';
import { ConfigError } from '../config.ts';
import { InvalidError } from '../management/failure.ts';
import { reasonOf } from '../management/operation-error.ts';
import { UsageError } from './command-error.ts';
import { harmless } from './print.ts';

const DONE = 0;
const FAILED = 1;
const WRONG_USAGE = 2;

/**
 * Commands that get no `--data-dir` here. `backfill` and `completion` use neither Redis nor NATS,
 * `load` parses its own flags, and the others are programs that serve.
 */
const PROGRAMS: ReadonlySet<string> = new Set([
  'dev',
  'ingest',
  'processor',
  'load',
  'backfill',
  'completion',
]);

/**
 * Prepares a command and its subcommands, so that Commander throws its errors instead of ending the
 * process, and a flag belongs to the command that it follows.
 */
export function prepare(command: Command): void {
  command.exitOverride().enablePositionalOptions();
  if (PROGRAMS.has(command.name())) return;
  const isGroup = command.commands.length > 0 && command.registeredArguments.length === 0;
  if (!isGroup)
    command
      .option('--data-dir <folder>', 'ask the servers of the sluice dev that runs on this folder')
      .hook('preAction', async () => {
        // Programs that serve need no session, which loads all management operations.
        const { useDataDir } = await import('./session.ts');
        useDataDir(command.opts<{ dataDir?: string }>().dataDir);
      });
  for (const sub of command.commands) prepare(sub);
}

/**
 * Runs the command that the arguments name.
 * @param args the arguments without the program's own name
 * @returns the exit status
 */
export async function runProgram(program: Command, args: readonly string[]): Promise<number> {
  prepare(program);
  try {
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? DONE);
  } catch (error) {
    return statusOf(error);
  }
}

function statusOf(error: unknown): number {
  // An error of Commander is not printed again, because Commander has printed its message. After
  // help and version, Commander throws an error with status 0.
  if (error instanceof CommanderError) return error.exitCode === 0 ? DONE : WRONG_USAGE;
  process.stderr.write(`sluice: ${harmless(reasonOf(error))}\n`);
  const isUsage = [UsageError, InvalidError, ConfigError].some((kind) => error instanceof kind);
  return isUsage ? WRONG_USAGE : FAILED;
}
