/**
 * The admin port for operators and probes: health, readiness, metrics, a page and, in ingest, the
 * management API. The port is off the hot path, so node:http serves it.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { pipeline, type Readable } from 'node:stream';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../../lib/log.ts';
import type { MetricsSnapshot } from '../../lib/metrics/metrics.ts';
import { PortError } from '../../lib/port-check.ts';
import { loadAdminPage } from '../page/page.ts';
import { Access } from './access.ts';
import type { ManagementApi } from './api.ts';
import { PROBLEM_TYPE, ProblemError } from './problem.ts';
import type { AdminTokens } from './tokens.ts';

/** Counts since the process started. The page reads them again and again, and computes rates. */
export type AdminStats = {
  role: 'ingest' | 'processor';
  readiness: { status: string; checks: Record<string, string> };
  metrics: MetricsSnapshot;
  /** The busiest projects; only ingest knows them. */
  projects?: readonly object[];
};

type AdminPages = {
  ready(): { ready: boolean; body: string };
  /** Prometheus text format. */
  metrics(): Promise<string>;
  stats(): Promise<AdminStats>;
};

type AdminOptions = {
  host: string;
  /** Further names by which clients reach the port. */
  names?: readonly string[];
  port: number;
  pages: AdminPages;
  tokens: AdminTokens;
  log: Log;
  /** Makes the management API; if absent, the port serves none. */
  api?: (access: Access) => ManagementApi;
};

/** How long a stop waits for operations. A deletion takes three seconds and a few calls. */
const OPERATIONS_END_MS_MAX = 5_000;
const JSON_TYPE = 'application/json';
const LINES_TYPE = 'application/x-ndjson';
const NOT_STORED = { 'Cache-Control': 'no-store' };
const TEXT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

type Page = {
  status?: number;
  body?: string;
  /** Body that is sent line by line, instead of `body`. */
  lines?: Readable;
  type?: string;
  headers?: Readonly<Record<string, string>>;
};

/** Sends lines of JSON as they come. `X-Accel-Buffering: no` tells nginx not to hold them back. */
function sendLines(
  { method }: IncomingMessage,
  res: ServerResponse,
  { lines, headers }: Pick<Page, 'headers'> & { lines: Readable },
): void {
  res.writeHead(200, { 'Content-Type': LINES_TYPE, 'X-Accel-Buffering': 'no', ...headers });
  if (method === 'HEAD') {
    lines.destroy();
    res.end();
  } else pipeline(lines, res, () => undefined); // a reader who leaves is no fault
}

/**
 * Answers probes and scrapers, which need no token.
 * @returns undefined for any path but `/healthz`, `/metrics` and `/readyz`
 */
async function probed(path: string, pages: AdminPages): Promise<Page | undefined> {
  if (path === '/healthz') return { body: '{"status":"ok"}' };
  if (path === '/metrics') return { body: await pages.metrics(), type: TEXT_TYPE };
  if (path !== '/readyz') return undefined;
  const { ready, body } = pages.ready();
  return { status: ready ? 200 : 503, body };
}

class AdminServer {
  readonly #pages: AdminPages;
  readonly #access: Access;
  readonly #log: Log;
  readonly #api: ManagementApi | undefined;
  /** Requests to the management API that are not answered yet. */
  readonly #underWay = new Set<Promise<unknown>>();

  constructor({ host, names = [], pages, tokens, log, api }: AdminOptions) {
    this.#pages = pages;
    this.#access = new Access({ host, names, tokens });
    this.#log = log;
    this.#api = api?.(this.#access);
  }

  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const {
      status = 200,
      body = '',
      lines,
      type = JSON_TYPE,
      headers,
    } = await this.#page(req).catch((error: unknown) => this.#problemPage(req, error));
    if (lines) return sendLines(req, res, { lines, ...(headers && { headers }) });
    const content = body === '' ? {} : { 'Content-Type': type };
    const length = status === 204 ? {} : { 'Content-Length': Buffer.byteLength(body) };
    res.writeHead(status, { ...content, ...length, ...headers });
    res.end(body);
  }

  async #page(req: IncomingMessage): Promise<Page> {
    const url = urlOf(req);
    if (this.#api && /^\/v1(\/|$)/.test(url.pathname)) return this.#apiPage(this.#api, req, url);
    if (req.method !== 'GET' && req.method !== 'HEAD')
      throw new ProblemError('method', 'Only GET and HEAD.', { headers: { Allow: 'GET, HEAD' } });
    return (await probed(url.pathname, this.#pages)) ?? (await this.#guarded(req, url.pathname));
  }

  async #guarded(req: IncomingMessage, path: string): Promise<Page> {
    if (path === '/stats.json') {
      this.#access.ofPage(req);
      return { body: JSON.stringify(await this.#pages.stats()), headers: NOT_STORED };
    }
    if (path !== '/') throw new ProblemError('unknown', `There is no ${path}.`);
    this.#access.ofShell(req);
    const { html, headers } = loadAdminPage();
    return { body: html, type: 'text/html; charset=utf-8', headers };
  }

  async #apiPage(api: ManagementApi, req: IncomingMessage, url: URL): Promise<Page> {
    const answer = api.answer(req, url);
    this.#underWay.add(answer);
    const { json, headers, ...rest } = await answer.finally(() => this.#underWay.delete(answer));
    const body = json === undefined ? '' : JSON.stringify(json);
    return { ...rest, body, headers: { ...NOT_STORED, ...headers } };
  }

  async untilAnswered(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
  }

  /** Turns an error of a page into an answer, because no error may end the process. */
  #problemPage({ url }: IncomingMessage, error: unknown): Page {
    const isFault = !(error instanceof ProblemError);
    if (isFault) this.#log.error({ err: error, url }, 'admin: a page failed');
    const problem = isFault ? new ProblemError('bug', 'The log says more.') : error;
    const { status, json, headers } = problem;
    return { status, body: JSON.stringify(json), type: PROBLEM_TYPE, headers: { ...NOT_STORED, ...headers } };
  }
}

/**
 * Parses the target of a request. The host is a placeholder: callers use only path and query.
 * @throws ProblemError
 */
function urlOf({ url = '/' }: IncomingMessage): URL {
  const target = `http://admin${url.startsWith('/') ? url : `/${url}`}`;
  if (URL.canParse(target)) return new URL(target);
  throw new ProblemError('invalid', 'The target is no URL.');
}

export type RunningAdmin = {
  server: Server;
  /** Waits for the management API's operations under way, then closes all connections. */
  stop(): Promise<void>;
};

/**
 * Serves the admin pages.
 * @throws PortError when the address cannot be listened on
 */
export function startAdminServer(options: AdminOptions): Promise<RunningAdmin> {
  const { host, port } = options;
  const admin = new AdminServer(options);
  const server = createServer((req, res) => void admin.handle(req, res));
  const stop = async (): Promise<void> => {
    const closed = new Promise((resolve) => server.close(resolve));
    await Promise.race([admin.untilAnswered(), sleep(OPERATIONS_END_MS_MAX, undefined, { ref: false })]);
    await nextTurn(); // the last answers are written
    server.closeAllConnections();
    await closed;
  };
  return new Promise((resolve, reject) => {
    server.once('error', (error) => reject(new PortError(host, port, error)));
    server.listen(port, host, () => resolve({ server, stop }));
  });
}
