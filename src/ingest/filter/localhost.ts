/**
 * Filter of events from a developer's own machine: from pages that were opened from localhost or a
 * file, and from users on a loopback address.
 */
import { BlockList, isIP } from 'node:net';
import { type Filter, headerOf, type JsonObject, objectAt, siteOf, textAt } from './payload.ts';

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8);
LOOPBACK.addAddress('::1', 'ipv6');
LOOPBACK.addSubnet('::ffff:127.0.0.0', 104, 'ipv6');

function isLoopback(address: string): boolean {
  const version = isIP(address);
  return version !== 0 && LOOPBACK.check(address, version === 4 ? 'ipv4' : 'ipv6');
}

/**
 * A local host as clients write it: `localhost` anywhere, an address right after `//` or user info.
 * URL parsing also turns `//2130706433`, `//0x7f.1` or `//%6cocalhost` into local hosts. The filter
 * ignores these forms, because no needle could find them, and no browser reports a page in such a
 * form.
 */
const WRITTEN_LOCAL = /localhost|(?:\/\/|@)(?:127\.|0\.0\.0\.0|\[[0:]+1\]|\[[0:]+ffff:(?:127\.|7f))/i;

function isLocalHost(hostname: string): boolean {
  const host = hostname.endsWith('.') ? hostname.slice(0, -1) : hostname;
  if (host === 'localhost' || host.endsWith('.localhost') || host === '0.0.0.0') return true;
  return isLoopback(host.startsWith('[') ? host.slice(1, -1) : host);
}

/**
 * Returns the host of a URL as WHATWG normalises it (lower case, no port, brackets kept); undefined
 * for a text that is no URL.
 */
const hostnameOf = (url: string): string | undefined => siteOf(url)?.hostname;

/**
 * Whether a Host header names a local host. The header has no user info and no path, so `http://`
 * before it makes a URL of the same host.
 */
function isLocalHostHeader(host: string): boolean {
  if (host === '' || /[/?#@\\\s]/.test(host)) return false;
  const url = `http://${host}`;
  return WRITTEN_LOCAL.test(url) && isLocalHost(hostnameOf(url) ?? '');
}

function judgeItem(payload: JsonObject): boolean {
  if (isLoopback(textAt(objectAt(payload, 'user'), 'ip_address'))) return true;
  if (isLoopback(headerOf(payload, 'x-forwarded-for'))) return true;
  const url = textAt(objectAt(payload, 'request'), 'url');
  if (/^file:/i.test(url)) return true;
  const hostname = hostnameOf(url);
  if (hostname !== undefined) return WRITTEN_LOCAL.test(url) && isLocalHost(hostname);
  return (
    isLocalHostHeader(headerOf(payload, 'host')) || isLocalHostHeader(headerOf(payload, 'x-forwarded-host'))
  );
}

/**
 * Texts that come right before an address. `127.` alone would match `Chrome/127.0.0.0`, and
 * `0.0.0.0` would match `Chrome/140.0.0.0`. So the needle of an address includes its left
 * neighbour: a quote, the `@` of user info, or the second slash of `//`, which may be escaped.
 *
 * LAST_GROUPS has the last group of the IPv6 address ::1, as clients may write it. The address ends
 * a string or is in brackets, so these needles end with a quote or a bracket.
 */
const ADDRESS_STARTS = ['"', '@', '//', '\\/'];
const LAST_GROUPS = ['1', '01', '001', '0001'];
const needles = [
  'localhost',
  '"file:',
  'ffff:127.',
  'ffff:7f',
  ...ADDRESS_STARTS.flatMap((start) => [`${start}127.`, `${start}0.0.0.0`]),
  ...LAST_GROUPS.flatMap((group) => [`::${group}"`, `::${group}]`, `0:${group}"`, `0:${group}]`]),
];

export const localhost: Filter = {
  name: 'localhost',
  itemTypes: ['event', 'transaction'],
  needles,
  judgeItem,
};
