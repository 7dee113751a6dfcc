/**
 * The admin port: health, readiness, metrics and a page, for operators and probes. It is off the
 * hot path, so node:http serves it.
 */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { MetricsSnapshot } from '../lib/metrics.ts';
import { loadAdminPage } from './page.ts';
import { PortError } from './port-check.ts';

/** What the page polls: figures since the process started; it computes rates from two answers. */
export type AdminStats = {
  role: 'ingest' | 'processor';
  readiness: { status: string; checks: Record<string, string> };
  metrics: MetricsSnapshot;
  /** The busiest projects; ingest alone knows them. */
  projects?: readonly object[];
};

export type AdminPages = {
  ready(): { ready: boolean; body: string };
  /** Prometheus text format. */
  metrics(): Promise<string>;
  stats(): Promise<AdminStats>;
};

const JSON_TYPE = 'application/json';
const NOT_STORED = { 'Cache-Control': 'no-store' };
const TEXT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

type Page = { status: number; body: string; type?: string; headers?: Readonly<Record<string, string>> };

function reply(res: ServerResponse, { status, body, type = JSON_TYPE, headers }: Page): void {
  res.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body), ...headers });
  res.end(body);
}

async function serve(path: string, res: ServerResponse, pages: AdminPages): Promise<void> {
  if (path === '/healthz') return reply(res, { status: 200, body: '{"status":"ok"}' });
  if (path === '/readyz') {
    const { ready, body } = pages.ready();
    return reply(res, { status: ready ? 200 : 503, body });
  }
  if (path === '/metrics') return reply(res, { status: 200, body: await pages.metrics(), type: TEXT_TYPE });
  if (path === '/stats.json')
    return reply(res, { status: 200, body: JSON.stringify(await pages.stats()), headers: NOT_STORED });
  if (path === '/') {
    const { html, headers } = loadAdminPage();
    return reply(res, { status: 200, body: html, type: 'text/html; charset=utf-8', headers });
  }
  reply(res, { status: 404, body: '{"error":"Not found"}' });
}

/**
 * Serves the admin pages.
 * @throws PortError when the address cannot be listened on
 */
export function startAdminServer(host: string, port: number, pages: AdminPages): Promise<Server> {
  const server = createServer((req, res) => {
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      res.setHeader('Allow', 'GET');
      return reply(res, { status: 405, body: '{"error":"Method not allowed"}' });
    }
    const path = (req.url ?? '/').split('?', 1)[0] ?? '/';
    serve(path, res, pages).catch(() =>
      reply(res, { status: 500, body: '{"error":"Internal server error"}' }),
    );
  });
  return new Promise((resolve, reject) => {
    server.once('error', (error) => reject(new PortError(host, port, error)));
    server.listen(port, host, () => resolve(server));
  });
}
