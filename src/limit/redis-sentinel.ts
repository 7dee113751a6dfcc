/**
 * The primary that sentinels name: `redis+sentinel://[user:password@]host:26379,host/name[?db=1]`.
 */
import type { RedisOptions } from 'ioredis';
import { assert } from '../lib/assert.ts';

const FORM =
  /^redis\+sentinel:\/\/(?:(?<username>[^:@/]*)(?::(?<password>[^@/]*))?@)?(?<hosts>[^@/?]+)\/(?<name>[^/?]+)(?:\?db=(?<db>\d+))?$/;
const SENTINEL_PORT = 26_379;

export const isSentinelUrl = (url: string): boolean => url.startsWith('redis+sentinel://');

/** User and password are those of the primary; sentinels are asked without. */
export function sentinelOptions(url: string): RedisOptions {
  const { hosts, name, username, password, db } = FORM.exec(url)?.groups ?? {};
  assert(hosts !== undefined && name !== undefined, 'the settings were checked');
  const sentinels = hosts.split(',').map((one) => {
    const { hostname, port } = new URL(`redis://${one}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? SENTINEL_PORT : Number(port) };
  });
  return {
    sentinels,
    name,
    role: 'master',
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(db && { db: Number(db) }),
  };
}
