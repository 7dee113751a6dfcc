/** Runs `sluice <args>` in this process, and collects what it writes. */
import { Command } from 'commander';
import { backfillCommand } from '../../src/commands/backfill.ts';
import { deadLettersCommand } from '../../src/commands/dead-letters/dead-letters.ts';
import { doctorCommand } from '../../src/commands/doctor/doctor.ts';
import { heartbeatCommand } from '../../src/commands/heartbeat.ts';
import { projectCommand } from '../../src/commands/project/project.ts';
import { runProgram } from '../../src/commands/run-program.ts';
import { setupCommand } from '../../src/commands/setup.ts';
import { tailCommand } from '../../src/commands/tail.ts';
import { usageCommand } from '../../src/commands/usage/usage.ts';

export const COMMANDS = [
  backfillCommand,
  deadLettersCommand,
  doctorCommand,
  heartbeatCommand,
  projectCommand,
  setupCommand,
  tailCommand,
  usageCommand,
];

export type Ran = { status: number; out: string; err: string };

/**
 * @param env settings in place of this process's SLUICE_ variables, while the command runs
 * One at a time: environment and output belong to the whole process.
 */
export async function runCommand(args: readonly string[], env: Record<string, string>): Promise<Ran> {
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
    const program = new Command('sluice');
    for (const command of COMMANDS) program.addCommand(command());
    ran.status = await runProgram(program, args);
  } finally {
    process.stdout.write = writeOut;
    process.stderr.write = writeErr;
    process.env = before;
    process.exitCode = undefined;
  }
  return ran;
}
