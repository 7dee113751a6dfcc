/**
 * The HTTP server. Only this file imports uWebSockets.js. It has the routes and the answers that
 * need no request object.
 */
import uWS from 'uWebSockets.js';
import { REQUESTS_IN_FLIGHT_MAX } from '../../limits.ts';
import { preflightHeaders } from './answers/cors.ts';
import { type Answer, methodNotAllowed, NOT_FOUND, withReason } from './answers/outcome.ts';
import type { Endpoint, RequestServices } from './endpoint-request.ts';
import { Exchange } from './exchange.ts';
import { HEARTBEAT, HeartbeatRequest } from './heartbeat.ts';
import type { ItemEndpoint, ItemRoute } from './item-endpoints.ts';
import type { EndpointName, RequestMetrics } from './metrics/request-metrics.ts';
import { type OpenExchanges, SWEEP_MS } from './open-exchanges.ts';
import { RequestHead } from './request-head.ts';

const preflight = (req: uWS.HttpRequest): Answer => ({
  status: '204 No Content',
  headers: preflightHeaders(req.getHeader('access-control-request-headers')),
  body: '',
});

/**
 * Endpoints below `/api/{project}` that SDKs know but sluice does not serve, each with the reason
 * that the answer gives.
 */
const NOT_SERVED: ReadonlyMap<string, string> = new Map([
  ['minidump', 'a minidump is taken as an attachment in an envelope alone'],
  ['upload', 'no upload in pieces: an attachment is taken in an envelope alone'],
  ['unreal', 'crash reports of this kind are not taken'],
  ['integration', 'of OTLP, traces and logs are taken, and metrics only where they are stored'],
]);

const partsOf = (path: string): string[] => path.split('/').filter((part) => part !== '');

/** The answer to a path that belongs to no route. */
function notFound(path: string): Answer {
  const [first, , name = ''] = partsOf(path);
  const reason = first === 'api' ? NOT_SERVED.get(name) : undefined;
  return reason === undefined ? NOT_FOUND : withReason(NOT_FOUND, reason);
}

/**
 * Matches a path to a route with at most one parameter. Returns the parameter, or '' when the route
 * has none; undefined when the path does not match.
 */
function parameterIn(path: string, route: string): string | undefined {
  const [given, wanted] = [partsOf(path), partsOf(route)];
  let parameter = '';
  for (const [place, part] of wanted.entries())
    if (part.startsWith(':')) parameter = given[place] ?? '';
    else if (part !== given[place]) return undefined;
  return given.length === wanted.length ? parameter : undefined;
}

type Handler = (res: uWS.HttpResponse, req: uWS.HttpRequest, parameter?: string) => void;

type Started = { start(head: RequestHead): void };
/**
 * Makes the request object when a head has arrived. `at`: the endpoint, the path of its route, and
 * the head.
 */
type Opener<E extends Endpoint> = (
  services: RequestServices,
  exchange: Exchange,
  at: { endpoint: E; path: string; head: RequestHead },
) => Started;
export type ItemOpener = Opener<ItemEndpoint>;

export type ServerOptions = {
  exchanges: OpenExchanges;
  metrics: RequestMetrics;
  heartbeatPath: string;
  itemRoutes: readonly ItemRoute[];
  openItems: ItemOpener;
  /** Undefined until the registry has loaded; until then requests get 503. */
  services(): RequestServices | undefined;
  /** Body of /readyz, and whether its status is 200. */
  readiness(): { ready: boolean; body: string };
};

