/**
 * The only file that imports uWebSockets.js: its routes, and what is answered before there is a
 * request.
 */
import uWS from 'uWebSockets.js';
import { REQUESTS_IN_FLIGHT_MAX } from '../limits.ts';
import { preflightHeaders } from './answers/cors.ts';
import { type Answer, methodNotAllowed, NOT_FOUND, REFUSALS, STARTING } from './answers/outcome.ts';
import { Exchange } from './exchange.ts';
import { HeartbeatRequest } from './heartbeat.ts';
import type { Endpoint, RequestMetrics } from './metrics/request-metrics.ts';
import { type OpenExchanges, SWEEP_MS } from './open-exchanges.ts';
import { RequestHead } from './request-head.ts';
import type { RequestServices } from './services.ts';
import { openIngest } from './traced-request.ts';

const preflight = (req: uWS.HttpRequest): Answer => ({
  status: '204 No Content',
  headers: preflightHeaders(req.getHeader('access-control-request-headers')),
  body: '',
});

type Opener = (
  services: RequestServices,
  exchange: Exchange,
  head: RequestHead,
) => { start(head: RequestHead): void };

export type ServerOptions = {
  exchanges: OpenExchanges;
  metrics: RequestMetrics;
  heartbeatPath: string;
  /** Undefined until the registry has loaded: requests are then answered 503. */
  services(): RequestServices | undefined;
  /** Body of /readyz, and whether it is 200. */
  readiness(): { ready: boolean; body: string };
};

export class Server {
  readonly #app = uWS.App();
  readonly #options: ServerOptions;
  readonly #sweeper: NodeJS.Timeout;
  #listenSocket: uWS.us_listen_socket | undefined;
  /** Open client connections. */
  connections = 0;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#app.filter((_res, change) => {
      this.connections += Number(change) > 0 ? 1 : -1;
    });
    this.#endpoint('ingest', '/api/:project/envelope', openIngest);
    this.#endpoint(
      'heartbeat',
      `${options.heartbeatPath}/:token`,
      (services, exchange) => new HeartbeatRequest(services, exchange),
    );
    this.#page('/healthz', () => ({
      status: '200 OK',
      headers: '',
      body: '{"status":"ok"}',
    }));
    this.#page('/readyz', () => {
      const { ready, body } = options.readiness();
      return {
        status: ready ? '200 OK' : '503 Service Unavailable',
        headers: '',
        body,
      };
    });
    this.#app.any('/*', (res, req) => this.#other(res, req, NOT_FOUND));
    this.#sweeper = setInterval(() => options.exchanges.sweep(), SWEEP_MS);
  }

  /** @throws when the address cannot be listened on */
  listen(host: string, port: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#app.listen(host, port, (socket) => {
        if (!socket) return reject(new Error(`cannot listen on ${host}:${port}`));
        this.#listenSocket = socket;
        resolve();
      });
    });
  }

  /**
   * Stops accepting. Runs right after a poll of the sockets, when the accept queue has just been
   * emptied: what has come since, the kernel resets. So no connection is closed yet, for its client
   * would come back at once.
   */
  closeListener(): Promise<void> {
    return new Promise((resolve) => {
      setImmediate(() => {
        if (this.#listenSocket) uWS.us_listen_socket_close(this.#listenSocket);
        this.#listenSocket = undefined;
        resolve();
      });
    });
  }

  /** From now on every answer closes its connection. */
  closeWithAnswers(): void {
    this.#options.exchanges.allAnswersClose = true;
  }

  /** Closes every connection that is left. */
  close(): void {
    clearInterval(this.#sweeper);
    this.#app.close();
  }

  /**
   * POST is served, OPTIONS is the preflight, everything else is 405; all with and without a final
   * slash.
   */
  #endpoint(endpoint: Endpoint, path: string, open: Opener): void {
    const { exchanges } = this.#options;
    const serve = (res: uWS.HttpResponse, req: uWS.HttpRequest): void => {
      const head = new RequestHead(req);
      const exchange = new Exchange(res, exchanges, head);
      const services = this.#options.services();
      if (head.isOdd) {
        this.#note(endpoint, 'invalid', exchange);
        exchange.answerAndClose(REFUSALS.invalid);
      } else if (!services || exchanges.inFlight > REQUESTS_IN_FLIGHT_MAX) {
        this.#note(endpoint, 'overloaded', exchange);
        exchange.answer(services ? REFUSALS.overloaded : STARTING);
      } else open(services, exchange, head).start(head);
    };
    for (const pattern of [path, `${path}/`]) {
      this.#app.post(pattern, serve);
      this.#app.options(pattern, (res, req) => this.#other(res, req, preflight(req)));
      this.#app.any(pattern, (res, req) => this.#other(res, req, methodNotAllowed('POST, OPTIONS')));
    }
  }

  /** Of a request that is refused at its head. While the registry is read, its outcome alone. */
  #note(endpoint: Endpoint, outcome: 'invalid' | 'overloaded', exchange: Exchange): void {
    const services = this.#options.services();
    if (services) services.note(endpoint, outcome, { exchange });
    else this.#options.metrics.outcomes[endpoint][outcome]++;
  }

  #page(path: string, answer: () => Answer): void {
    this.#app.get(path, (res, req) => this.#other(res, req, answer()));
    this.#app.any(path, (res, req) => this.#other(res, req, methodNotAllowed('GET')));
  }

  #other(res: uWS.HttpResponse, req: uWS.HttpRequest, answer: Answer): void {
    this.#options.metrics.other(answer.status);
    // What follows the head of an answer to HEAD would be taken for the next answer.
    const shown = req.getMethod() === 'head' ? { ...answer, body: '' } : answer;
    const head = new RequestHead(req);
    const exchange = new Exchange(res, this.#options.exchanges, head);
    if (head.isOdd) exchange.answerAndClose(shown);
    else exchange.answer(shown);
  }
}
