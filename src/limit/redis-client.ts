/**
 * A server or a cluster behind one face, with ioredis set up so that nothing is queued while it is away, nothing is sent again,
 * and every promise settles. What away means and what follows from it is decided in redis.ts.
 */
import { Decoder, Encoder } from '@msgpack/msgpack';
import { Cluster, type ClusterOptions, Redis, type RedisOptions, ReplyError } from 'ioredis';
import { REDIS_CONNECT_MS_MAX } from '../limits.ts';
import { batchSource, keysOf, SCRIPT_NAMES, type ScriptName, scriptSource } from './scripts.ts';

/** One script argument; numbers are sent in decimal. */
export type ScriptArg = string | number;
/** All keys of a call belong to the same project or token. */
export type ScriptCall = {
  script: ScriptName;
  keys: readonly [string, ...string[]];
  args: readonly ScriptArg[];
};
/** Calls that one server runs in one go: some 10 µs each, in which it does nothing else. */
const REDIS_BATCH_MAX = 64;
/** One of the two is null or undefined. */
export type CallResult = readonly [error: Error | null, reply: unknown];

export type RedisClientOptions = {
  urls: readonly string[];
  /** How long an answer is waited for. */
  replyMs: number;
  /** How long to wait before each attempt to connect. */
  retryMs(): number;
};

export class RedisClient {
  readonly #client: Redis | Cluster;
  readonly #replyMs: number;
  /** Commands sent, by script; one may carry the calls of many projects. */
  readonly sent = Object.fromEntries(SCRIPT_NAMES.map((name) => [name, 0])) as Record<ScriptName, number>;

  constructor(options: RedisClientOptions) {
    this.#replyMs = options.replyMs;
    this.#client = createClient(options);
    for (const name of SCRIPT_NAMES) {
      this.#client.defineCommand(name, { lua: scriptSource(name), numberOfKeys: keysOf(name) });
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

  /** Rejects when no answer came within `replyMs`, or REDIS_CONNECT_MS_MAX: connecting has time for another one. */
  async ping(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new Error('no reply to PING')),
        Math.min(this.#replyMs, REDIS_CONNECT_MS_MAX),
      );
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
   * share a command, with their arguments and results in MessagePack: commands, arguments and replies cost both sides more than what
   * the script does.
   */
  async send(calls: readonly ScriptCall[]): Promise<readonly CallResult[]> {
    const client = this.#client;
    if (client instanceof Redis) {
      const batches = batchesOf(calls);
      for (const { script } of batches) this.sent[script]++;
      const replies = await runBatches(client, batches);
      const results = new Array<CallResult>(calls.length);
      batches.forEach((batch, at) => {
        place(results, batch, replies[at] ?? [new Error('no reply'), undefined]);
      });
      return results;
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

/** Calls of one script, and where the results of each belong. */
type Batch = { script: ScriptName; calls: ScriptCall[]; places: number[] };

const batchName = (script: ScriptName): string => `${script}Batch`;
const encoder = new Encoder();
const decoder = new Decoder();

/** Calls of one script together, at most REDIS_BATCH_MAX, in the order in which they came. */
function batchesOf(calls: readonly ScriptCall[]): Batch[] {
  const open = new Map<ScriptName, Batch>();
  const batches: Batch[] = [];
  calls.forEach((call, at) => {
    const batch = open.get(call.script);
    if (batch && batch.calls.length < REDIS_BATCH_MAX) {
      batch.calls.push(call);
      batch.places.push(at);
    } else {
      const begun = { script: call.script, calls: [call], places: [at] };
      open.set(call.script, begun);
      batches.push(begun);
    }
  });
  return batches;
}

/** A pipeline joins the writes of several commands; for one it only costs. */
async function runBatches(client: Redis, batches: readonly Batch[]): Promise<readonly CallResult[]> {
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

function runBatch(target: object, { script, calls }: Batch): unknown {
  const [first, second] = calls as [ScriptCall, ScriptCall?];
  if (!second) return run(target, first);
  const keys = calls.flatMap((call) => call.keys);
  const args = Buffer.from(encoder.encode(calls.map((call) => call.args)));
  return (target as Record<string, (...args: (ScriptArg | Buffer)[]) => unknown>)[
    `${batchName(script)}Buffer`
  ]?.(keys.length, ...keys, args);
}

/** Writes the results of a batch's calls to their places. */
function place(results: CallResult[], { calls, places }: Batch, [error, reply]: CallResult): void {
  const replies = error || calls.length === 1 ? undefined : (decoder.decode(reply as Buffer) as unknown[]);
  places.forEach((at, i) => {
    const own = replies ? replies[i] : reply;
    results[at] = isFault(own) ? [new ReplyError(own.err), undefined] : [error, own];
  });
}

/** In a batch's reply: this call failed. */
const isFault = (reply: unknown): reply is { err: string } =>
  typeof reply === 'object' && reply !== null && 'err' in reply;

/** ioredis adds a method per defined script, which its types cannot know. */
function run(target: object, { script, keys, args }: ScriptCall): unknown {
  return (target as Record<ScriptName, (...args: ScriptArg[]) => unknown>)[script](...keys, ...args);
}

function createClient({ urls, replyMs, retryMs }: RedisClientOptions): Redis | Cluster {
  const connectMs = Math.max(REDIS_CONNECT_MS_MAX, replyMs);
  const common = {
    protocol: 2,
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    // The deadline is redis.ts's; this only settles promises that a broken connection left behind, and leaves room for a stall.
    commandTimeout: 10 * replyMs,
    connectTimeout: connectMs,
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
    commandTimeout: 2 * replyMs,
    socketTimeout: 2 * replyMs,
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
    slotsRefreshTimeout: connectMs,
    // 0 turns off ioredis' repetition of commands that may have run.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
  });
}
