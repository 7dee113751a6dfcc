/**
 * One client for a server or a cluster. ioredis is set up so that nothing is queued while Redis is
 * away, nothing is sent again, and every promise settles. redis.ts decides what counts as away, and
 * what follows.
 */
import { createSecureContext } from 'node:tls';
import { Cluster, type ClusterOptions, Redis, type RedisOptions } from 'ioredis';
import { assert } from '../../lib/assert.ts';
import { ChangingFile } from '../../lib/files/setting-files.ts';
import { orLate } from '../../lib/late.ts';
import type { Log } from '../../lib/log.ts';
import { REDIS_CONNECT_MS_MAX } from '../../limits.ts';
import { type CallResult, runBatch, type ScriptArg, type ScriptCall } from './redis-batch.ts';
import { type RedisLogin, sentinelOptions, watchSwitches } from './redis-sentinel.ts';
import { keysOf, SCRIPT_NAMES, type ScriptName, scriptSource } from './scripts.ts';
import { isSentinelUrl } from './sentinel-url.ts';

/**
 * Most calls that one server runs in one command. Each call takes some 10 µs, in which the server
 * does nothing else.
 */
const CALLS_PER_COMMAND_MAX = 64;

/**
 * Addresses of Redis, and the files with password and certificates, which are read again at each
 * attempt to connect.
 */
export type RedisAccess = {
  /** One URL: a server, or sentinels that name the server. Several URLs: nodes of a cluster. */
  urls: readonly string[];
  passwordFile?: string | undefined;
  /** Certificates of the authorities that a server with TLS is checked against. */
  caFile?: string | undefined;
  log: Log;
};

type RedisClientOptions = RedisAccess & {
  /** Longest time to wait for an answer, in ms. */
  replyMs: number;
  /** Returns how long to wait before the next attempt to connect, in ms. */
  retryMs(): number;
};

export class RedisClient {
  readonly #client: Redis | Cluster;
  readonly #secrets: Secrets;
  readonly #replyMs: number;
  readonly #url: string;
  #stopWatching: (() => void) | undefined;
  /**
   * Number of commands sent, by script. A command counts once for each script that it has calls of;
   * the calls may be of many projects.
   */
  readonly sent = Object.fromEntries(SCRIPT_NAMES.map((name) => [name, 0])) as Record<ScriptName, number>;

