/** `sluice load`: starts the load tester of bench/load. */
import { Command } from 'commander';
import { loadConfig, setting } from '../../config.ts';
import { firstToken } from '../../management/api/tokens.ts';
import type { StoredReader } from '../../sink/sink.ts';
import { findDev } from '../session.ts';
import { openStored } from './stored.ts';

/** Parts of this program that the load tester needs; bench/load/main.ts declares the same type. */
export type Surroundings = {
  defaults: { dsn?: string; admin?: string; sink?: string };
  token: string | undefined;
  openSink(sink: string | undefined): Promise<StoredReader>;
};
type LoadTester = { loadMain(args: string[], surroundings: Surroundings): Promise<number> };

/** URL of the load tester, which the build puts beside this program's own folders. */
const LOAD_TESTER = new URL('../../bench/load/main.js', import.meta.url).href;

export function surroundings(args: readonly string[]): Surroundings {
  const dev = findDev(process.cwd(), dataDirIn(args));
  const sink = setting('SLUICE_SINK') ?? (dev?.sinkDir && `ndjson:${dev.sinkDir}`);
  return {
    defaults: {
      ...(dev && { dsn: dev.project.dsn, admin: dev.adminUrl }),
      ...(sink !== undefined && { sink }),
    },
    // While tokens are being changed, the setting may have several; any of them will do.
    token: firstToken(setting('SLUICE_ADMIN_TOKEN')?.split(',') ?? []),
    openSink: openStored,
  };
}

/** Finds the value of `--data-dir` in the arguments; undefined without the flag. */
function dataDirIn(args: readonly string[]): string | undefined {
  const at = args.findIndex((arg) => /^--data-dir(=|$)/.test(arg));
  return at < 0 ? undefined : (args[at]?.split('=')[1] ?? args[at + 1]);
}

/** Makes the command. The load tester parses its own arguments, as in `npm run bench -- load`. */
export function loadCommand(): Command {
  return new Command('load')
    .description('load test: sends envelopes at intended rates, and tells what became of each')
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action(async (_flags: unknown, command: Command) => {
      const wantsHelp = command.args.some((arg) => arg === '--help' || arg === '-h');
      if (!wantsHelp) loadConfig(); // @throws ConfigError
      const { loadMain } = (await import(LOAD_TESTER)) as LoadTester;
      process.exitCode = await loadMain(command.args, surroundings(command.args));
    });
}
