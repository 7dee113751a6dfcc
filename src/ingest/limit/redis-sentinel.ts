/** Finds the primary by sentinels. */
import { Redis, type RedisOptions } from 'ioredis';
import { partsOf } from './sentinel-url.ts';

const SWITCHED = '+switch-master';
const LISTEN_AGAIN_MS = 1_000;

/** How a client speaks TLS and logs in. */
export type RedisLogin = {
  /** Undefined without TLS. */
  readonly tls: NonNullable<RedisOptions['tls']> | undefined;
  /** Makes a client read the password anew at each attempt to connect. */
  keepIn(client: Redis): void;
};

const userOf = (username = '', password = ''): { username?: string; password?: string } => ({
  ...(username && { username: decodeURIComponent(username) }),
  ...(password && { password: decodeURIComponent(password) }),
});

/**
 * Calls `onSwitch` whenever a sentinel says that another server is the primary. Without this, in a
 * failover by command, calls would go to the old primary for ten seconds, and their writes would be
 * thrown away.
 *
 * @returns a function that ends the watching
 */
export function watchSwitches(url: string, login: RedisLogin, onSwitch: () => void): () => void {
  const { sentinels, name, username, password } = partsOf(url);
  const clients = sentinels.map((sentinel) => {
    const retryStrategy = (): number => LISTEN_AGAIN_MS;
    // null: the subscription waits without end for a sentinel that is away at the start.
    const maxRetriesPerRequest = null;
    const client = new Redis({
      ...sentinel,
      ...(login.tls && { tls: login.tls, ...userOf(username, password) }),
      protocol: 2,
      enableReadyCheck: false,
      retryStrategy,
      maxRetriesPerRequest,
    });
    if (login.tls) login.keepIn(client);
    client.on('error', () => undefined);
    client.on('message', (_channel, message: string) => {
      if (message.startsWith(`${name} `)) onSwitch();
    });
    client.subscribe(SWITCHED).catch(() => undefined);
    return client;
  });
  return () => {
    for (const client of clients) client.disconnect();
  };
}

/**
 * Returns ioredis's options for a sentinel URL. User and password are those of the primary. With
 * TLS they are those of the sentinels, too; without TLS the sentinels are asked without a password.
 */
export function sentinelOptions(url: string, tls: RedisLogin['tls']): RedisOptions {
  const { sentinels, name, username, password, db } = partsOf(url);
  const user = userOf(username, password);
  return {
    sentinels,
    name,
    role: 'master',
    ...user,
    ...(db && { db: Number(db) }),
    ...(tls && {
      enableTLSForSentinelMode: true,
      sentinelTLS: tls,
      ...(user.username && { sentinelUsername: user.username }),
      ...(user.password && { sentinelPassword: user.password }),
    }),
  };
}
