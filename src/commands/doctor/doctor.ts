import { Command } from 'commander';
import { ConfigError, loadConfig, type SinkSetting } from '../../config.ts';
import { type Check, type Finding, findingOf } from '../../management/doctor/check.ts';
import { ndjson } from '../../management/doctor/checks.ts';
import { OperationError, reasonOf } from '../../management/operation-error.ts';
import { ingestProblems } from '../ingest-settings.ts';
import { printJson, printLine, printStates, table } from '../print.ts';
import { type ApiFlags, withApi, withOperations } from '../session.ts';
import { clickhouse } from './clickhouse.ts';
import { postgres } from './postgres.ts';
import { s3 } from './s3.ts';

function sinkChecks(sink: SinkSetting): Promise<Check[]> {
  switch (sink.kind) {
    case 'ndjson':
      return ndjson(sink.dir);
    case 's3':
      return s3(sink);
    case 'clickhouse':
      return clickhouse(sink.url);
    case 'postgres':
      return postgres(sink.url);
  }
}

/** Checks the settings of ingest. Faults are warnings, because other programs do not need them. */
function ingestSettings(): Check[] {
  try {
    loadConfig(undefined, { alsoCheck: ingestProblems });
    return [];
  } catch (error) {
    const what = 'settings of ingest';
    const fix = '`sluice ingest` does not start with it: correct or unset the variable.';
    return (error as ConfigError).message.split('\n').map((found) => ({ what, found, warn: true, fix }));
  }
}

/**
 * Examines the servers and sinks that the settings name. With `--api`, an ingest examines its own
 * deployment instead, but no sinks, because ingest does not know those of the processor.
 */
async function examine(flags: ApiFlags): Promise<Finding[]> {
  try {
    return await withOperations(flags, async (operations, { sinks }) => {
      if (flags.api !== undefined) return operations.examine();
      const [found, ...ofSinks] = await Promise.all([operations.examine(), ...sinks.map(sinkChecks)]);
      return [...found, ...[...ingestSettings(), ...ofSinks.flat()].map(findingOf)];
    });
  } catch (error) {
    return unexamined(error, flags).map(findingOf);
  }
}

/**
 * Makes failed checks from the error of an examination that could not begin.
 * @throws the error, when it is neither about settings nor from the management API
 */
function unexamined(error: unknown, { api }: ApiFlags): Check[] {
  if (error instanceof ConfigError)
    return error.message
      .split('\n')
      .map((found) => ({ what: 'settings', found, fail: true, fix: 'Correct or unset the variable.' }));
  if (api === undefined || !(error instanceof OperationError)) throw error;
  const fix = 'Start ingest, or correct the URL or SLUICE_ADMIN_TOKEN.';
  return [{ what: `management API ${api}`, found: reasonOf(error), fail: true, fix }];
}

/** Matches the state at the beginning of a line. */
const STATES = /^(?<state>ok|warn|fail)(?= )/gm;

/** Prints the findings. The exit status is 1 when a check failed; warnings do not change it. */
async function run(flags: ApiFlags & { json?: boolean }): Promise<void> {
  const findings = await examine(flags);
  const failed = findings.filter(({ state }) => state === 'fail').length;
  const warned = findings.filter(({ state }) => state === 'warn').length;
  if (flags.json) printJson({ ok: failed === 0, checks: findings });
  else {
    const rows = findings.map(({ state, what, found }) => [state, what, found]);
    printStates(table(['', 'WHAT', 'FOUND'], rows), STATES);
    for (const { state, what, fix } of findings)
      if (fix) printStates(`\n${state}  ${what}\n      ${fix}`, STATES);
    printLine(`\n${findings.length} checks, ${warned} warnings, ${failed} failed.`);
  }
  if (failed > 0) process.exitCode = 1;
}

export const doctorCommand = (): Command =>
  withApi(
    new Command('doctor')
      .description(
        'check settings, this machine, Redis, NATS and the sinks, and say how to fix what is wrong; with --api those of an ingest, but the sinks',
      )
      .option('--json', 'print JSON')
      .action(run),
  );
