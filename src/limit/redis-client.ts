/**
 * A server or a cluster behind one face, with ioredis set up so that nothing is queued while it is away, nothing is sent again,
 * and every promise settles. What away means and what follows from it is decided in redis.ts.
 */
import { Cluster, type ClusterOptions, Redis, type RedisOptions } from 'ioredis';
import { REDIS_CONNECT_MS_MAX, REDIS_REPLY_MS_MAX } from '../limits.ts';
import { batchSource, SCRIPT_NAMES, type ScriptName, scriptSource } from './scripts.ts';

/** One script argument; numbers are sent in decimal. */
export type ScriptArg = string | number;
export type ScriptCall = { script: ScriptName; key: string; args: readonly ScriptArg[] };
/** Calls that one server runs in one go: some 10 µs each, in which it does nothing else. */
const REDIS_BATCH_MAX = 64;
/** One of the two is null or undefined. */
export type CallResult = readonly [error: Error | null, reply: unknown];

export class RedisClient {
  readonly #client: Redis | Cluster;
  /** Commands sent, by script; one may carry the calls of many projects. */
  readonly sent = Object.fromEntries(SCRIPT_NAMES.map((name) => [name, 0])) as Record<ScriptName, number>;

  /** `retryMs`: how long to wait before each attempt to connect. */
  constructor(urls: readonly string[], retryMs: () => number) {
    this.#client = createClient(urls, retryMs);
    for (const name of SCRIPT_NAMES) {
      this.#client.defineCommand(name, { lua: scriptSource(name), numberOfKeys: 1 });
      this.#client.defineCommand(batchName(name), { lua: batchSource(name) });
    }
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

  /**
   * Writes all calls in one go. In a cluster ioredis groups them by node. One server gets one pipeline, in which those of one script
   * share a command: it costs both sides more than what the script does.
   */
  async send(calls: readonly ScriptCall[]): Promise<readonly CallResult[]> {
    const client = this.#client;
    if (client instanceof Redis) {
      const batches = batchesOf(calls);
      for (const [first] of batches) this.sent[(first as ScriptCall).script]++;
      return inOrder(calls, batches, await runBatches(client, batches));
    }
    for (const { script } of calls) this.sent[script]++;
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

const batchName = (script: ScriptName): string => `${script}Batch`;

/** Calls of one script together, at most REDIS_BATCH_MAX, in the order in which they came. */
function batchesOf(calls: readonly ScriptCall[]): ScriptCall[][] {
  const open = new Map<ScriptName, ScriptCall[]>();
  const batches: ScriptCall[][] = [];
  for (const call of calls) {
    const batch = open.get(call.script);
    if (batch && batch.length < REDIS_BATCH_MAX) batch.push(call);
    else {
      const begun = [call];
      open.set(call.script, begun);
      batches.push(begun);
    }
  }
  return batches;
}

/** A pipeline joins the writes of several commands; for one it only costs. */
async function runBatches(
  client: Redis,
  batches: readonly (readonly ScriptCall[])[],
): Promise<readonly CallResult[]> {
  const [only, second] = batches;
  if (only && !second)
    return [
      await (runBatch(client, only) as Promise<unknown>).then(
        (reply): CallResult => [null, reply],
        (error: Error): CallResult => [error, undefined],
      ),
    ];
  const pipeline = client.pipeline();
  for (const batch of batches) runBatch(pipeline, batch);
  return (await pipeline.exec()) ?? [];
}

function runBatch(target: object, batch: readonly ScriptCall[]): unknown {
  const [first, second] = batch as [ScriptCall, ScriptCall?];
  if (!second) return run(target, first);
  const keys = batch.map(({ key }) => key);
  const args = batch.flatMap((call) => [call.args.length, ...call.args]);
  return (target as Record<string, (...args: ScriptArg[]) => unknown>)[batchName(first.script)]?.(
    keys.length,
    ...keys,
    ...args,
  );
}

/** The results of the batches, call by call. */
function inOrder(
  calls: readonly ScriptCall[],
  batches: readonly ScriptCall[][],
  replies: readonly CallResult[],
): CallResult[] {
  const results = new Map<ScriptCall, CallResult>();
  batches.forEach((batch, at) => {
    const [error, reply] = replies[at] ?? [new Error('no reply'), undefined];
    batch.forEach((call, i) => {
      const own = batch.length === 1 || error ? reply : (reply as unknown[])[i];
      results.set(call, own instanceof Error ? [own, undefined] : [error, own]);
    });
  });
  return calls.map((call) => results.get(call) as CallResult);
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
