#!/usr/bin/env node
/**
 * The program `sluice`, with one line per command. Only the named command is loaded, so that a
 * short command starts fast.
 */
import { type Command, Command as Program } from 'commander';
import { runProgram } from './commands/run-program.ts';
import { VERSION } from './version.ts';

const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  dev: async () => (await import('./commands/dev/dev.ts')).devCommand(),
  ingest: async () => (await import('./commands/ingest.ts')).ingestCommand(),
  processor: async () => (await import('./commands/processor.ts')).processorCommand(),
  setup: async () => (await import('./commands/setup.ts')).setupCommand(),
  project: async () => (await import('./commands/project/project.ts')).projectCommand(),
  heartbeat: async () => (await import('./commands/heartbeat.ts')).heartbeatCommand(),
  usage: async () => (await import('./commands/usage/usage.ts')).usageCommand(),
  tail: async () => (await import('./commands/tail.ts')).tailCommand(),
  'dead-letters': async () => (await import('./commands/dead-letters/dead-letters.ts')).deadLettersCommand(),
  doctor: async () => (await import('./commands/doctor/doctor.ts')).doctorCommand(),
  backfill: async () => (await import('./commands/backfill.ts')).backfillCommand(),
  load: async () => (await import('./commands/load/load.ts')).loadCommand(),
  completion: async () =>
    (await import('./commands/completion.ts')).completionCommand(() => programOf(Object.keys(COMMANDS))),
};

async function programOf(names: readonly string[]): Promise<Command> {
  const program = new Program('sluice')
    .description('The ingest edge of an error and performance monitoring service.')
    .version(VERSION);
  for (const name of names) {
    const command = await COMMANDS[name]?.();
    if (command) program.addCommand(command);
  }
  return program;
}

// Only the user who runs sluice may read the payloads, keys and counters that it writes. The
// servers that `sluice dev` starts inherit the mask.
process.umask(0o077);
const named = process.argv[2] ?? '';
const wanted = Object.hasOwn(COMMANDS, named) ? [named] : Object.keys(COMMANDS);
// EPIPE is no failure: a reader such as `head` closes the pipe when it has seen enough. A command
// that changes something still runs to its end.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code !== 'EPIPE') process.exit(1);
});
process.exitCode = await runProgram(await programOf(wanted), process.argv.slice(2));
// Exits once all output is written. Without the exit, an attempt of nats.js to connect that got no
// answer would keep the process alive.
process.stdout.write('', () => process.stderr.write('', () => process.exit()));
