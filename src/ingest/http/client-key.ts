/**
 * Finds the public key of a request. The first of these places with a non-empty key wins: query,
 * x-service-auth, x-compat-auth, x-sentry-auth, authorization. In each place `compat_key` wins over
 * `sentry_key`.
 */

import { CLIENT_CHARS_MAX } from '../../limits.ts';
import type { RequestHead } from './request-head.ts';

/**
 * Headers that may hold the key, in order of precedence. The query comes before them,
 * `authorization` after them.
 */
const KEY_HEADERS = ['x-service-auth', 'x-compat-auth', 'x-sentry-auth'] as const;

type KeyHeader = (typeof KEY_HEADERS)[number] | 'authorization';

/**
 * Names of the key. They are case-sensitive in a query, as everywhere on the web, but not in a
 * header.
 */
const KEY_NAMES = ['compat_key', 'sentry_key'] as const;

/**
 * Decodes percent-encoding in a query value. A malformed escape is kept as it is, so that the key
 * is simply a wrong one.
 */
function decoded(value: string): string {
  if (!value.includes('%') && !value.includes('+')) return value;
  const spaced = value.replaceAll('+', ' ');
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced;
  }
}

/**
 * The first non-empty value of a parameter, or ''. The query is not split into parameters, because
 * this function runs for every request.
 */
function queryValue(query: string, name: string): string {
  for (let at = query.indexOf(name); at !== -1; at = query.indexOf(name, at + 1)) {
    const start = at + name.length + 1;
    if (query[start - 1] !== '=' || (at > 0 && query[at - 1] !== '&')) continue;
    const end = query.indexOf('&', start);
    const value = end === -1 ? query.slice(start) : query.slice(start, end);
    if (value !== '') return decoded(value);
  }
  return '';
}

function queryKey(query: string): string {
  if (query === '') return '';
  for (const name of KEY_NAMES) {
    const value = queryValue(query, name);
    if (value !== '') return value;
  }
  // `sentry%5Fkey=…` is the same name in another spelling. Only for this case must names be
  // decoded.
  if (!query.includes('%')) return '';
  const parameters = new URLSearchParams(query);
  return KEY_NAMES.flatMap((name) => parameters.getAll(name)).find((value) => value !== '') ?? '';
}

const unquoted = (value: string): string =>
  value.length > 1 && value.startsWith('"') && value.endsWith('"') ? value.slice(1, -1) : value;

/** Number of characters of each name of the key. */
const NAME_CHARS = 10;

/**
 * Finds the key in `[scheme] name=value, name="value", …`: an optional scheme, then pairs, with
 * white space wherever it is legal. Pairs with other names are skipped. Each character is read only
 * a few times, because an attacker may send 16 KiB.
 */
function headerKey(header: string): string {
  const found: { [name in (typeof KEY_NAMES)[number]]?: string } = {};
  let start = 0;
  for (let equals = header.indexOf('='); equals !== -1; equals = header.indexOf('=', start)) {
    const comma = header.indexOf(',', equals);
    const end = comma === -1 ? header.length : comma;
    const before = header.slice(Math.max(start, header.lastIndexOf(',', equals) + 1), equals).trimEnd();
    start = end + 1;
    const name = before.slice(-NAME_CHARS).toLowerCase();
    if (name !== 'compat_key' && name !== 'sentry_key') continue;
    // Before the name only a scheme and a blank may stand. Otherwise these characters are the end
    // of a longer name.
    if (before.length > NAME_CHARS && before.charAt(before.length - NAME_CHARS - 1).trim() !== '') continue;
    found[name] ||= unquoted(header.slice(equals + 1, end).trim());
  }
  return found.compat_key || found.sentry_key || '';
}

/**
 * The key of a request; '' when the request has none.
 * @param query the raw query string without '?'
 * @param header returns a request header, '' when absent; called in order of precedence
 */
export function findKey(query: string, header: (name: KeyHeader) => string): string {
  const fromQuery = queryKey(query);
  if (fromQuery !== '') return fromQuery;
  for (const name of KEY_HEADERS) {
    const key = headerKey(header(name));
    if (key !== '') return key;
  }
  const authorization = header('authorization');
  // With another scheme than `sentry`, the header is meant for a proxy in front of sluice.
  return /^\s*sentry\s/i.test(authorization) ? headerKey(authorization) : '';
}

const CLIENT = 'sentry_client';
const CLIENT_BEGIN = /(?:^|[\s,])sentry_client\s*=\s*/i;
/** Matches the client's name, up to the next pair, since the name may contain commas. */
const CLIENT_VALUE = /^"?(.*?)"?(?=\s*,[\s,]*[\w-]+\s*=|[\s,]*$)/;
/**
 * Most characters of a header that are searched for the client's name: more than a name with quotes
 * and blanks has.
 */
const CLIENT_VALUE_CHARS_MAX = 2 * CLIENT_CHARS_MAX;

/** The `sentry_client` in a header; '' when there is none. */
function headerClient(header: string): string {
  const begin = CLIENT_BEGIN.exec(header);
  if (!begin) return '';
  const from = begin.index + begin[0].length;
  return CLIENT_VALUE.exec(header.slice(from, from + CLIENT_VALUE_CHARS_MAX))?.[1]?.trim() ?? '';
}

/** Whether a client tells its name. Some clients that do not know theirs send `/`. */
const hasName = (client: string): boolean => client !== '' && !client.startsWith('/');

/** The key and the client's name in the head of a request. */
export class ClientKey {
  /** The key of the request; '' when it has none. */
  readonly key: string;
  readonly #query: string;
  /**
   * The header that was read last. It has the key, unless the query has the key or the request has
   * none.
   */
  #keyHeader = '';
  readonly #userAgent: string;

  constructor(head: RequestHead) {
    this.#query = head.query;
    this.key = findKey(this.#query, (name) => {
      this.#keyHeader = head.headers[name];
      return this.#keyHeader;
    });
    this.#userAgent = head.headers['user-agent'];
  }

  /**
   * The name that the client gives itself, `name/version`. It is the `sentry_client` in the header
   * with the key or in the query, else the first word of the User-Agent. Undefined when neither is
   * a name, or the name is too long.
   */
  get client(): string | undefined {
    const beside = headerClient(this.#keyHeader) || queryValue(this.#query, CLIENT);
    const name = hasName(beside) ? beside : (this.#userAgent.trim().split(/\s/, 1)[0] ?? '');
    return hasName(name) && name.length <= CLIENT_CHARS_MAX ? name : undefined;
  }
}
