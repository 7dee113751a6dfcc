/**
 * Reads the URL of Redis behind sentinels. It has the form
 * `redis+sentinel://[user:password@]host:26379,host/name[?db=1]`, or `rediss+sentinel://…` where
 * the sentinels and the servers speak TLS. This file does not import ioredis, so a program that
 * only looks at such a URL does not load it.
 */
import { assert } from '../../lib/assert.ts';

const FORM =
  /^rediss?\+sentinel:\/\/(?:(?<username>[^:@/]*)(?::(?<password>[^@/]*))?@)?(?<hosts>[^@/?]+)\/(?<name>[^/?]+)(?:\?db=(?<db>\d+))?$/;
const SENTINEL_PORT = 26_379;

export const isSentinelUrl = (url: string): boolean => /^rediss?\+sentinel:/.test(url);

/** Returns the URL of each sentinel that a URL lists. */
export function sentinelUrls(url: string): string[] {
  const scheme = url.split('+')[0];
  return partsOf(url).sentinels.map(
    ({ host, port }) => `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`,
  );
}

/** What a sentinel URL says. User and password are still percent-encoded. */
export function partsOf(url: string) {
  const { hosts, name, username, password, db } = FORM.exec(url)?.groups ?? {};
  assert(hosts !== undefined && name !== undefined, 'the settings were checked');
  const sentinels = hosts.split(',').map((one) => {
    const { hostname, port } = new URL(`redis://${one}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? SENTINEL_PORT : Number(port) };
  });
  return { sentinels, name, username, password, db };
}
