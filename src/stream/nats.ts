import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { type JetStreamClient, type JetStreamManager, jetstream, jetstreamManager } from '@nats-io/jetstream';
import {
  type Authenticator,
  type ConnectionOptions,
  connect,
  credsAuthenticator,
  type Msg,
  type NatsConnection,
  type Subscription,
} from '@nats-io/transport-node';
import type { Log } from '../lib/log.ts';

const PING_INTERVAL_MS = 5_000;
const RECONNECT_WAIT_MS = 250;
/** A subscription that the server refused is asked for again after this. */
const RESUBSCRIBE_MS = 1_000;

/** Errors of the server are logged at most this often. */
const ERROR_LINE_MS = 10_000;

export type NatsOptions = {
  urls: readonly string[];
  credsFile?: string | undefined;
  /** Shown in the server's connection list. */
  name: string;
  log: Log;
  /**
   * A service waits for a server that is not up yet, or that refuses its credentials. A command
   * fails.
   */
  waitForServer?: boolean;
};

/** A subscription that outlives the connection that it was made on. */
export class LastingSubscription {
  readonly #subject: string;
  readonly #callback: (msg: Msg) => void;
  #current: Subscription | undefined;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;

  constructor(subject: string, callback: (msg: Msg) => void) {
    this.#subject = subject;
    this.#callback = callback;
  }

  /** Subscribes on this connection, in place of the one before. */
  moveTo(connection: NatsConnection): void {
    clearTimeout(this.#timer);
    if (this.#ended || connection.isClosed() || connection.isDraining()) return;
    this.#current = connection.subscribe(this.#subject, {
      callback: (error, msg) => {
        if (!error) return this.#callback(msg);
        // The server denies it to these credentials, and the client library forgets it: they may be
        // other ones soon.
        this.#timer = setTimeout(() => this.moveTo(connection), RESUBSCRIBE_MS).unref();
      },
    });
  }

  /** What is on its way still comes. */
  async drain(): Promise<void> {
    this.#end();
    await this.#current?.drain().catch(() => undefined);
  }

  unsubscribe(): void {
    this.#end();
    this.#current?.unsubscribe();
  }

  #end(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }
}

/**
 * The file is read at each attempt to connect, so that credentials can be changed under a running
 * process. While it cannot be read, as in the middle of a change, the last ones count: an
 * authenticator that throws would close the connection for good.
 */
function credsOf(file: string, log: Log): Authenticator {
  let last = readFileSync(file);
  return (nonce) => {
    try {
      const fresh = readFileSync(file);
      const proof = credsAuthenticator(fresh)(nonce);
      last = fresh;
      return proof;
    } catch (error) {
      log.warn({ err: error, file }, 'nats: credentials cannot be read, using those from before');
      return credsAuthenticator(last)(nonce);
    }
  };
}

/**
 * When the credentials in a file end, in Unix seconds; undefined where they do not, or where the
 * file cannot be read.
 */
export function credsExpiry(file: string): number | undefined {
  try {
    const [, claims = ''] =
      /-BEGIN NATS USER JWT-+\s*[^.\s]+\.([^.\s]+)/.exec(readFileSync(file, 'utf8')) ?? [];
    const { exp } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as { exp?: unknown };
    return typeof exp === 'number' && exp > 0 ? exp : undefined;
  } catch {
    return undefined;
  }
}

/**
 * A connection to NATS that is never given up. The client library connects again for ever, whatever
 * the server says of our credentials; if it closes a connection by itself for any reason, another
 * one is made. While it is away `connected` is false and callers refuse at once, because a publish
 * on a broken connection would only wait out its time-out.
 *
 * So nothing may keep `connection`, `js` or what was made from them across an await: ask the link
 * again. Subscriptions of {@link subscribe} move.
 */
export class NatsLink {
  readonly #settings: ConnectionOptions;
  #connection: NatsConnection;
  #js: JetStreamClient;
  #connected = true;
  #closing = false;
  #reportedAt = Number.NEGATIVE_INFINITY;
  readonly #stopWaiting = new AbortController();
  readonly #subscriptions = new Set<LastingSubscription>();
  readonly #onReconnect: (() => void)[] = [];
  readonly #onDisconnect: (() => void)[] = [];
  readonly #onClose: (() => void)[] = [];
  readonly #log: Log;

  private constructor(connection: NatsConnection, settings: ConnectionOptions, log: Log) {
    this.#connection = connection;
    this.#js = jetstream(connection);
    this.#settings = settings;
    this.#log = log;
    void this.#keepUp();
  }

