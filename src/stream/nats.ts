/**
 * One connection to NATS. It reconnects for ever. While it is away `connected` is false and callers
 * refuse at once, because a publish on a broken connection would only wait out its time-out.
 */
import { readFileSync } from 'node:fs';
import { type JetStreamClient, type JetStreamManager, jetstream, jetstreamManager } from '@nats-io/jetstream';
import {
  type ConnectionOptions,
  connect,
  credsAuthenticator,
  type NatsConnection,
} from '@nats-io/transport-node';
import type { Log } from '../lib/log.ts';

const PING_INTERVAL_MS = 5_000;
const RECONNECT_WAIT_MS = 250;

export type NatsOptions = {
  urls: readonly string[];
  credsFile?: string | undefined;
  /** Shown in the server's connection list. */
  name: string;
  log: Log;
  /** Wait for a server that is not up yet (a service) instead of failing (a command). */
  waitForServer?: boolean;
};

export class NatsLink {
  readonly connection: NatsConnection;
  readonly js: JetStreamClient;
  #connected = true;
  readonly #onReconnect: (() => void)[] = [];
  readonly #onDisconnect: (() => void)[] = [];
  readonly #log: Log;

  private constructor(connection: NatsConnection, log: Log) {
    this.connection = connection;
    this.js = jetstream(connection);
    this.#log = log;
    void this.#watchStatus();
  }

  /** @throws when no server answers and `waitForServer` is not set */
  static async connect(options: NatsOptions): Promise<NatsLink> {
    const settings: ConnectionOptions = {
      servers: [...options.urls],
      name: options.name,
      noAsyncTraces: true,
      maxReconnectAttempts: -1,
      reconnectTimeWait: RECONNECT_WAIT_MS,
      pingInterval: PING_INTERVAL_MS,
      maxPingOut: 2,
      waitOnFirstConnect: options.waitForServer ?? false,
    };
    if (options.credsFile) settings.authenticator = credsAuthenticator(readFileSync(options.credsFile));
    return new NatsLink(await connect(settings), options.log);
  }

  get connected(): boolean {
    return this.#connected;
  }

  /** Bytes that one message may have, headers included, as the server said on connecting. */
  get maxPayload(): number {
    return this.connection.info?.max_payload ?? 1024 * 1024;
  }

  /** Called after every reconnect; never for the first connection. */
  onReconnect(callback: () => void): void {
    this.#onReconnect.push(callback);
  }

  /** Called whenever the connection is lost or closed. */
  onDisconnect(callback: () => void): void {
    this.#onDisconnect.push(callback);
  }

  /** The management side of JetStream; does no request of its own. */
  manager(): Promise<JetStreamManager> {
    return jetstreamManager(this.connection, { checkAPI: false });
  }

  /** Sends what is buffered and closes. */
  async close(): Promise<void> {
    if (this.connection.isClosed()) return;
    if (this.#connected) await this.connection.drain().catch(() => undefined);
    await this.connection.close();
  }

  async #watchStatus(): Promise<void> {
    for await (const status of this.connection.status()) {
      if (status.type === 'disconnect') {
        this.#log.warn({ server: status.server }, 'nats: disconnected');
        this.#lost();
      } else if (status.type === 'reconnect') {
        this.#connected = true;
        this.#log.info({ server: status.server }, 'nats: reconnected');
        for (const callback of this.#onReconnect) callback();
      } else if (status.type === 'error') {
        this.#log.warn({ err: status.error }, 'nats: server error');
      }
    }
    this.#lost();
  }

  #lost(): void {
    this.#connected = false;
    for (const callback of this.#onDisconnect) callback();
  }
}
