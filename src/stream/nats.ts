import type { Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import {
  type JetStreamClient,
  type JetStreamManager,
  jetstream,
  jetstreamManager,
  type StreamInfo,
} from '@nats-io/jetstream';
import {
  type Authenticator,
  type ConnectionOptions,
  connect,
  createInbox,
  credsAuthenticator,
  type Msg,
  type NatsConnection,
  nkeyAuthenticator,
  type Subscription,
} from '@nats-io/transport-node';
import { ChangingFile } from '../lib/files/setting-files.ts';
import type { Log } from '../lib/log.ts';
import { ANSWER_MS_MAX, BROKER_AWAY_MS_MAX } from '../limits.ts';

const PING_INTERVAL_MS = 5_000;
const RECONNECT_WAIT_MS = 250;
/** Random extra wait, so that the clients of one server do not all connect at once. */
const RECONNECT_JITTER_MS = 100;
/**
 * Wait between two attempts to connect in the first ANSWER_MS_MAX of a server's absence, while
 * requests still wait for the server. Later RECONNECT_WAIT_MS applies.
 */
const RECONNECT_SOON_MS = 50;
const RECONNECT_SOON_JITTER_MS = 50;
/**
 * A pause of more than this between two attempts to connect ends an absence of the server: the
 * second attempt begins a new one.
 */
const NEW_ABSENCE_MS = 1_000;
/** Time between noticing that a server is silent and destroying its socket. */
const SILENT_END_MS = 1_000;
/**
 * Time-out of an attempt to connect. A server that reloads its configuration may never answer a new
 * client.
 */
const CONNECT_MS_MAX = 5_000;
/** Wait before a subscription that the server refused is tried again. */
const RESUBSCRIBE_MS = 1_000;

/**
 * While a process waits for a server at its start, the log says so after NOT_THERE_MS, then every
 * NOT_THERE_AGAIN_MS.
 */
const NOT_THERE_MS = 2_000;
const NOT_THERE_AGAIN_MS = 60_000;
/** Least time between two log lines about errors of the server. */
const ERROR_LINE_MS = 10_000;

/** How often a link checks whether its credentials have changed. */
const CREDENTIALS_CHECK_MS = 1_000;
/** How long a replaced connection stays open: longer than any request on it takes. */
const HAND_OVER_MS = 5_000;

/**
 * The role whose rights a connection has. deploy/nats/users.conf gives each role rights of its own.
 */
export type NatsRole = 'ingest' | 'processor' | 'setup' | 'cli';

type NatsOptions = {
  urls: readonly string[];
  /**
   * File with credentials as `nsc` writes them, or with the seed of an nkey. Read at each attempt
   * to connect.
   */
  credsFile?: string | undefined;
  /** File with the authorities that verify servers of tls://. Read at each attempt to connect. */
  caFile?: string | undefined;
  /** Name of the client in the server's list of connections. */
  name: string;
  /**
   * Decides the prefix of the subjects on which this client receives replies: `_INBOX.<role>`, or
   * `_INBOX` without a role. No other role may subscribe below this prefix, because some replies
   * are frames.
   */
  role?: NatsRole | undefined;
  log: Log;
  /**
   * When true (for a service), connecting waits for a server that is not up yet or refuses the
   * credentials. When false (for a command), connecting fails.
   */
  waitForServer?: boolean;
  /**
   * When true, changed credentials open a second connection. The first one stays open for
   * HAND_OVER_MS, so that its requests still get their replies. Meanwhile a subscription may
   * receive a message twice.
   */
  handsOver?: boolean;
};

/** Takes the socket out of the client library, which does not expose it. */
function socketOf(connection: NatsConnection): Socket | undefined {
  const { protocol } = connection as unknown as { protocol: { transport: { socket?: Socket } } };
  return protocol.transport.socket;
}

/** A subscription that survives the loss of its connection. */
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

  /** Subscribes on this connection instead of the previous one. */
  moveTo(connection: NatsConnection): void {
    clearTimeout(this.#timer);
    if (this.#ended || connection.isClosed() || connection.isDraining()) return;
    this.#current = connection.subscribe(this.#subject, {
      callback: (error, msg) => {
        if (!error) return this.#callback(msg);
        // The server refuses the subject to these credentials, and the client library drops the
        // subscription. The credentials may soon change, so we try again later.
        this.#timer = setTimeout(() => this.moveTo(connection), RESUBSCRIBE_MS).unref();
      },
    });
  }

  /** Ends the subscription after the messages that are under way have been delivered. */
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

function authenticatorOf(content: Buffer): Authenticator {
  const text = content.toString().trim();
  const isSeed = /^SU[A-Z2-7]{56}$/.test(text);
  const authenticator = isSeed ? nkeyAuthenticator(Buffer.from(text)) : credsAuthenticator(content);
  authenticator('nonce'); // throws when the content is invalid
  return authenticator;
}

/**
 * Credentials in a file that may change while the process runs. `#shown`: the credentials that were
 * last sent to a server; `#accepted`: those that a server accepted last.
 */
class Credentials {
  readonly #file: ChangingFile<Authenticator>;
  #shown: Authenticator | undefined;
  #accepted: Authenticator | undefined;

  constructor(path: string, log: Log) {
    this.#file = new ChangingFile(path, authenticatorOf, log);
  }

  readonly authenticator: Authenticator = (nonce) => {
    this.#shown = this.#file.read();
    return this.#shown(nonce);
  };

  /** Notes that the server accepted the credentials that were last sent to it. */
  accept(): void {
    this.#accepted = this.#shown;
  }

  get haveChanged(): boolean {
    return this.#file.read() !== this.#accepted;
  }
}

/**
 * Makes TLS mandatory when all URLs begin with `tls://`. Without this setting, the client library
 * accepts whatever the server offers.
 */
function tlsOf({ urls, caFile }: NatsOptions): ConnectionOptions {
  if (!urls.every((url) => url.startsWith('tls://'))) return {};
  return { tls: caFile === undefined ? {} : { caFile } };
}

/**
 * Spaces the attempts to connect to one server by the monotonic clock. The client library itself
 * waits by the wall clock: when that clock is set back an hour, the library waits an hour.
 */
function pacing(): Pick<ConnectionOptions, 'reconnectDelayHandler' | 'reconnectToServer'> {
  const next = new Map<string, number>();
  let began = Number.NEGATIVE_INFINITY;
  let triedAt = Number.NEGATIVE_INFINITY;
  const pauseMs = (now: number): number =>
    now - began < ANSWER_MS_MAX
      ? RECONNECT_SOON_MS + Math.random() * RECONNECT_SOON_JITTER_MS
      : RECONNECT_WAIT_MS + Math.random() * RECONNECT_JITTER_MS;
  return {
    reconnectDelayHandler: () => Number.NEGATIVE_INFINITY,
    reconnectToServer: ([server]) => {
      if (!server) return null;
      const now = performance.now();
      if (now - triedAt > NEW_ABSENCE_MS) began = now;
      triedAt = now;
      const at = Math.max(now, next.get(server.listen) ?? now);
      next.set(server.listen, at + pauseMs(now));
      return { server, delay: at - now };
    },
  };
}

/**
 * A link to NATS that never gives up. The client library reconnects for ever. If it closes a
 * connection for good, the link makes another one. While there is no connection, `connected` is
 * false and nothing is published, because a publish would only run into its time-out. Publishers
 * wait for a connection until `isAway` is true.
 *
 * So a connection may be replaced at any time. After each await, take `connection` and `js` from
 * the link again, and make objects from them again. Subscriptions of {@link subscribe} move to the
 * new connection by themselves.
 */
export class NatsLink {
  readonly #settings: ConnectionOptions;
  readonly #credentials: Credentials | undefined;
  #connection: NatsConnection;
  #js: JetStreamClient;
  #connected = true;
  /** True after BROKER_AWAY_MS_MAX without a connection. */
  #isAway = false;
  #awayTimer: NodeJS.Timeout | undefined;
  #closing = false;
  #reportedAt = Number.NEGATIVE_INFINITY;
  readonly #stopWaiting = new AbortController();
  readonly #subscriptions = new Set<LastingSubscription>();
  readonly #onReconnect: (() => void)[] = [];
  readonly #onDisconnect: (() => void)[] = [];
  readonly #onAway: (() => void)[] = [];
  readonly #onClose: (() => void)[] = [];
  readonly #log: Log;

  private constructor(
    connection: NatsConnection,
    settings: ConnectionOptions,
    { log, credentials }: { log: Log; credentials: Credentials | undefined },
  ) {
    this.#connection = connection;
    this.#js = jetstream(connection);
    this.#settings = settings;
    this.#credentials = credentials;
    this.#log = log;
    credentials?.accept();
    void this.#keepUp(connection);
  }

  /** @throws when no server answers and `waitForServer` is false */
  static async connect(options: NatsOptions): Promise<NatsLink> {
    const { credsFile } = options;
    const log = options.log.child({ connection: options.name });
    const credentials = credsFile === undefined ? undefined : new Credentials(credsFile, log);
    const settings: ConnectionOptions = {
      servers: [...options.urls],
      name: options.name,
      ...(options.role && { inboxPrefix: `_INBOX.${options.role}` }),
      noAsyncTraces: true,
      maxReconnectAttempts: -1,
      ignoreAuthErrorAbort: options.waitForServer === true,
      ...pacing(),
      timeout: CONNECT_MS_MAX,
      pingInterval: PING_INTERVAL_MS,
      maxPingOut: 2,
      ...tlsOf(options),
      ...(credentials && { authenticator: credentials.authenticator }),
    };
    const waitOnFirstConnect = options.waitForServer ?? false;
    const told = new AbortController();
    if (waitOnFirstConnect) void tellWaiting(log, told.signal);
    const connection = await connect({ ...settings, waitOnFirstConnect }).finally(() => told.abort());
    const link = new NatsLink(connection, settings, { log, credentials });
    if (credentials && options.handsOver) void link.#followCredentials(credentials);
    return link;
  }

  /** The present connection. */
  get connection(): NatsConnection {
    return this.#connection;
  }

  /** JetStream on the present connection. */
  get js(): JetStreamClient {
    return this.#js;
  }

  get connected(): boolean {
    return this.#connected;
  }

  get isAway(): boolean {
    return this.#isAway;
  }

  /** A new subject for replies, which nobody else subscribes to. */
  inbox(): string {
    return createInbox(this.#settings.inboxPrefix);
  }

  /** Most bytes of one message with its headers, as the server stated on connecting. */
  get maxPayload(): number {
    return this.#connection.info?.max_payload ?? 1024 * 1024;
  }

  /** Bytes that wait in this process until the kernel takes them. */
  get unsentBytes(): number {
    return socketOf(this.#connection)?.writableLength ?? 0;
  }

  /** Subscribes until the subscription is ended or the link is closed. */
  subscribe(subject: string, callback: (msg: Msg) => void): LastingSubscription {
    const subscription = new LastingSubscription(subject, callback);
    this.#subscriptions.add(subscription);
    subscription.moveTo(this.#connection);
    return subscription;
  }

  /** Registers a callback that runs after every reconnect, but not after the first connection. */
  onReconnect(callback: () => void): void {
    this.#onReconnect.push(callback);
  }

  /**
   * Registers a callback that runs whenever the connection is lost or closed, or the server refuses
   * a new connection.
   */
  onDisconnect(callback: () => void): void {
    this.#onDisconnect.push(callback);
  }

  /**
   * Registers a callback that runs after BROKER_AWAY_MS_MAX without a connection, or when the link
   * is closed.
   */
  onAway(callback: () => void): void {
    this.#onAway.push(callback);
  }

  /** Registers a callback that runs when the link is closed. */
  onClose(callback: () => void): void {
    this.#onClose.push(callback);
  }

  /** The management API of JetStream. Getting it sends no request. */
  manager(): Promise<JetStreamManager> {
    return jetstreamManager(this.#connection, { checkAPI: false });
  }

  /** Sends what is buffered, then closes the link. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#stopWaiting.abort();
    for (const callback of this.#onClose.splice(0)) callback();
    if (this.#connection.isClosed()) return;
    if (this.#connected) await this.#connection.drain().catch(() => undefined);
    await this.#connection.close();
  }

  /**
   * Watches a connection until another one replaces it or the link is closed. Replaces a connection
   * that was closed for good.
   */
  async #keepUp(connection: NatsConnection): Promise<void> {
    await this.#watchStatus(connection);
    const reason = await connection.closed();
    if (this.#closing || connection !== this.#connection) return;
    this.#log.error({ err: reason }, 'nats: the connection was closed for good, making another one');
    const next = await this.#another();
    if (!next) return;
    this.#moveTo(next);
    this.#found(next.getServer());
  }

  #moveTo(next: NatsConnection): void {
    this.#connection = next;
    this.#js = jetstream(next);
    for (const subscription of this.#subscriptions) subscription.moveTo(next);
    void this.#keepUp(next);
  }

  /**
   * Tries to connect until it has a connection. Returns undefined when the link is closed before.
   */
  async #another(): Promise<NatsConnection | undefined> {
    while (!this.#closing) {
      const next = await connect(this.#settings).catch(() => undefined);
      if (next && !this.#closing) return next;
      await next?.close();
      await this.#pause(RECONNECT_WAIT_MS);
    }
    return undefined;
  }

  /**
   * Hands over to a new connection when the credentials change, until the link is closed. While
   * there is no connection, the next attempt to connect reads the changed file anyway.
   */
  async #followCredentials(credentials: Credentials): Promise<void> {
    while (!this.#closing) {
      await this.#pause(CREDENTIALS_CHECK_MS);
      if (!this.#closing && this.#connected && credentials.haveChanged)
        await this.#handOver().catch((error: Error) => this.#report(error));
    }
  }

  /** @throws when the server refuses the new credentials; the present connection then stays */
  async #handOver(): Promise<void> {
    const next = await connect(this.#settings);
    if (this.#closing || !this.#connected) return await next.close();
    const before = this.#connection;
    this.#moveTo(next);
    this.#credentials?.accept();
    this.#log.info({ server: next.getServer() }, 'nats: connected with new credentials');
    for (const callback of this.#onReconnect) callback();
    await this.#pause(HAND_OVER_MS);
    await before.close();
  }

  /** Waits for `ms`, or until the link is closed. */
  async #pause(ms: number): Promise<void> {
    const { signal } = this.#stopWaiting;
    await pause(ms, undefined, { signal, ref: false }).catch(() => undefined);
  }

  /**
   * Follows the status of a connection until it is closed. When a server is silent, the client
   * library closes the socket only after all waiting bytes were sent. A server that takes nothing
   * more would keep the socket open for ever, so this method destroys the socket.
   */
  async #watchStatus(connection: NatsConnection): Promise<void> {
    let ending: NodeJS.Timeout | undefined;
    for await (const status of connection.status()) {
      if (connection !== this.#connection) continue;
      if (status.type === 'staleConnection') {
        ending ??= setTimeout(() => socketOf(connection)?.destroy(), SILENT_END_MS);
      } else if (status.type === 'disconnect') {
        clearTimeout(ending);
        ending = undefined;
        if (this.#connected) this.#log.warn({ server: status.server }, 'nats: disconnected');
        this.#lost();
      } else if (status.type === 'reconnect') {
        this.#found(status.server);
      } else if (status.type === 'error') {
        this.#report(status.error);
      }
    }
    clearTimeout(ending);
    if (connection === this.#connection) this.#lost();
  }

  /**
   * Logs an error of the server, at most one per ERROR_LINE_MS: a server that refuses a client does
   * so at each attempt.
   */
  #report(err: Error): void {
    const now = performance.now();
    if (now - this.#reportedAt < ERROR_LINE_MS) return;
    this.#reportedAt = now;
    this.#log.warn({ err }, 'nats: server error');
  }

  /**
   * Notes a reconnect. The client library reports a reconnect once more for each attempt that was
   * refused before, so only the first report counts.
   */
  #found(server: string): void {
    if (this.#connected) return;
    this.#connected = true;
    this.#isAway = false;
    clearTimeout(this.#awayTimer);
    this.#awayTimer = undefined;
    this.#credentials?.accept();
    this.#log.info({ server }, 'nats: reconnected');
    for (const callback of this.#onReconnect) callback();
  }

  #lost(): void {
    this.#connected = false;
    for (const callback of this.#onDisconnect) callback();
    if (this.#closing) return this.#away();
    this.#awayTimer ??= setTimeout(() => this.#away(), BROKER_AWAY_MS_MAX).unref();
  }

  #away(): void {
    clearTimeout(this.#awayTimer);
    this.#isAway = true;
    for (const callback of this.#onAway) callback();
  }
}

/**
 * Whether a stream has a leader. A cluster without quorum still describes a stream but stores
 * nothing in it. A stream of a single server needs no leader.
 */
export const hasLeader = ({ cluster }: StreamInfo): boolean =>
  cluster?.name === undefined || Boolean(cluster.leader);

/**
 * Logs, after a moment and then once a minute, that no server answers or all refuse this client.
 */
async function tellWaiting(log: Log, signal: AbortSignal): Promise<void> {
  const wait = (ms: number): Promise<boolean> => pause(ms, true, { signal, ref: false }).catch(() => false);
  for (let ms = NOT_THERE_MS; await wait(ms); ms = NOT_THERE_AGAIN_MS) log.warn('nats: not there yet');
}
