/**
 * The parts of a command: settings, the servers that they name, and connections that close when it
 * is done.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { type Config, isSet, loadConfig } from '../config.ts';
import { systemClock } from '../lib/clock.ts';
import { createLog, type Log } from '../lib/log.ts';
import { LimitRedis } from '../limit/redis.ts';
import type { RedisAccess } from '../limit/redis-client.ts';
import { isMissingBucket } from '../projects/bucket.ts';
import { NatsLink } from '../stream/nats.ts';

/** Why a command could not do its task: one sentence, shown without a stack; exit status 1. */
export class CommandError extends Error {
  override name = 'CommandError';
}

/** A request that makes no sense, whatever the servers hold; exit status 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

const devFileSchema = z.object({
  url: z.string(),
  adminUrl: z.string(),
  redisUrl: z.string(),
  natsUrl: z.string(),
  sinkDir: z.string(),
  project: z.object({ id: z.string(), key: z.string(), dsn: z.string() }),
  pid: z.int(),
});
export type RunningDev = z.infer<typeof devFileSchema>;

/** What the `sluice dev` of this folder says of itself, while its process lives. */
export function findDev(folder: string): RunningDev | undefined {
  try {
    const dev = devFileSchema.parse(JSON.parse(readFileSync(join(folder, '.sluice', 'dev.json'), 'utf8')));
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

/** A user at a terminal, often far from Redis, has more patience than a request. */
const REDIS_MS_MAX = 2_000;

export class Session {
  readonly config: Config;
  /** Base of the DSNs and heartbeat URLs that are printed. */
  readonly publicUrl: string;
  readonly redisUrls: readonly string[];
  readonly natsUrls: readonly string[];
  /** The development system that a missing URL was taken from. */
  readonly dev: RunningDev | undefined;
  readonly log: Log;
  #nats: Promise<NatsLink> | undefined;
  #redis: Promise<LimitRedis> | undefined;

  /** @throws ConfigError naming every wrong setting */
  constructor() {
    const { config } = loadConfig();
    const own = { redis: isSet('SLUICE_REDIS_URL'), nats: isSet('SLUICE_NATS_URL') };
    const dev = own.redis && own.nats ? undefined : findDev(process.cwd());
    this.config = config;
    this.dev = dev;
    this.redisUrls = own.redis || !dev ? config.redisUrls : dev.redisUrl.split(',');
    this.natsUrls = own.nats || !dev ? config.natsUrls : dev.natsUrl.split(',');
    this.publicUrl = isSet('SLUICE_PUBLIC_URL') || !dev ? config.publicUrl : dev.url;
    // A command's own errors are sentences; its log lines appear only on request.
    this.log = createLog(isSet('SLUICE_LOG_LEVEL') ? config.logLevel : 'silent', { process: 'command' });
  }

  /** @throws CommandError when NATS does not answer */
  nats(): Promise<NatsLink> {
    this.#nats ??= this.#connectNats();
    return this.#nats;
  }

  /** @throws CommandError when Redis does not answer */
  redis(): Promise<LimitRedis> {
    this.#redis ??= this.#connectRedis();
    return this.#redis;
  }

  /** How these servers of Redis are entered. */
  redisAccess<Urls extends readonly string[]>(urls: Urls): RedisAccess & { urls: Urls } {
    const { redisPasswordFile: passwordFile, tlsCaFile: caFile } = this.config;
    return { urls, passwordFile, caFile, log: this.log };
  }

  async #connectNats(): Promise<NatsLink> {
    const { natsCredsFile: credsFile, tlsCaFile: caFile } = this.config;
    try {
      return await NatsLink.connect({
        urls: this.natsUrls,
        credsFile,
        caFile,
        name: 'sluice command',
        log: this.log,
      });
    } catch (error) {
      const where = this.natsUrls.map(withoutPassword).join(', ');
      throw new CommandError(`NATS cannot be reached at ${where} (SLUICE_NATS_URL): ${reasonOf(error)}.`);
    }
  }

  async #connectRedis(): Promise<LimitRedis> {
    const access = this.redisAccess(this.redisUrls);
    const redis = new LimitRedis({ ...access, clock: systemClock, replyMs: REDIS_MS_MAX });
    await redis.connect();
    if (redis.available) return redis;
    await redis.close();
    const where = this.redisUrls.map(withoutPassword).join(', ');
    throw new CommandError(`Redis cannot be reached at ${where} (SLUICE_REDIS_URL).`);
  }

  /** Closes what was opened; a connection that failed has nothing to close. */
  async close(): Promise<void> {
    const closing = [this.#redis, this.#nats].map(async (connection) => (await connection)?.close());
    await Promise.allSettled(closing);
  }
}

/** Runs one command's work, and closes its connections whatever happens. */
export async function withSession<T>(work: (session: Session) => Promise<T>): Promise<T> {
  const session = new Session();
  try {
    return await work(session);
  } catch (error) {
    if (!isMissingBucket(error)) throw error;
    throw new CommandError('JetStream lacks a stream or bucket of sluice: run sluice setup, then try again.');
  } finally {
    await session.close();
  }
}

export const withoutPassword = (url: string): string => url.replace(/\/\/[^@/]*@/, '//…@');

/** The sentence of an error, and of what lies beneath it, without the final full stop. */
export function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message || error.name : String(error);
  const cause = error instanceof Error && error.cause !== undefined ? `: ${reasonOf(error.cause)}` : '';
  return `${message.replace(/\.$/, '')}${cause}`;
}
