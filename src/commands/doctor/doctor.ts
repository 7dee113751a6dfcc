import { Command } from 'commander';
import { ConfigError, loadConfig, type SinkSetting } from '../../config.ts';
import { BUCKETS, wantedStreams } from '../../stream/topology.ts';
import { ingestProblems } from '../ingest-settings.ts';
import { printJson, printLine, table } from '../print.ts';
import { Session } from '../session.ts';
import { topologyOf } from '../setup.ts';
import { type Check, findingOf } from './check.ts';
import * as checks from './checks.ts';
import { clickhouse } from './clickhouse.ts';
import { postgres } from './postgres.ts';
import { s3 } from './s3.ts';

/** Checks NATS. The streams are asked about one after the other, because there may be hundreds. */
async function natsChecks(session: Session): Promise<Check[]> {
  const link = await session.connections.nats().catch(() => undefined);
  const server = await checks.nats(() => session.connections.nats());
  if (!link) return server;
  const jetStream = await checks.jetStream(link);
  if (jetStream.some(({ fail }) => fail)) return [...server, ...jetStream];
  const topology = topologyOf(session);
  const found = [server, jetStream, await checks.natsClock(link)];
  for (const wanted of wantedStreams(topology)) {
    found.push(await checks.stream(link, wanted));
    if (wanted.consumer) found.push(await checks.consumer(link, wanted));
  }
  found.push(await checks.leaders(link, wantedStreams(topology)));
  found.push(await checks.droppedLetters(link));
  for (const name of BUCKETS) found.push(await checks.bucket(link, name, topology.replicas));
  return found.flat();
}

function sinkChecks(sink: SinkSetting): Promise<Check[]> {
  switch (sink.kind) {
    case 'ndjson':
      return checks.ndjson(sink.dir);
    case 's3':
      return s3(sink);
    case 'clickhouse':
      return clickhouse(sink.url);
    case 'postgres':
      return postgres(sink.url);
  }
}

/**
 * Checks the settings that only ingest needs. Faults in them are warnings, because other programs
 * start without these settings.
 */
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

async function examine(): Promise<Check[]> {
  let session: Session;
  try {
    session = new Session();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message
      .split('\n')
      .map((found) => ({ what: 'settings', found, fail: true, fix: 'Correct or unset the variable.' }));
  }
  try {
    const { config, redisUrls, sinks } = session;
    const clustered = redisUrls.length > 1;
    const publicUrl: Check = {
      what: 'SLUICE_PUBLIC_URL',
      found: session.publicUrl,
      warn: session.isUrlGuessed && `not set: DSNs name ${session.publicUrl}, which is a guess`,
      fix: 'Set it to the address that clients reach, such as https://ingest.example.com.',
    };
    const found = await Promise.all([
      [{ what: 'settings', found: `as ${session.origin}` }, ...ingestSettings(), publicUrl],
      checks.machine(config),
      checks.spool(config),
      ...redisUrls.map((url) => checks.redis(session.redisAccess([url]), { clustered })),
      natsChecks(session),
      ...sinks.map(sinkChecks),
    ]);
    return found.flat();
  } finally {
    await session.close();
  }
}

/** Prints the findings. The exit status is 1 when a check failed; warnings do not change it. */
async function run(flags: { json?: boolean }): Promise<void> {
  const findings = (await examine()).map(findingOf);
  const failed = findings.filter(({ state }) => state === 'fail').length;
  const warned = findings.filter(({ state }) => state === 'warn').length;
  if (flags.json) printJson({ ok: failed === 0, checks: findings });
  else {
    printLine(
      table(
        ['', 'WHAT', 'FOUND'],
        findings.map(({ state, what, found }) => [state, what, found]),
      ),
    );
    for (const { state, what, fix } of findings) if (fix) printLine(`\n${state}  ${what}\n      ${fix}`);
    printLine(`\n${findings.length} checks, ${warned} warnings, ${failed} failed.`);
  }
  if (failed > 0) process.exitCode = 1;
}

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check settings, this machine, Redis, NATS and the sinks, and say how to fix what is wrong')
    .option('--json', 'print JSON')
    .action(run);
}