  /** @throws when no server answers and `waitForServer` is not set */
  static async connect(options: NatsOptions): Promise<NatsLink> {
    const { log, credsFile } = options;
    const settings: ConnectionOptions = {
      servers: [...options.urls],
      name: options.name,
      noAsyncTraces: true,
      maxReconnectAttempts: -1,
      ignoreAuthErrorAbort: options.waitForServer === true,
      reconnectTimeWait: RECONNECT_WAIT_MS,
      pingInterval: PING_INTERVAL_MS,
      maxPingOut: 2,
      ...(credsFile && { authenticator: credsOf(credsFile, log) }),
    };
    const waitOnFirstConnect = options.waitForServer ?? false;
    return new NatsLink(await connect({ ...settings, waitOnFirstConnect }), settings, log);
  }

  /** The connection of this moment. */
  get connection(): NatsConnection {
    return this.#connection;
  }

  /** JetStream on the connection of this moment. */
  get js(): JetStreamClient {
    return this.#js;
  }

  get connected(): boolean {
    return this.#connected;
  }

  /** Bytes that one message may have, headers included, as the server said on connecting. */
  get maxPayload(): number {
    return this.#connection.info?.max_payload ?? 1024 * 1024;
  }

  /** Lasts until it is ended or the link is closed. */
  subscribe(subject: string, callback: (msg: Msg) => void): LastingSubscription {
    const subscription = new LastingSubscription(subject, callback);
    this.#subscriptions.add(subscription);
    subscription.moveTo(this.#connection);
    return subscription;
  }

  /** Called after every reconnect; never for the first connection. */
  onReconnect(callback: () => void): void {
    this.#onReconnect.push(callback);
  }

  /** Called whenever the connection is lost or closed. */
  onDisconnect(callback: () => void): void {
    this.#onDisconnect.push(callback);
  }

  /** Called when the link is closed. */
  onClose(callback: () => void): void {
    this.#onClose.push(callback);
  }

  /** The management side of JetStream; does no request of its own. */
  manager(): Promise<JetStreamManager> {
    return jetstreamManager(this.#connection, { checkAPI: false });
  }

  /** Sends what is buffered and closes. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#stopWaiting.abort();
    for (const callback of this.#onClose.splice(0)) callback();
    if (this.#connection.isClosed()) return;
    if (this.#connected) await this.#connection.drain().catch(() => undefined);
    await this.#connection.close();
  }

  async #keepUp(): Promise<void> {
    for (;;) {
      await this.#watchStatus(this.#connection);
      const reason = await this.#connection.closed();
      if (this.#closing) return;
      this.#log.error({ err: reason }, 'nats: the connection was closed for good, making another one');
      const next = await this.#another();
      if (!next) return;
      this.#connection = next;
      this.#js = jetstream(next);
      for (const subscription of this.#subscriptions) subscription.moveTo(next);
      this.#found(next.getServer());
    }
  }

  /** Undefined when the link is closed meanwhile. */
  async #another(): Promise<NatsConnection | undefined> {
    while (!this.#closing) {
      const next = await connect(this.#settings).catch(() => undefined);
      if (next && !this.#closing) return next;
      await next?.close();
      const { signal } = this.#stopWaiting;
      await pause(RECONNECT_WAIT_MS, undefined, { signal, ref: false }).catch(() => undefined);
    }
    return undefined;
  }

  /** Until the connection is closed. */
  async #watchStatus(connection: NatsConnection): Promise<void> {
    for await (const status of connection.status()) {
      if (status.type === 'disconnect') {
        if (this.#connected) this.#log.warn({ server: status.server }, 'nats: disconnected');
        this.#lost();
      } else if (status.type === 'reconnect') {
        this.#found(status.server);
      } else if (status.type === 'error') {
        this.#report(status.error);
      }
    }
    this.#lost();
  }

  /** A server that refuses us does so at each attempt. */
  #report(err: Error): void {
    const now = performance.now();
    if (now - this.#reportedAt < ERROR_LINE_MS) return;
    this.#reportedAt = now;
    this.#log.warn({ err }, 'nats: server error');
  }

  /** The client library says it once for every attempt that was refused before. */
  #found(server: string): void {
    if (this.#connected) return;
    this.#connected = true;
    this.#log.info({ server }, 'nats: reconnected');
    for (const callback of this.#onReconnect) callback();
  }

  #lost(): void {
    this.#connected = false;
    for (const callback of this.#onDisconnect) callback();
  }
}
