import { Command } from 'commander';
import { ConfigError, type SinkSetting } from '../../config.ts';
import { printJson, printLine, table } from '../print.ts';
import { reasonOf, Session } from '../session.ts';
import { topologyOf } from '../setup.ts';
import { type Check, fail, ok } from './check.ts';
import { checkClickHouse } from './clickhouse.ts';
import { checkHost } from './host.ts';
import { checkNats } from './nats.ts';
import { checkPostgres } from './postgres.ts';
import { checkRedis } from './redis.ts';
import { checkS3 } from './s3.ts';

async function natsChecks(session: Session): Promise<Check[]> {
  try {
    return await checkNats(await session.nats(), topologyOf(session));
  } catch (error) {
    return [fail('NATS', reasonOf(error), 'Start it with JetStream (-js), or set SLUICE_NATS_URL.')];
  }
}

/** What a sink needs beyond this machine. */
async function checkSink(sink: SinkSetting): Promise<Check[]> {
  if (sink.kind === 'postgres') return checkPostgres(sink.url);
  if (sink.kind === 's3') return checkS3(sink);
  return sink.kind === 'clickhouse' ? checkClickHouse(sink.url) : [];
}

async function examine(): Promise<Check[]> {
  let session: Session;
  try {
    session = new Session();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message.split('\n').map((line) => fail('settings', line, 'Mend or unset the variable.'));
  }
  try {
    const from = session.dev ? 'as the environment and .sluice/dev.json say' : 'as the environment says';
    const found = await Promise.all([
      checkRedis(session.redisUrls),
      natsChecks(session),
      ...session.config.sinks.map(checkSink),
    ]);
    return [ok('settings', from), ...checkHost(session.config), ...found.flat()];
  } finally {
    await session.close();
  }
}

/** Exit status 1 when anything failed; warnings do not count. */
async function run(flags: { json?: boolean }): Promise<void> {
  const checks = await examine();
  const failed = checks.filter(({ state }) => state === 'fail').length;
  const warned = checks.filter(({ state }) => state === 'warn').length;
  if (flags.json) printJson({ ok: failed === 0, checks });
  else {
    printLine(
      table(
        ['', 'WHAT', 'FOUND'],
        checks.map(({ state, what, found }) => [state, what, found]),
      ),
    );
    for (const { state, what, mend } of checks) if (mend) printLine(`\n${state}  ${what}\n      ${mend}`);
    printLine(`\n${checks.length} checks, ${warned} warnings, ${failed} failed.`);
  }
  if (failed > 0) process.exitCode = 1;
}

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check settings, this machine, Redis, NATS and the sinks, and say how to mend what is wrong')
    .option('--json', 'print JSON')
    .action(run);
}
