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
/** At most so much longer: many clients of one server do not all come at once. */
const RECONNECT_JITTER_MS = 100;
/** The same while requests wait for the server: one that restarts is found at once. */
const RECONNECT_SOON_MS = 50;
const RECONNECT_SOON_JITTER_MS = 50;
/** No attempt for this long: the next one is the first of an absence. */
const NEW_ABSENCE_MS = 1_000;
/** The socket to a silent server is destroyed after this, if it has not ended by itself. */
const SILENT_END_MS = 1_000;
/** A server that reloads its configuration may never answer a client that is just coming. */
const CONNECT_MS_MAX = 5_000;
/** A subscription that the server refused is asked for again after this. */
const RESUBSCRIBE_MS = 1_000;

/** When the log first says that a process which starts waits for a server, and how often then. */
const NOT_THERE_MS = 2_000;
const NOT_THERE_AGAIN_MS = 60_000;
/** Errors of the server are logged at most this often. */
const ERROR_LINE_MS = 10_000;

/** How often a link looks whether its credentials have changed. */
const CREDENTIALS_CHECK_MS = 1_000;
/** Longer than any request on the connection that is left takes. */
const HAND_OVER_MS = 5_000;

/** Whose rights a connection has, where deploy/nats/users.conf gives each role its own. */
export type NatsRole = 'ingest' | 'processor' | 'setup' | 'cli';

type NatsOptions = {
  urls: readonly string[];
  /** Credentials as `nsc` writes them, or the seed of an nkey; read at each attempt to connect. */
  credsFile?: string | undefined;
  /** Authorities that servers of tls:// are checked against; read at each attempt to connect. */
  caFile?: string | undefined;
  /** Shown in the server's connection list. */
  name: string;
  /**
   * Answers of the broker come to subjects below `_INBOX.<role>`, which no other role may listen
   * on: frames are among these answers. Below `_INBOX` when it is left out.
   */
  role?: NatsRole | undefined;
  log: Log;
  /**
   * A service waits for a server that is not up yet, or that refuses its credentials. A command
   * fails.
   */
  waitForServer?: boolean;
  /**
   * New credentials make another connection, which takes over while the one before still brings
   * answers that are under way: no request is refused for want of a connection. A subscription may
   * receive a message twice meanwhile.
   */
  handsOver?: boolean;
};

/** The client library keeps it to itself. */
function socketOf(connection: NatsConnection): Socket | undefined {
  const { protocol } = connection as unknown as { protocol: { transport: { socket?: Socket } } };
  return protocol.transport.socket;
}

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

  /** Ends the connection once all that is on its way has come. */
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
  authenticator('nonce'); // throws where the content makes no sense
  return authenticator;
}

/** Credentials in a file, which change under a running process. An authenticator never throws. */
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

  /** The connection that they were shown for last is ours. */
  accept(): void {
    this.#accepted = this.#shown;
  }

  get haveChanged(): boolean {
    return this.#file.read() !== this.#accepted;
  }
}

/** `tls://` is a demand: the client library by itself takes what the server offers. */
function tlsOf({ urls, caFile }: NatsOptions): ConnectionOptions {
  if (!urls.every((url) => url.startsWith('tls://'))) return {};
  return { tls: caFile === undefined ? {} : { caFile } };
}

/**
 * Attempts to connect to one server are so far apart on the monotonic clock. The client library
 * waits by the wall clock: where that goes back an hour, it would wait for an hour.
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
 * A link to NATS that is never given up. The client library connects again for ever, whatever
 * the server says of our credentials; if it closes a connection by itself for any reason, another
 * one is made. While it is away `connected` is false, and nothing is published, because that would
 * only wait out its time-out. Publishers wait for it until `isAway`.
 *
 * So nothing may keep `connection`, `js` or what was made from them across an await: ask the link
 * again. Subscriptions of {@link subscribe} move.
 */
export class NatsLink {
  readonly #settings: ConnectionOptions;
  readonly #credentials: Credentials | undefined;
  #connection: NatsConnection;
  #js: JetStreamClient;
  #connected = true;
  /** Not connected for BROKER_AWAY_MS_MAX. */
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

  /** @throws when no server answers and `waitForServer` is not set */
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

  get isAway(): boolean {
    return this.#isAway;
  }

  /** A subject for answers that nobody else waits for. */
  inbox(): string {
    return createInbox(this.#settings.inboxPrefix);
  }

  /** Bytes that one message may have, headers included, as the server said on connecting. */
  get maxPayload(): number {
    return this.#connection.info?.max_payload ?? 1024 * 1024;
  }

  /** Bytes that wait in this process until the kernel takes them, counted by the batch. */
  get unsentBytes(): number {
    return socketOf(this.#connection)?.writableLength ?? 0;
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

  /** Called whenever the connection is lost or closed, or the server refuses one. */
  onDisconnect(callback: () => void): void {
    this.#onDisconnect.push(callback);
  }

  /** Called when there has been no connection for BROKER_AWAY_MS_MAX, or the link is closed. */
  onAway(callback: () => void): void {
    this.#onAway.push(callback);
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

  /** Until another connection takes its place, or the link is closed. */
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

  /** Undefined when the link is closed meanwhile. */
  async #another(): Promise<NatsConnection | undefined> {
    while (!this.#closing) {
      const next = await connect(this.#settings).catch(() => undefined);
      if (next && !this.#closing) return next;
      await next?.close();
      await this.#pause(RECONNECT_WAIT_MS);
    }
    return undefined;
  }

  /** Until the link is closed. While it is away, it tries again with what the file says anyway. */
  async #followCredentials(credentials: Credentials): Promise<void> {
    while (!this.#closing) {
      await this.#pause(CREDENTIALS_CHECK_MS);
      if (!this.#closing && this.#connected && credentials.haveChanged)
        await this.#handOver().catch((error: Error) => this.#report(error));
    }
  }

  /** @throws when the server does not take the new credentials; the connection stays as it is */
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

  /** Or until the link is closed. */
  async #pause(ms: number): Promise<void> {
    const { signal } = this.#stopWaiting;
    await pause(ms, undefined, { signal, ref: false }).catch(() => undefined);
  }

  /**
   * Until the connection is closed. The client library ends the socket to a silent server only when
   * all that waits has been sent: never, where the server takes nothing more.
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

/** A server of a cluster without quorum tells of a stream, and takes nothing for it. */
export const hasLeader = ({ cluster }: StreamInfo): boolean =>
  cluster?.name === undefined || Boolean(cluster.leader);

/** The log says it after a moment, and once a minute: no server answers, or each refuses us. */
async function tellWaiting(log: Log, signal: AbortSignal): Promise<void> {
  const wait = (ms: number): Promise<boolean> => pause(ms, true, { signal, ref: false }).catch(() => false);
  for (let ms = NOT_THERE_MS; await wait(ms); ms = NOT_THERE_AGAIN_MS) log.warn('nats: not there yet');
}
