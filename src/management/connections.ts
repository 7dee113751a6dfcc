/** Connections of a command or the management API to NATS and Redis, opened at the first use. */

import type { LimitRedis } from '../ingest/limit/redis.ts';
import { systemClock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { NatsLink, type NatsRole } from '../stream/nats.ts';
import { OperationError, reasonOf } from './operation-error.ts';

/** Longest wait for a reply of Redis, which is often far from an operator. */
const REDIS_MS_MAX = 2_000;

type ConnectionOptions = {
  redisUrls: readonly string[];
  natsUrls: readonly string[];
  natsCredsFile: string | undefined;
  redisPasswordFile?: string | undefined;
  tlsCaFile?: string | undefined;
  /** Name of the connection in the connection list of nats-server. */
  name: string;
  role?: NatsRole;
  log: Log;
};

/** Hides the password in a URL. A password may contain an @, or be in the query (PostgreSQL). */
export const withoutPassword = (url: string): string =>
  url.replace(/\/\/[^/?]*@/, '//…@').replace(/([?&]\w*(?:password|secret)\w*=)[^&]*/gi, '$1…');

export class Connections {
  readonly #options: ConnectionOptions;
  #nats: Promise<NatsLink> | undefined;
  /** The connection to NATS; undefined until it is open. */
  #link: NatsLink | undefined;
  #redis: Promise<LimitRedis> | undefined;

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  /** @throws OperationError when NATS does not answer */
  async nats(): Promise<NatsLink> {
    const { natsUrls: urls, natsCredsFile: credsFile, tlsCaFile: caFile, name, role, log } = this.#options;
    this.#nats ??= NatsLink.connect({ urls, credsFile, caFile, name, role, log });
    const where = `NATS cannot be reached at ${urls.map(withoutPassword).join(', ')} (SLUICE_NATS_URL)`;
    const link = await this.#nats.catch((error: unknown) => {
      this.#nats = undefined; // the next call tries again
      throw new OperationError('unavailable', `${where}: ${reasonOf(error)}.`);
    });
    this.#link = link;
    if (!link.connected) throw new OperationError('unavailable', `${where}.`);
    return link;
  }

  /** @throws OperationError when Redis does not answer */
  async redis(): Promise<LimitRedis> {
    const { redisUrls: urls } = this.#options;
    const where = `Redis cannot be reached at ${urls.map(withoutPassword).join(', ')} (SLUICE_REDIS_URL)`;
    this.#redis ??= this.#connectRedis();
    const redis = await this.#redis.catch((error: unknown) => {
      this.#redis = undefined; // the next call tries again; files that were missing may be there
      throw new OperationError('unavailable', `${where}: ${reasonOf(error)}.`);
    });
    if (redis.available) return redis;
    throw new OperationError('unavailable', `${where}.`);
  }

  async #connectRedis(): Promise<LimitRedis> {
    const { redisUrls: urls, redisPasswordFile: passwordFile, tlsCaFile: caFile, log } = this.#options;
    // ioredis takes a tenth of a second to load, and most commands and the processor need no Redis.
    // So it is loaded at the first use.
    const { LimitRedis: Redis } = await import('../ingest/limit/redis.ts');
    const redis = new Redis({
      urls,
      passwordFile,
      caFile,
      log,
      clock: systemClock,
      replyMs: REDIS_MS_MAX,
    });
    await redis.connect();
    return redis;
  }

  /**
   * Closes the open connections. An attempt to connect to NATS that is still under way cannot be
   * cancelled, and may last long while the broker hangs. So `close` does not wait for the attempt;
   * the connection is closed when the attempt succeeds.
   */
  async close(): Promise<void> {
    if (!this.#link)
      this.#nats?.then(
        (link) => link.close(),
        () => undefined,
      );
    await Promise.allSettled([this.#redis?.then((redis) => redis.close()), this.#link?.close()]);
  }
}
