/**
 * Access to the operators' page on the admin port and to the management API.
 *
 * When a token is set, callers of the API must send one. The label of the token is the caller's
 * name in the audit. When no token is set, only an admin port bound to loopback answers, so only
 * programs of this machine reach it.
 *
 * A browser is such a program, and it runs scripts of foreign sites. A foreign site can point its
 * own domain name at this address: the browser then sends that name as Host. A script of a foreign
 * site can also send a request here: the browser then sends that site as Origin. Both requests are
 * refused, even when they carry a token, because such a site may ask its reader for the token. When
 * a token is set, a Host that is an IP address is allowed, because it cannot be such a domain name.
 */
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { ProblemError } from './problem.ts';
import type { AdminTokens, Holder } from './tokens.ts';

type AccessParts = {
  /** Address that the admin port is bound to. */
  host: string;
  /** Further names by which clients reach the port. */
  names: readonly string[];
  tokens: AdminTokens;
};

/** Name in the audit for a caller without a token, which is a program of this machine. */
const LOOPBACK = 'loopback';

const isLoopback = (host: string): boolean =>
  /^(127(\.\d{1,3}){3}|::1|localhost|([\w-]+\.)+localhost)$/i.test(host);

/** The name or address in a Host header, without the port and brackets. */
const nameOf = ({ headers }: IncomingMessage): string =>
  (headers.host ?? '')
    .replace(/:\d+$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .toLowerCase();

function bearerOf({ headers }: IncomingMessage): string | undefined {
  return /^Bearer +([!-~]+) *$/i.exec(headers.authorization ?? '')?.[1];
}

function refuseFarHost(req: IncomingMessage): void {
  if (isLoopback(nameOf(req))) return;
  throw new ProblemError(
    'forbidden',
    'Without a token the Host must be localhost or a loopback address. Set SLUICE_ADMIN_TOKEN to allow other names.',
  );
}

/**
 * Refuses a request from a page of another site. Only browsers send an Origin, and they always send
 * it with a request that changes something.
 * @throws ProblemError
 */
export function refuseForeignOrigin({ headers }: IncomingMessage): void {
  const { origin, host } = headers;
  if (origin === undefined) return;
  if (URL.canParse(origin) && new URL(origin).host === host) return;
  throw new ProblemError('forbidden', `A page of ${origin} may not ask this.`);
}

export class Access {
  readonly #tokens: AdminTokens;
  readonly #names: ReadonlySet<string>;
  readonly #isLocal: boolean;

  constructor({ host, names, tokens }: AccessParts) {
    this.#tokens = tokens;
    this.#names = new Set([host, ...names].map((name) => name.toLowerCase()));
    this.#isLocal = isLoopback(host);
  }

  /**
   * Checks a request to the management API.
   * @returns the caller
   * @throws ProblemError when access is refused
   */
  ofApi(req: IncomingMessage): Holder {
    if (this.#tokens.isSet) return this.#byToken(req);
    return this.#open(req);
  }

  /**
   * Checks a request for the page's numbers. It needs no token while the port is bound to loopback
   * and the Host is a loopback name. A token that is sent is checked all the same.
   * @throws ProblemError when access is refused
   */
  ofPage(req: IncomingMessage): void {
    const isNear = this.#isLocal && isLoopback(nameOf(req));
    if (this.#tokens.isSet && (!isNear || bearerOf(req) !== undefined)) this.#byToken(req);
    else this.#open(req);
  }

  /**
   * Checks a request for the page itself. It needs no token, because the page contains no numbers
   * and asks its reader for the token.
   * @throws ProblemError when access is refused
   */
  ofShell(req: IncomingMessage): void {
    if (this.#tokens.isSet) this.#refuseForeignHost(req);
    else this.#open(req);
  }

  #refuseForeignHost(req: IncomingMessage): void {
    const name = nameOf(req);
    if (isLoopback(name) || isIP(name) !== 0 || this.#names.has(name)) return;
    throw new ProblemError(
      'forbidden',
      'The Host is no address and no name of this port. SLUICE_ADMIN_NAMES lists further names.',
    );
  }

  #byToken(req: IncomingMessage): Holder {
    this.#refuseForeignHost(req);
    const token = bearerOf(req);
    const holder = token === undefined ? undefined : this.#tokens.holderOf(token);
    if (holder) return holder;
    const headers = {
      'WWW-Authenticate': `Bearer realm="sluice"${token === undefined ? '' : ', error="invalid_token"'}`,
    };
    const detail =
      token === undefined
        ? 'Send a token of SLUICE_ADMIN_TOKEN as Authorization: Bearer <token>.'
        : 'This token is none of SLUICE_ADMIN_TOKEN, SLUICE_ADMIN_TOKEN_FILE and SLUICE_VIEWER_TOKEN.';
    throw new ProblemError('unauthorized', detail, { headers });
  }

  #open(req: IncomingMessage): Holder {
    if (!this.#isLocal)
      throw new ProblemError(
        'forbidden',
        'The admin port is not bound to loopback: set SLUICE_ADMIN_TOKEN or SLUICE_ADMIN_TOKEN_FILE, and send the token as Authorization: Bearer <token>.',
      );
    refuseFarHost(req);
    return { by: LOOPBACK, role: 'editor' };
  }
}
