import { chmodSync, existsSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'commander';
import { type Config, isSet, loadConfig } from '../../config.ts';
import { nativeProblem, thisProgram } from '../../ingest/native.ts';
import { lockFolder } from '../../lib/files/folder-lock.ts';
import { createLog } from '../../lib/log.ts';
import { giveBackMemoryOfStart } from '../../lib/memory.ts';
import { checkPortIsFree, PortError } from '../../lib/port-check.ts';
import { untilStopped } from '../../lib/shutdown.ts';
import { STREAM_BYTES_DEV } from '../../limits.ts';
import { rateLimitOf } from '../../projects/project.ts';
import { UsageError } from '../command-error.ts';
import { printLine } from '../print.ts';
import { integerIn } from '../project/fields.ts';
import { DATA, DevStart, type DevSystem } from './system.ts';

type Flags = { port?: number; adminPort?: number; workers?: number; dataDir: string; reset?: boolean };

type Listener = { host: string; port: number };

const HINTED_FROM = 8090;
const HINTED_STEP = 10;

/** Makes a command line for any POSIX shell. It sends a new event each time it runs. */
const curlLine = ({ url, project }: DevSystem['file']): string =>
  `curl -i '${url}/api/${project.id}/envelope/?compat_key=${project.key}' --data-binary ` +
  `"$(printf '{}\\n{"type":"event"}\\n{"message":"hello from curl","level":"info"}')"`;

function banner({ file, project, processorAdminUrl }: DevSystem, config: Config): string {
  const limit = rateLimitOf(project, config.planLimits);
  const quota = project.quota === undefined ? 'no quota' : `quota ${project.quota}`;
  const { sinkDir } = file;
  return `
sluice is ready.

  DSN         ${file.project.dsn}
  project     ${project.id}, plan ${project.plan}, ${limit ?? 'no'} requests a minute, ${quota}
  endpoint    ${file.url}/api/${file.project.id}/envelope/
  stored in   ${sinkDir ? `${sinkDir} (one item a line, files ending in .ndjson)` : 'what SLUICE_SINK names'}
  look at     ${file.adminUrl} (ingest)  ${processorAdminUrl} (processor), metrics under /metrics

Send an event from another terminal:

  ${curlLine(file)}
${sinkDir ? `\nthen look at it:\n\n  cat $(find ${sinkDir} -name '*.ndjson')\n` : ''}
Ctrl-C stops everything; data stays in the data folder. Requests appear below.
`;
}

/**
 * Checks both ports before anything is started.
 * @throws Error with one line that names each port that cannot be used. If the only reason is that
 * ports are taken, the line suggests flags with free ports
 */
async function checkDevPorts(endpoints: Listener, admin: Listener): Promise<void> {
  const [ofEndpoints, ofAdmin] = [await whyNot(endpoints), await whyNot(admin)];
  const errors = [ofEndpoints, ofAdmin].filter((error) => error !== undefined);
  if (errors.length === 0) return;
  const why = errors.map(({ message }) => message).join('; ');
  if (!errors.every(({ isTaken }) => isTaken)) throw new Error(why);
  const port = await freePair(endpoints.host, admin.host);
  const adminFlag = ofAdmin ? ` --admin-port ${port + 1}` : '';
  throw new Error(`${why}; choose another: npm start -- --port ${port}${adminFlag}`);
}

async function whyNot({ host, port }: Listener): Promise<PortError | undefined> {
  try {
    await checkPortIsFree(host, port);
    return undefined;
  } catch (error) {
    if (error instanceof PortError) return error;
    throw error;
  }
}

/**
 * Finds two free ports that follow each other.
 * @returns the port for the endpoints; the next one is for the admin pages
 */
async function freePair(host: string, adminHost: string): Promise<number> {
  let port = HINTED_FROM;
  while ((await whyNot({ host, port })) || (await whyNot({ host: adminHost, port: port + 1 })))
    port += HINTED_STEP;
  return port;
}

async function run(flags: Flags): Promise<void> {
  const problem = nativeProblem(thisProgram('dev'));
  if (problem) throw new Error(problem);
  const { config } = loadConfig();
  const port = flags.port ?? config.port;
  // Other machines reach the endpoints only if the user sets SLUICE_HOST.
  const host = isSet('SLUICE_HOST') ? config.host : '127.0.0.1';
  const adminPort = flags.adminPort ?? config.adminPort ?? 8081;
  if (port === adminPort) throw new UsageError(`the admin port must differ from the port, both are ${port}`);
  const lock = await lockFolder(flags.dataDir, 'dev');
  if (!lock) throw new Error(`another sluice dev is running on ${flags.dataDir}`);
  const ports = [
    { host, port },
    { host: config.adminHost, port: adminPort },
  ] as const;
  await checkDevPorts(...ports).catch(async (error) => {
    await lock.release();
    throw error;
  });
  if (flags.reset)
    for (const name of DATA) rmSync(join(flags.dataDir, name), { recursive: true, force: true });
  mkdirSync(flags.dataDir, { recursive: true });
  // The modes are set because an earlier version made these files readable to everybody.
  for (const path of DATA.map((name) => join(flags.dataDir, name)).filter((path) => existsSync(path)))
    chmodSync(path, statSync(path).isDirectory() ? 0o700 : 0o600);
  const log = createLog(isSet('SLUICE_LOG_LEVEL') ? config.logLevel : 'warn', { process: 'dev' });
  const start = new DevStart(
    {
      port,
      host,
      adminPort,
      adminHost: config.adminHost,
      workers: flags.workers ?? (isSet('SLUICE_WORKERS') ? config.workers : 1),
      dataDir: flags.dataDir,
      redisUrl: isSet('SLUICE_REDIS_URL') ? config.redisUrls.join(',') : undefined,
      natsUrl: isSet('SLUICE_NATS_URL') ? config.natsUrls.join(',') : undefined,
      shards: config.streamShards,
      replicas: config.streamReplicas,
      streamMaxBytes: isSet('SLUICE_STREAM_MAX_BYTES') ? config.streamMaxBytes : STREAM_BYTES_DEV,
      natsCredsFile: config.natsCredsFile,
      tlsCaFile: config.tlsCaFile,
      publicUrl: isSet('SLUICE_PUBLIC_URL') ? config.publicUrl : undefined,
      sinks: isSet('SLUICE_SINK') ? config.sinks : undefined,
    },
    log,
    printLine,
  );
  const stopped = untilStopped();
  const starting = start.start();
  // A stop during the start makes `starting` fail. This failure is expected, so nobody is told.
  starting.catch(() => undefined);
  const system = await Promise.race([starting, stopped]);
  if (system) {
    printLine(banner(system, config));
    giveBackMemoryOfStart();
    await stopped;
  }
  printLine('stopping …');
  await start.stop();
  await starting.catch(() => undefined); // any server that was starting is stopped by now
  await lock.release();
}

export function devCommand(): Command {
  return new Command('dev')
    .description('the whole system on this machine: Redis, NATS, ingest and processor, with a demo project')
    .option('--port <n>', 'port of the endpoints (default: SLUICE_PORT or 8080)', integerIn(1, 65_535))
    .option(
      '--admin-port <n>',
      'port of metrics and health (default: SLUICE_ADMIN_PORT or 8081)',
      integerIn(1, 65_535),
    )
    .option('--workers <n>', 'ingest workers (default: SLUICE_WORKERS or 1)', integerIn(1, 256))
    .option('--data-dir <folder>', 'where everything is kept', '.sluice')
    .option('--reset', 'delete the data of earlier starts first')
    .action(run);
}
