/** The session of a command: settings, servers, and connections that close at its end. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { type Config, isSet, loadConfig, type SinkSetting } from '../config.ts';
import { isSentinelUrl } from '../ingest/limit/sentinel-url.ts';
import { createLog, type Log } from '../lib/log.ts';
import { STREAM_BYTES_DEV } from '../limits.ts';
import { firstToken } from '../management/api/tokens.ts';
import { ApiOperations } from '../management/api-client.ts';
import { Connections } from '../management/connections.ts';
import { DirectOperations } from '../management/direct.ts';
import type { Check } from '../management/doctor/check.ts';
import { NOT_SET_UP } from '../management/failure.ts';
import type { Operations } from '../management/operations.ts';
import { operatorName } from '../projects/audit-log.ts';
import { isMissingBucket } from '../projects/bucket.ts';
import type { NatsRole } from '../stream/nats.ts';
import type { TopologyOptions } from '../stream/topology.ts';
import { CommandError, UsageError } from './command-error.ts';
import { printJson } from './print.ts';

const devFileSchema = z.object({
  url: z.string(),
  adminUrl: z.string(),
  redisUrl: z.string(),
  natsUrl: z.string(),
  sinkDir: z.string().optional(),
  project: z.object({ id: z.string(), key: z.string(), dsn: z.string() }),
  pid: z.int(),
});
type RunningDev = z.infer<typeof devFileSchema>;

const DEV_FOLDER = '.sluice';

/**
 * Reads the file that the `sluice dev` of this folder wrote.
 * @param data the `--data-dir` of that `sluice dev`
 * @returns undefined when there is no such file, it cannot be read, or that `sluice dev` has ended
 */