  constructor(options: RedisClientOptions) {
    this.#replyMs = options.replyMs;
    this.#url = options.urls[0] ?? '';
    this.#secrets = new Secrets(options);
    this.#client = createClient(options, this.#secrets);
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
    if (isSentinelUrl(this.#url))
      this.#stopWatching = watchSwitches(this.#url, this.#secrets, () => this.drop());
  }

  /**
   * Sends a PING; in a cluster one to each node, which also makes a connection to each. Rejects
   * when no answer came within `replyMs` or REDIS_CONNECT_MS_MAX, whichever is shorter. So there is
   * time for another PING while the owner waits for the first connection.
   */
  async ping(): Promise<void> {
    const client = this.#client;
    const nodes = client instanceof Cluster ? client.nodes('master') : [client];
    let answers = 0;
    let reason = new Error('no reply to PING');
    const pings = nodes.map((node) =>
      node.ping().then(
        () => {
          answers++;
        },
        (error: Error) => {
          reason = error;
        },
      ),
    );
    await orLate(Promise.all(pings), Math.min(this.#replyMs, REDIS_CONNECT_MS_MAX), undefined);
    if (answers === 0) throw reason;
  }

  /**
   * Breaks the connection to a server, so that nothing waits for what was written to it, and
   * connects again. A cluster's nodes drop their own connections (socketTimeout), because a node
   * that hangs says nothing about the others.
   */
  drop(): void {
    const client = this.#client;
    if (client instanceof Redis && (client.status === 'ready' || client.status === 'connect'))
      client.disconnect(true);
  }

  close(): void {
    this.#stopWatching?.();
    this.#client.disconnect();
  }

  /**
   * Sends calls and resolves with their results, in order. A single server gets commands of up to
   * CALLS_PER_COMMAND_MAX calls. In a cluster each call is a command of its own.
   */
  send(calls: readonly ScriptCall[]): Promise<readonly CallResult[]> {
    const client = this.#client;
    for (const { script, keys } of calls)
      assert(keys.length >= keysOf(script), 'a call has the keys of its script');
    if (client instanceof Redis) {
      const commands: Promise<readonly CallResult[]>[] = [];
      for (let at = 0; at < calls.length; at += CALLS_PER_COMMAND_MAX) {
        const some =
          calls.length <= CALLS_PER_COMMAND_MAX ? calls : calls.slice(at, at + CALLS_PER_COMMAND_MAX);
        for (const script of new Set(some.map((call) => call.script))) this.sent[script]++;
        commands.push(some.length === 1 ? runEach(client, some) : runBatch(client, some));
      }
      const [only, second] = commands;
      return only && !second ? only : Promise.all(commands).then((all) => all.flat());
    }
    for (const { script } of calls) this.sent[script]++;
    return runEach(client, calls);
  }
}

function runEach(client: Redis | Cluster, calls: readonly ScriptCall[]): Promise<readonly CallResult[]> {
  return Promise.all(
    calls.map(async ({ script, keys, args }): Promise<CallResult> => {
      try {
        return (await commandOf(client, script, keys.length)(...keys, ...args)) as readonly unknown[];
      } catch (error) {
        return error as Error;
      }
    }),
  );
}

type DefinedCommand = (...args: ScriptArg[]) => Promise<unknown>;

/**
 * Returns the method that ioredis adds for a script. The types of ioredis do not know such methods.
 * There is one method for each number of keys: in a cluster ioredis finds the node by the first
 * argument, which must be a key.
 */
function commandOf(client: Redis | Cluster, script: ScriptName, numberOfKeys: number): DefinedCommand {
  const name = `${script}${numberOfKeys}`;
  const commands = client as unknown as Record<string, DefinedCommand>;
  if (!commands[name]) client.defineCommand(name, { lua: scriptSource(script), numberOfKeys });
  return (commands[name] as DefinedCommand).bind(client);
}

/** Returns the password without the line end that editors and `echo` put at the end of a file. */
function passwordOf(content: Buffer): string {
  const password = content.toString().replace(/\r?\n$/, '');
  if (password === '') throw new Error('the file is empty');
  return password;
}

function authorityOf(ca: Buffer): Buffer {
  createSecureContext({ ca }); // throws where there is no certificate
  return ca;
}

/** Password and certificates, which ioredis reads anew at each attempt to connect. */
class Secrets implements RedisLogin {
  readonly #password: ChangingFile<string> | undefined;
  readonly tls: { readonly ca?: Buffer } | undefined;

  constructor({ urls, passwordFile, caFile, log }: RedisAccess) {
    this.#password = passwordFile === undefined ? undefined : new ChangingFile(passwordFile, passwordOf, log);
    if (!urls[0]?.startsWith('rediss')) return;
    this.tls = {};
    if (caFile === undefined) return;
    const ca = new ChangingFile(caFile, authorityOf, log);
    this.tls = {
      get ca() {
        return ca.read();
      },
    };
  }

  /**
   * Makes a client read the password from its file. ioredis copies its options for each client, and
   * looks at the copy in each attempt to connect, so the copy is changed.
   */
  keepIn({ options }: Redis): void {
    const file = this.#password;
    if (!file) return;
    const password = { enumerable: true, get: () => file.read() };
    Object.defineProperty(options, 'password', password);
    if (options.sentinelTLS) Object.defineProperty(options, 'sentinelPassword', password);
  }
}

/** Makes a client of one server, which is found by its URL or by asking sentinels. */
function oneServer(url: string, options: RedisOptions, retryMs: () => number | null): Redis {
  const own = { ...options, enableOfflineQueue: false, retryStrategy: retryMs };
  if (!isSentinelUrl(url)) return new Redis(url, own);
  const { connectTimeout: sentinelCommandTimeout } = options;
  // When no sentinel has answered in a round, sentinelRetryStrategy begins another round.
  return new Redis({
    ...own,
    ...sentinelOptions(url, options.tls),
    sentinelCommandTimeout,
    sentinelRetryStrategy: retryMs,
  });
}

function createClient({ urls, replyMs, retryMs }: RedisClientOptions, secrets: Secrets): Redis | Cluster {
  const connectMs = Math.max(REDIS_CONNECT_MS_MAX, replyMs);
  const common = {
    protocol: 2,
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    // The deadline of calls is in redis.ts. This timeout only settles promises that a broken
    // connection left behind. It is so long that it ends no call during a stall.
    commandTimeout: 10 * replyMs,
    connectTimeout: connectMs,
    // Without this, closing a connection waits for the server's side, and a stopped server never
    // answers.
    disconnectTimeout: 1,
    // ioredis's own check is off, because the PING of redis.ts also tells whether Redis is LOADING.
    enableReadyCheck: false,
  } satisfies RedisOptions;
  const [first] = urls;
  if (urls.length === 1 && first !== undefined) {
    const client = oneServer(first, secrets.tls ? { ...common, tls: secrets.tls } : common, retryMs);
    secrets.keepIn(client);
    return client;
  }
  const { username, password } = new URL(first ?? '');
  const redisOptions: ClusterOptions['redisOptions'] = {
    ...common,
    // With these timeouts a node that hangs is noticed, and its connection made anew.
    commandTimeout: 2 * replyMs,
    socketTimeout: 2 * replyMs,
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(secrets.tls && { tls: secrets.tls }),
  };
  const cluster = new Cluster([...urls], {
    redisOptions,
    lazyConnect: true,
    enableOfflineQueue: false,
    enableReadyCheck: false,
    // Pipelines are off, because ioredis throws from an event handler when a pipeline has lost its
    // node.
    enableAutoPipelining: false,
    clusterRetryStrategy: retryMs,
    slotsRefreshTimeout: connectMs,
    // 0 turns off ioredis' repetition of commands that may have run.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
  });
  cluster.on('+node', (node: Redis) => secrets.keepIn(node));
  return cluster;
}

const QUESTION_MS_MAX = 2_000;

/**
 * Connects to one server for a few questions, then disconnects. The limiter's breaker is not
 * involved.
 * @throws with Redis's or the network's reason when the server does not answer
 */
export async function withRedis<T>(
  access: RedisAccess & { urls: readonly [string] },
  ask: (client: Redis) => Promise<T>,
): Promise<T> {
  const secrets = new Secrets(access);
  const options = {
    ...(secrets.tls && { tls: secrets.tls }),
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    connectTimeout: QUESTION_MS_MAX,
    commandTimeout: QUESTION_MS_MAX,
  };
  const client = oneServer(access.urls[0], options, () => null);
  secrets.keepIn(client);
  let reason: Error | undefined;
  client.on('error', (error: Error) => {
    reason = error;
  });
  try {
    await client.connect();
    return await ask(client);
  } catch (error) {
    throw reason ?? error;
  } finally {
    client.disconnect();
  }
}
