/** Runs a command in this process, as `sluice <args>` would, and collects what it writes. */
import type { Command } from 'commander';
import { runProgram } from '../../src/commands/run-program.ts';

export type Ran = { status: number; out: string; err: string };

/**
 * @param env settings in place of this process's SLUICE_ variables, while the command runs
 * One at a time: environment and output belong to the whole process.
 */
export async function runCommand(
  command: Command,
  args: string[],
  env: Record<string, string>,
): Promise<Ran> {
  const ran: Ran = { status: 0, out: '', err: '' };
  const before = { ...process.env };
  const [writeOut, writeErr] = [process.stdout.write, process.stderr.write];
  for (const name of Object.keys(process.env)) if (name.startsWith('SLUICE_')) delete process.env[name];
  Object.assign(process.env, env);
  process.stdout.write = (text: string | Uint8Array) => {
    ran.out += typeof text === 'string' ? text : Buffer.from(text).toString();
    return true;
  };
  process.stderr.write = (text: string | Uint8Array) => {
    ran.err += typeof text === 'string' ? text : Buffer.from(text).toString();
    return true;
  };
  try {
    ran.status = await runProgram(command, args);
  } finally {
    process.stdout.write = writeOut;
    process.stderr.write = writeErr;
    process.env = before;
    process.exitCode = undefined;
  }
  return ran;
}