export function findDev(folder: string, data = DEV_FOLDER): RunningDev | undefined {
  try {
    const dev = devFileSchema.parse(JSON.parse(readFileSync(resolve(folder, data, 'dev.json'), 'utf8')));
    return isAlive(dev.pid) ? dev : undefined;
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Data folder of a `sluice dev`, as the user named it with `--data-dir`. */
let namedDir: string | undefined;
export const useDataDir = (folder: string | undefined): void => {
  namedDir = folder;
};

/**
 * Reads the file of the `sluice dev` that runs on a data folder.
 * @throws UsageError when no `sluice dev` runs on the folder
 */
function devOn(folder: string): RunningDev {
  const dev = findDev(process.cwd(), folder);
  if (dev) return dev;
  throw new UsageError(`No sluice dev runs on ${folder}.`);
}

export class Session {
  readonly config: Config;
  /** Base URL of the DSNs and heartbeat URLs that are printed. */
  readonly publicUrl: string;
  /** Whether `publicUrl` is a guess, because no setting says where clients reach ingest. */
  readonly isUrlGuessed: boolean;
  readonly redisUrls: readonly string[];
  readonly natsUrls: readonly string[];
  /** The `sluice dev` from which a missing URL was taken. */
  readonly dev: RunningDev | undefined;
  /** The processor's sinks: those of the settings, else the folder of `dev`. */
  readonly sinks: readonly SinkSetting[];
  readonly log: Log;
  readonly connections: Connections;

  /** @throws ConfigError naming every wrong setting */
  constructor(role: NatsRole = 'cli') {
    const { config } = loadConfig();
    const isOwn = (name: Parameters<typeof isSet>[0]): boolean => namedDir === undefined && isSet(name);
    const own = { redis: isOwn('SLUICE_REDIS_URL'), nats: isOwn('SLUICE_NATS_URL') };
    const found = namedDir === undefined ? findDev(process.cwd()) : devOn(namedDir);
    const dev = own.redis && own.nats ? undefined : found;
    this.config = config;
    this.dev = dev;
    const urlsOf = (text: string) => (isSentinelUrl(text) ? [text] : text.split(','));
    this.redisUrls = own.redis || !dev ? config.redisUrls : urlsOf(dev.redisUrl);
    this.natsUrls = own.nats || !dev ? config.natsUrls : dev.natsUrl.split(',');
    this.publicUrl = isOwn('SLUICE_PUBLIC_URL') || !dev ? config.publicUrl : dev.url;
    this.isUrlGuessed = !dev && !isSet('SLUICE_PUBLIC_URL');
    const ofDev = dev?.sinkDir === undefined ? [] : [{ kind: 'ndjson' as const, dir: dev.sinkDir }];
    this.sinks = isOwn('SLUICE_SINK') || ofDev.length === 0 ? config.sinks : ofDev;
    // A command prints its errors as sentences. Log lines appear only if SLUICE_LOG_LEVEL is set.
    this.log = createLog(isSet('SLUICE_LOG_LEVEL') ? config.logLevel : 'silent', { process: 'command' });
    const { redisUrls, natsUrls, log } = this;
    const { natsCredsFile, redisPasswordFile, tlsCaFile } = config;
    const secrets = { natsCredsFile, redisPasswordFile, tlsCaFile };
    this.connections = new Connections({
      redisUrls,
      natsUrls,
      ...secrets,
      name: 'sluice command',
      role,
      log,
    });
  }

  /** The streams and buckets that the settings ask for. */
  get topology(): TopologyOptions {
    const { streamReplicas: replicas, streamShards: shards, streamMaxBytes } = this.config;
    // The streams of a `sluice dev` are meant to be small, so setup must not enlarge them.
    const isSmall = this.dev && !isSet('SLUICE_STREAM_MAX_BYTES');
    return { replicas, shards, maxBytes: isSmall ? STREAM_BYTES_DEV : streamMaxBytes };
  }

  /** The source of the settings, in words. */
  get origin(): string {
    if (!this.dev) return 'the environment says';
    return `the environment and ${namedDir ?? DEV_FOLDER}/dev.json say`;
  }

  close(): Promise<void> {
    return this.connections.close();
  }
}

const GUESS = 'a guess: set SLUICE_PUBLIC_URL to what clients reach';

/** Returns a remark to print beside a URL for clients when its host is a guess. */
export const remarkOnUrls = ({ isUrlGuessed }: Operations): string | undefined =>
  isUrlGuessed ? `(its host is ${GUESS})` : undefined;

/** Prints JSON with URLs for clients. A remark on the URLs goes to standard error. */
export function printUrls(operations: Operations, value: unknown): void {
  printJson(value);
  if (operations.isUrlGuessed) process.stderr.write(`sluice: The host in these URLs is ${GUESS}\n`);
}

/** Flags of the commands that can use the management API. */
export type ApiFlags = { api?: string };

function parseApiUrl(text: string): string {
  if (/^https?:\/\//.test(text) && URL.canParse(text)) return text.replace(/\/+$/, '');
  throw new InvalidArgumentError('It is an http or https URL, such as http://localhost:8081.');
}

export const withApi = (command: Command): Command =>
  command.option(
    '--api <url>',
    'ask the management API of an ingest in place of Redis and NATS, with the first token of SLUICE_ADMIN_TOKEN',
    parseApiUrl,
  );

/**
 * Gives one command its operations, and runs its `work`. With the flag `--api`, the operations ask
 * the management API; otherwise they work on Redis and NATS.
 */
export const withOperations = <T>(
  { api }: ApiFlags,
  work: (operations: Operations, session: Session) => Promise<T>,
): Promise<T> =>
  withSession((session) => {
    const { config, connections, publicUrl, isUrlGuessed, log } = session;
    if (api !== undefined)
      return work(
        new ApiOperations(api, firstToken([...config.adminTokens, ...config.viewerTokens])),
        session,
      );
    const { heartbeatPath, streamShards: shards } = config;
    // The checks of doctor take a while to load, and no other command needs them.
    const examine = async (): Promise<Check[]> =>
      (await import('../management/doctor/examine.ts')).examine(session);
    const parts = { connections, publicUrl, isUrlGuessed, heartbeatPath, shards, examine, log };
    return work(new DirectOperations(parts, operatorName()), session);
  });

/** Runs the work of one command, and closes its connections whatever happens. */
export async function withSession<T>(work: (session: Session) => Promise<T>, role?: NatsRole): Promise<T> {
  const session = new Session(role);
  try {
    return await work(session);
  } catch (error) {
    if (!isMissingBucket(error)) throw error;
    throw new CommandError(NOT_SET_UP);
  } finally {
    await session.close();
  }
}
