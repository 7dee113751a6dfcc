/** The admin port: health, readiness and metrics for operators and probes. Not on the hot path, so node:http serves. */
import { createServer, type Server, type ServerResponse } from 'node:http';

export type AdminPages = {
  ready(): { ready: boolean; body: string };
  /** Prometheus text format. */
  metrics(): Promise<string>;
};

const JSON_TYPE = 'application/json';
const TEXT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

type Page = { status: number; body: string; type?: string };

function reply(res: ServerResponse, { status, body, type = JSON_TYPE }: Page): void {
  res.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) });
  res.end(body);
}

async function serve(path: string, res: ServerResponse, pages: AdminPages): Promise<void> {
  if (path === '/healthz') return reply(res, { status: 200, body: '{"status":"ok"}' });
  if (path === '/readyz') {
    const { ready, body } = pages.ready();
    return reply(res, { status: ready ? 200 : 503, body });
  }
  if (path === '/metrics') return reply(res, { status: 200, body: await pages.metrics(), type: TEXT_TYPE });
  reply(res, { status: 404, body: '{"error":"Not found"}' });
}

/**
 * Serves the admin pages.
 * @throws when the address cannot be listened on
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
    server.once('error', reject);
    server.listen(port, host, () => resolve(server));
  });
}
