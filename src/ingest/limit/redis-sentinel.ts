/**
 * Finds the primary by sentinels. The URL has the form
 * `redis+sentinel://[user:password@]host:26379,host/name[?db=1]`.
 */
import { Redis, type RedisOptions } from 'ioredis';
import { assert } from '../../lib/assert.ts';

const FORM =
  /^redis\+sentinel:\/\/(?:(?<username>[^:@/]*)(?::(?<password>[^@/]*))?@)?(?<hosts>[^@/?]+)\/(?<name>[^/?]+)(?:\?db=(?<db>\d+))?$/;
const SENTINEL_PORT = 26_379;
const SWITCHED = '+switch-master';
const LISTEN_AGAIN_MS = 1_000;

export const isSentinelUrl = (url: string): boolean => url.startsWith('redis+sentinel://');

function partsOf(url: string) {
  const { hosts, name, username, password, db } = FORM.exec(url)?.groups ?? {};
  assert(hosts !== undefined && name !== undefined, 'the settings were checked');
  const sentinels = hosts.split(',').map((one) => {
    const { hostname, port } = new URL(`redis://${one}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? SENTINEL_PORT : Number(port) };
  });
  return { sentinels, name, username, password, db };
}

/**
 * Calls `onSwitch` whenever a sentinel says that another server is the primary. Without this, ten
 * seconds of calls in a commanded failover would go to the old primary, whose writes are then
 * thrown away.
 *
 * @returns a function that ends the watching
 */
export function watchSwitches(url: string, onSwitch: () => void): () => void {
  const { sentinels, name } = partsOf(url);
  const clients = sentinels.map((sentinel) => {
    const retryStrategy = (): number => LISTEN_AGAIN_MS;
    // null: the subscription waits without end for a sentinel that is away at the start.
    const maxRetriesPerRequest = null;
    const client = new Redis({
      ...sentinel,
      protocol: 2,
      enableReadyCheck: false,
      retryStrategy,
      maxRetriesPerRequest,
    });
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
 * Returns ioredis's options for a sentinel URL. User and password are those of the primary;
 * sentinels are asked without them.
 */
export function sentinelOptions(url: string): RedisOptions {
  const { sentinels, name, username, password, db } = partsOf(url);
  return {
    sentinels,
    name,
    role: 'master',
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(db && { db: Number(db) }),
  };
}
