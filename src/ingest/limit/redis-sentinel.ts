/**
 * Finds the primary by sentinels. The URL has the form
 * `redis+sentinel://[user:password@]host:26379,host/name[?db=1]`, or `rediss+sentinel://…` where
 * the sentinels and the servers speak TLS.
 */
import { Redis, type RedisOptions } from 'ioredis';
import { assert } from '../../lib/assert.ts';

const FORM =
  /^rediss?\+sentinel:\/\/(?:(?<username>[^:@/]*)(?::(?<password>[^@/]*))?@)?(?<hosts>[^@/?]+)\/(?<name>[^/?]+)(?:\?db=(?<db>\d+))?$/;
const SENTINEL_PORT = 26_379;
const SWITCHED = '+switch-master';
const LISTEN_AGAIN_MS = 1_000;

export const isSentinelUrl = (url: string): boolean => /^rediss?\+sentinel:/.test(url);

/** Returns the URL of each sentinel that a URL lists. */
export function sentinelUrls(url: string): string[] {
  const scheme = url.split('+')[0];
  return partsOf(url).sentinels.map(
    ({ host, port }) => `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`,
  );
}

/** How a client speaks TLS and logs in. */
export type RedisLogin = {
  /** Undefined without TLS. */
  readonly tls: NonNullable<RedisOptions['tls']> | undefined;
  /** Makes a client read the password anew at each attempt to connect. */
  keepIn(client: Redis): void;
};

function partsOf(url: string) {
  const { hosts, name, username, password, db } = FORM.exec(url)?.groups ?? {};
  assert(hosts !== undefined && name !== undefined, 'the settings were checked');
  const sentinels = hosts.split(',').map((one) => {
    const { hostname, port } = new URL(`redis://${one}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? SENTINEL_PORT : Number(port) };
  });
  return { sentinels, name, username, password, db };
}

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