export class Server {
  readonly #app = uWS.App();
  readonly #options: ServerOptions;
  readonly #sweeper: NodeJS.Timeout;
  /**
   * Handlers by path, for paths with doubled slashes: uWebSockets.js does not match those to its
   * routes.
   */
  readonly #handlers = new Map<string, Handler>();
  #listenSocket: uWS.us_listen_socket | undefined;
  /** Number of open client connections. */
  connections = 0;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#app.filter((_res, change) => {
      this.connections += Number(change) > 0 ? 1 : -1;
    });
    for (const { path, endpointFor } of options.itemRoutes)
      this.#endpoint(`/api/:project/${path}`, endpointFor, options.openItems);
    this.#endpoint(
      `${options.heartbeatPath}/:token`,
      () => HEARTBEAT,
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
    this.#app.any('/*', (res, req) => this.#elsewhere(res, req));
    this.#sweeper = setInterval(() => options.exchanges.sweep(), SWEEP_MS);
  }

  /**
   * Starts to accept connections.
   * @throws when the address cannot be listened on
   */
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
   * Stops accepting connections. The kernel resets connections that wait in the accept queue. So
   * the listener is closed right after a poll of the sockets, when the queue has just been emptied.
   * Open connections are not closed here, because their clients would connect again at once,
   * perhaps to another worker of this primary that is about to stop, too.
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

  /** Makes every answer from now on close its connection. */
  closeWithAnswers(): void {
    this.#options.exchanges.allAnswersClose = true;
  }

  /** Closes all connections that are left. */
  close(): void {
    clearInterval(this.#sweeper);
    this.#app.close();
  }

  /**
   * Adds the routes of an endpoint, with and without a final slash. POST is served, OPTIONS is
   * answered as a preflight, and every other method gets 405.
   */
  #endpoint<E extends Endpoint>(path: string, endpointFor: (head: RequestHead) => E, open: Opener<E>): void {
    const { exchanges } = this.#options;
    const serve: Handler = (res, req, parameter) => {
      const head = new RequestHead(req, parameter);
      const exchange = new Exchange(res, exchanges, head);
      const services = this.#options.services();
      const endpoint = endpointFor(head);
      const { refusals } = endpoint.answers;
      if (head.isOdd) {
        this.#note(endpoint.name, 'invalid', exchange, head.oddness);
        const refusal = head.oddExpectation ? refusals.odd_expectation : refusals.invalid;
        exchange.answerAndClose(withReason(refusal, head.oddness));
      } else if (!services || exchanges.inFlight > REQUESTS_IN_FLIGHT_MAX) {
        this.#note(endpoint.name, 'overloaded', exchange);
        exchange.answer(services ? refusals.overloaded : refusals.starting);
      } else open(services, exchange, { endpoint, path, head }).start(head);
    };
    const handle: Handler = (res, req, parameter) => {
      const method = req.getMethod();
      if (method === 'post') serve(res, req, parameter);
      else this.#other(res, req, method === 'options' ? preflight(req) : methodNotAllowed('POST, OPTIONS'));
    };
    this.#handlers.set(path, handle);
    for (const pattern of [path, `${path}/`]) {
      // POST has a route of its own, so that most requests need no look at their method.
      this.#app.post(pattern, (res, req) => serve(res, req));
      this.#app.any(pattern, (res, req) => handle(res, req));
    }
  }

  /**
   * Records a request that is refused at its head. Before the registry has loaded, only its outcome
   * and its reason are counted.
   */
  #note(
    endpoint: EndpointName,
    outcome: 'invalid' | 'overloaded',
    exchange: Exchange,
    reason?: string,
  ): void {
    const services = this.#options.services();
    if (reason !== undefined) this.#options.metrics.refuseBody(reason);
    if (services) services.record.note(endpoint, outcome, { exchange, reason });
    else this.#options.metrics.outcomes[endpoint][outcome]++;
  }

  #page(path: string, answer: () => Answer): void {
    const handle: Handler = (res, req) =>
      this.#other(res, req, req.getMethod() === 'get' ? answer() : methodNotAllowed('GET'));
    this.#handlers.set(path, handle);
    this.#app.any(path, (res, req) => handle(res, req));
  }

  /**
   * Answers paths without a route. A path with doubled slashes is matched as if its slashes were
   * single: base URLs that end in a slash produce such paths, and so do proxies.
   */
  #elsewhere(res: uWS.HttpResponse, req: uWS.HttpRequest): void {
    const path = req.getUrl();
    if (path.includes('//'))
      for (const [route, handle] of this.#handlers) {
        const parameter = parameterIn(path, route);
        if (parameter !== undefined) return handle(res, req, parameter);
      }
    this.#other(res, req, notFound(path));
  }

  #other(res: uWS.HttpResponse, req: uWS.HttpRequest, answer: Answer): void {
    this.#options.metrics.other(answer.status);
    // A client would take the body of an answer to HEAD for the next answer.
    const shown = req.getMethod() === 'head' ? { ...answer, body: '' } : answer;
    const head = new RequestHead(req);
    const exchange = new Exchange(res, this.#options.exchanges, head);
    if (head.isOdd) exchange.answerAndClose(shown);
    else exchange.answer(shown);
  }
}
