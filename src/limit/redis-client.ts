/**
 * A server or a cluster behind one face, with ioredis set up so that nothing is queued while it is away, nothing is sent again,
 * and every promise settles. What away means and what follows from it is decided in redis.ts.
 */
import { Cluster, type ClusterOptions, Redis, type RedisOptions } from 'ioredis';
import { REDIS_CONNECT_MS_MAX, REDIS_REPLY_MS_MAX } from '../limits.ts';
import { SCRIPT_NAMES, type ScriptName, scriptSource } from './scripts.ts';

/** One script argument; numbers are sent in decimal. */
export type ScriptArg = string | number;
export type ScriptCall = { script: ScriptName; key: string; args: readonly ScriptArg[] };
/** One of the two is null or undefined. */
export type CallResult = readonly [error: Error | null, reply: unknown];

export class RedisClient {
  readonly #client: Redis | Cluster;

  /** `retryMs`: how long to wait before each attempt to connect. */
  constructor(urls: readonly string[], retryMs: () => number) {
    this.#client = createClient(urls, retryMs);
    for (const name of SCRIPT_NAMES)
      this.#client.defineCommand(name, { lua: scriptSource(name), numberOfKeys: 1 });
  }

  on(events: { error: (error: Error) => void; ready: () => void; close: () => void }): void {
    this.#client.on('error', events.error);
    this.#client.on('ready', events.ready);
    this.#client.on('close', events.close);
  }

  get isCluster(): boolean {
    return this.#client instanceof Cluster;
  }

  get ready(): boolean {
    return this.#client.status === 'ready';
  }

  /** Starts to connect, and goes on trying until {@link close}. */
  connect(): void {
    this.#client.connect().catch(() => undefined);
  }

  /** Rejects when no answer came within REDIS_REPLY_MS_MAX. */
  async ping(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('no reply to PING')), REDIS_REPLY_MS_MAX);
    });
    await Promise.race([this.#client.ping(), late]).finally(() => clearTimeout(timer));
  }

  /**
   * Breaks the connection to a server, so that nothing written to it is waited for; it is made again.
   * A cluster's nodes drop their own connections (socketTimeout): one that hangs says nothing about the others.
   */
  drop(): void {
    const client = this.#client;
    if (client instanceof Redis && (client.status === 'ready' || client.status === 'connect'))
      client.disconnect(true);
  }

  close(): void {
    this.#client.disconnect();
  }

  /** Writes all calls in one go. In a cluster ioredis groups them by node; alone they are one pipeline. */
  async send(calls: readonly ScriptCall[]): Promise<readonly CallResult[]> {
    const client = this.#client;
    if (client instanceof Redis) {
      const pipeline = client.pipeline();
      for (const call of calls) run(pipeline, call);
      return (await pipeline.exec()) ?? [];
    }
    return Promise.all(
      calls.map(async (call): Promise<CallResult> => {
        try {
          return [null, await run(client, call)];
        } catch (error) {
          return [error as Error, undefined];
        }
      }),
    );
  }
}

/** ioredis adds a method per defined script, which its types cannot know. */
function run(target: object, { script, key, args }: ScriptCall): unknown {
  return (target as Record<ScriptName, (...args: ScriptArg[]) => unknown>)[script](key, ...args);
}

function createClient(urls: readonly string[], retryMs: () => number): Redis | Cluster {
  const common = {
    protocol: 2,
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    // The deadline is redis.ts's; this only settles promises that a broken connection left behind, and leaves room for a stall.
    commandTimeout: 10 * REDIS_REPLY_MS_MAX,
    connectTimeout: REDIS_CONNECT_MS_MAX,
    // end() alone waits for the other side, and a stopped server never answers.
    disconnectTimeout: 1,
    // The breaker's own PING sees LOADING.
    enableReadyCheck: false,
  } satisfies RedisOptions;
  const [first] = urls;
  if (urls.length === 1 && first !== undefined)
    return new Redis(first, { ...common, enableOfflineQueue: false, retryStrategy: retryMs });
  const { username, password, protocol } = new URL(first ?? '');
  const redisOptions: ClusterOptions['redisOptions'] = {
    ...common,
    // One pipeline is in flight per node: a node that hangs is noticed here, and its connection made anew.
    commandTimeout: 2 * REDIS_REPLY_MS_MAX,
    socketTimeout: 2 * REDIS_REPLY_MS_MAX,
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(protocol === 'rediss:' && { tls: {} }),
  };
  return new Cluster([...urls], {
    redisOptions,
    lazyConnect: true,
    enableOfflineQueue: false,
    enableReadyCheck: false,
    enableAutoPipelining: true,
    clusterRetryStrategy: retryMs,
    slotsRefreshTimeout: REDIS_CONNECT_MS_MAX,
    // 0 turns off ioredis' repetition of commands that may have run.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
  });
}
